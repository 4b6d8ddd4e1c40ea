"""Settings that every test shares, and a fake API server. The real peers are in tests/integration/conftest.py."""

import asyncio
import gc
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import PurePath
from typing import Any, TypeVar

import pytest
import structlog
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from harness import NODE_FOLDERS, compiled
from harness.cluster.port import ApiServer
from harness.examples import FAST_PROFILE
from harness.fake_api.server import FakeApiServer
from harness.faults.faultproxy import FaultProxy
from harness.recordings import is_recording
from trimtab.api.quantity import GIB
from trimtab.frame_memory import call_with_frame_memory

T = TypeVar("T")

# No test asserts a time: on shared cores an example may take as long as it takes.
for profile in ("shared", FAST_PROFILE):
    settings.register_profile(profile, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")

# structlog's own default draws tracebacks with Rich, which took a tenth of the CPU of the recommender's tests.
*_processors, _ = structlog.get_config()["processors"]
_console = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
structlog.configure(processors=[*_processors, _console])


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> object:
    """Run the session with memory for its frames: at an unlucky depth, tests took three times the CPU."""
    inner = config.pluginmanager.subset_hook_caller("pytest_cmdline_main", [sys.modules[__name__]])
    return call_with_frame_memory(lambda: inner(config=config))


def pytest_configure(config: pytest.Config) -> None:
    """Restore numba's compiled functions before the workers start, each of which would compile them for 17 s in a new clone."""
    if not hasattr(config, "workerinput"):
        compiled.restore()
        if config.getoption("--hypothesis-profile") == FAST_PROFILE:
            _keep_files_in_memory()


MEMORY_FOLDER = "/dev/shm"


def _keep_files_in_memory() -> None:
    """Put temporary files into memory: each fsync takes 6 ms on a disk, which was a third of the time of the fast tests."""
    if (
        os.access(MEMORY_FOLDER, os.W_OK)
        and shutil.disk_usage(MEMORY_FOLDER).free >= 2 * GIB  # containers have 64 MiB unless asked for more
        and "TMPDIR" not in os.environ
    ):
        os.environ["TMPDIR"] = tempfile.tempdir = MEMORY_FOLDER


def pytest_sessionstart() -> None:
    """Declare that there is no event loop yet: otherwise pytest-asyncio creates one that is never closed."""
    asyncio.set_event_loop(None)


def pytest_sessionfinish() -> None:
    """Save what `make coverage` measured: xdist ends a worker that takes more than ten seconds to exit, and its data with it."""
    if measuring := coverage.Coverage.current() if (coverage := sys.modules.get("coverage")) else None:
        measuring.save()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, T, T]:
    """Freeze the half million objects of modules and tests: collecting them again took half the time of some properties."""
    gc.disable()
    found = yield
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    gc.enable()
    return found


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give no second try to a test that needs no other process: it fails for a reason in our code."""
    if config.getoption("reruns", None):
        for item in items:
            if not item.nodeid.startswith("tests/integration/"):
                item.add_marker(pytest.mark.flaky(reruns=0))


PROCESS_STARTS = {"os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"}
LIBRARY_PROGRAMS = {("fc-list",), ("lscpu",)}
"""Programs that a library asks once, and does without: matplotlib for fonts, `numpy.testing` below 2 for the processor."""
_in_own_process = False
"""True while a test runs that must need no other process."""


def _forbid_other_processes(event: str, details: tuple[object, ...]) -> None:
    if _in_own_process and event in PROCESS_STARTS and details[:1] not in LIBRARY_PROGRAMS:
        pytest.fail(f"{event}: a test that starts a process belongs in tests/integration")


sys.addaudithook(_forbid_other_processes)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, T, T]:
    """Hold tests outside tests/integration to their tier: their result must not depend on the programs of a machine."""
    global _in_own_process  # noqa: PLW0603 - an audit hook has no other state, and cannot be removed
    _in_own_process = not item.nodeid.startswith("tests/integration/") and not is_recording()
    try:
        return (yield)
    finally:
        _in_own_process = False


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """Permit processes: after the last test of a session, its teardown stops the clusters of other tests."""
    global _in_own_process  # noqa: PLW0603
    _in_own_process = False


@pytest.fixture(autouse=True)
def _restored_logs() -> Iterator[None]:
    """Restore the logging configuration: a command that runs within a test sets it for the whole process."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """A fake API server, one a session; tests/integration has a real one of the same name."""
    with FakeApiServer(tmp_path_factory.mktemp("api")) as server:
        yield server


@pytest.fixture
def namespace(cluster: ApiServer) -> Iterator[str]:
    """The name of a fresh namespace."""
    name = f"test-{secrets.token_hex(4)}"
    cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    yield name
    cluster.call("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture
async def fault_proxy(cluster: ApiServer) -> AsyncIterator[FaultProxy]:
    """The API server with faults before it: use its `kubeconfig` or `server`, and tell it what to break."""
    async with FaultProxy(cluster) as proxy:
        yield proxy


def pytest_xdist_auto_num_workers() -> int:
    """Start three processes for two cores: a third of their time is waiting, for a real server's deadlines and disks."""
    return -(-3 * len(os.sched_getaffinity(0)) // 2)


class _Together(LoadScopeScheduling):  # type: ignore[misc]
    """Run a file's tests in one process, which share what they start, and all tests of the node in one."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "node" if NODE_FOLDERS & set(PurePath(file).parts) else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Together | None:
    return _Together(config, log) if config.option.dist == "loadscope" else None

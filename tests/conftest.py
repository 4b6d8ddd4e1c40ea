"""The fixtures that every room shares: the real things of `harness`, started once a session.

Asking for one of them marks a test (`cluster`, `node`, `postgres`), so that `-m "not cluster"` leaves out what it
should. What this machine cannot run is skipped with the reason.
"""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest
import structlog
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from harness import UnavailableError, build, node, packages
from harness.baseline_pod import running_plodder, start_plodder
from harness.cluster import Cluster
from harness.faultproxy import FaultProxy
from harness.namespaces import fresh_namespace
from harness.pgbouncer import pgbouncer
from harness.postgres import Postgres
from harness.prometheus import Prometheus
from harness.quantity import GoQuantity
from harness.vpa import GoVpa, crds
from trimtab.usage.usage import PodContainer

T = TypeVar("T")

MARKS = {
    "cluster": ("cluster",),
    "asked_cluster": ("cluster",),
    "node_cluster": ("cluster", "node"),
    "postgres_url": ("postgres",),
}
PREPARATIONS: dict[str, Callable[[], object]] = {
    "go_quantity": build.QUANTITY.built,
    "go_vpa": build.VPA.built,
    "postgres_url": lambda: packages.install("postgresql"),
    "pooler_url": lambda: packages.install("pgbouncer"),
    "cluster": build.KUBE.built,
    "node_cluster": node.prepare,
    "prometheus": lambda: packages.install("prometheus"),
}


# No test asserts a time: on shared cores an example may take as long as it takes.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")


def pytest_sessionstart() -> None:
    """Say that there is no event loop yet: else pytest-asyncio's question for it makes one that nobody closes."""
    asyncio.set_event_loop(None)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, T, T]:
    """Half a million objects of modules and tests are there to stay: to look through them was half of what some properties took."""
    gc.disable()
    found = yield
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    gc.enable()
    return found


@pytest.fixture(autouse=True)
def _logs_as_they_were() -> Iterator[None]:
    """A command that is run within a test sets the logs of the whole process; the next test has its own."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def _fixtures_of(item: pytest.Item) -> list[str]:
    return getattr(item, "fixturenames", [])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test by what it asks for, and begin with those of the node, which take longest."""
    for item in items:
        for fixture, marks in MARKS.items():
            if fixture in _fixtures_of(item):
                for mark in marks:
                    item.add_marker(mark)
    items.sort(key=lambda item: item.get_closest_marker("node") is None)


class _Together(LoadScopeScheduling):  # type: ignore[misc]
    """The tests of a file share what they start, so one process runs them; and there is one node."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "node" if _is_of_node(self.config.rootpath / file) else file


@cache
def _is_of_node(file: Path) -> bool:
    """Whether its tests ask for the node, or for what lives there."""
    text = file.read_text()
    return any(asked in text for asked in ("node_cluster: Cluster", "plodder: PodContainer"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Whoever has the node by way of another fixture only would have a second one started beside the first."""
    if item.get_closest_marker("node") and not _is_of_node(item.path):
        pytest.fail("there is one node: ask for `node_cluster: Cluster` by name", pytrace=False)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Together:
    return _Together(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Build what the selected tests need before the first starts: in the open, and on nobody's time-out."""
    if session.config.option.collectonly:
        return
    wanted = {
        name for item in session.items if not item.get_closest_marker("skip") for name in _fixtures_of(item)
    }
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        for name in wanted & PREPARATIONS.keys():
            with suppress(UnavailableError):  # the fixture meets it again, and skips with the reason
                PREPARATIONS[name]()


def _or_skip(make: Callable[[], T]) -> T:
    try:
        return make()
    except UnavailableError as why:
        pytest.skip(str(why))


@pytest.fixture(scope="session")
def go_quantity() -> GoQuantity:
    """How Go reads quantities and durations: `go_quantity.ask(["quantity 1.5Gi"])`."""
    return _or_skip(GoQuantity)


@pytest.fixture(scope="session")
def go_vpa() -> GoVpa:
    """The Kubernetes VPA recommender without its cluster: `go_vpa.ask([Series(…)])`."""
    return _or_skip(GoVpa)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of an empty database on a PostgreSQL server of our own."""
    with _or_skip(Postgres) as server:
        yield server.url


@pytest.fixture(scope="session")
def pooler_url(postgres_url: str) -> Iterator[str]:
    """The URL of the same server through a PgBouncer of our own, which lends its connections for a transaction."""
    _or_skip(lambda: packages.install("pgbouncer"))
    with pgbouncer(postgres_url) as url:
        yield url


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The real control plane, one a session."""
    with _or_skip(lambda: Cluster.start(tmp_path_factory.mktemp("cluster"))) as running:
        yield running


@pytest.fixture(scope="session")
def vpa_kinds(cluster: Cluster) -> None:
    """That control plane knows VPA's kinds."""
    cluster.learn(_or_skip(crds))


@pytest.fixture(scope="session")
def node_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Another one, with this machine as its node: real containers, real metrics. In `cluster` no pod ever starts."""
    with _or_skip(lambda: Cluster.start(tmp_path_factory.mktemp("node"), node=True)) as running:
        start_plodder(running)
        yield running


@pytest.fixture(scope="session")
def plodder(node_cluster: Cluster) -> PodContainer:
    """A container of limited size that has worked a little for a while, of a Deployment in a namespace of its own."""
    return running_plodder(node_cluster)


@pytest.fixture(scope="session")
def prometheus(node_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A real Prometheus that scrapes the node."""
    with _or_skip(lambda: Prometheus(node_cluster, tmp_path_factory.mktemp("prometheus"))) as running:
        yield running


@pytest.fixture
def asked_cluster(request: pytest.FixtureRequest) -> Cluster:
    """The cluster that a test asks for: the one with the node if that, else the one without."""
    found: Cluster = request.getfixturevalue(
        "node_cluster" if "node_cluster" in request.fixturenames else "cluster"
    )
    return found


@pytest.fixture
def namespace(asked_cluster: Cluster) -> Iterator[str]:
    """The name of a fresh namespace, in which pods can be made."""
    with fresh_namespace(asked_cluster) as name:
        yield name


@pytest.fixture
async def fault_proxy(cluster: Cluster) -> AsyncIterator[FaultProxy]:
    """The API server with faults before it: use its `kubeconfig` or `server`, and tell it what to break."""
    async with FaultProxy(cluster) as proxy:
        yield proxy

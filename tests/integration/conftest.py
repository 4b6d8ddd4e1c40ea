"""The real peers that integration tests share, each started once a session.

A test that asks for one of them gets its mark (`cluster`, `node`, `postgres`). What this machine cannot run is skipped
with the reason. Tests of the real node lie in folders named `on_node` and in `e2e`: the scheduler keeps them together.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest

from harness import NODE_FOLDERS, UnavailableError, build, packages
from harness.cluster import node
from harness.cluster.baseline_pod import running_plodder, start_plodder
from harness.cluster.cluster import Cluster
from harness.cluster.namespaces import fresh_namespace
from harness.faults.faultproxy import FaultProxy
from harness.peers.pgbouncer import pgbouncer
from harness.peers.postgres import Postgres
from harness.peers.prometheus import Prometheus
from harness.peers.quantity import GoQuantity
from harness.peers.vpa import GoVpa, crds
from trimtab.usage.usage import PodContainer

T = TypeVar("T")

MARKERS = {
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


def _fixture_names(item: pytest.Item) -> list[str]:
    """Return the fixtures of a test here; those of the same names elsewhere are fakes."""
    is_here = Path(__file__).parent in item.path.parents
    return getattr(item, "fixturenames", []) if is_here else []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test by the peers that it asks for, and begin with those of the node, which take longest."""
    for item in items:
        for fixture, markers in MARKERS.items():
            if fixture in _fixture_names(item):
                for mark in markers:
                    item.add_marker(mark)
    items.sort(key=lambda item: item.get_closest_marker("node") is None)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse a test of the node outside its folders: another process would start a second node beside the first."""
    if item.get_closest_marker("node") and not NODE_FOLDERS & set(item.path.parts):
        pytest.fail("there is one node: move this test to a folder named `on_node`", pytrace=False)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Build what the selected tests need before the first starts, visibly and outside any test's time-out."""
    if session.config.option.collectonly:
        return
    wanted = {
        name for item in session.items if not item.get_closest_marker("skip") for name in _fixture_names(item)
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
    """Go's parser of quantities and durations: `go_quantity.ask(["quantity 1.5Gi"])`."""
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
    """The control plane with the kinds of VPA."""
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
    """The API server with faults before it: use its `kubeconfig` or `server`, and configure its faults."""
    async with FaultProxy(cluster) as proxy:
        yield proxy

"""Twenty workloads and their past, made for each file whose commands look at them."""

import secrets
from collections.abc import Iterator

import pytest

from harness import UnavailableError
from harness.cluster.cluster import Cluster
from harness.cluster.namespaces import make_namespace
from harness.peers.prometheus import Recorded
from scan.scene import RunCommand, SampleWorkloads, ScannedCluster
from trimtab.cli import run


@pytest.fixture(scope="module")
def lightly_used_cluster(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ScannedCluster]:
    """Not for the session: its node, which is only a name, must be gone before the real one comes."""
    name = f"survey-{secrets.token_hex(4)}"
    make_namespace(cluster, name)
    with SampleWorkloads(cluster, name) as scene:
        try:
            recorded = Recorded(tmp_path_factory.mktemp("prometheus"), scene.recording())
        except UnavailableError as why:
            pytest.skip(str(why))
        with recorded as running:
            yield ScannedCluster(cluster, name, running.url)


@pytest.fixture
def ask(lightly_used_cluster: ScannedCluster, capsys: pytest.CaptureFixture[str]) -> RunCommand:
    """Run a command on the town: its exit code, what it printed, and what it said on stderr."""

    def ask(command: str, *arguments: str) -> tuple[int, str, str]:
        code = run([command, *arguments, *lightly_used_cluster.options])
        said = capsys.readouterr()
        return code, said.out, said.err

    return ask

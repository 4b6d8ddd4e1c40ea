"""Give a test the service account and rights that our manifests give to a process."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness.cluster.cluster import Cluster
from trimtab.kube.rest.rbac import SYSTEM_NAMESPACE, Component

DEPLOY = Path(__file__).parents[3] / "deploy"


def wait_for_home(cluster: Cluster) -> None:
    """Let our namespace go that another test has deleted: in what is on its way out nothing can be made."""
    home = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}"
    if cluster.has(home) and cluster.call("GET", home)["status"]["phase"] == "Terminating":
        cluster.kubectl("wait", "--for=delete", f"namespace/{SYSTEM_NAMESPACE}", "--timeout=60s")


@contextmanager
def account(cluster: Cluster, process: Component) -> Iterator[str]:
    """The user whose rights are the process' and no others; they go at the end, for Helm takes over nobody's."""
    wait_for_home(cluster)
    rights = str(DEPLOY / process / "account.yaml")
    for manifest in (str(DEPLOY / "operator" / "namespace.yaml"), rights):
        cluster.kubectl("apply", "--server-side", "-f", manifest)
    yield f"system:serviceaccount:{SYSTEM_NAMESPACE}:trimtab-{process}"
    cluster.kubectl("delete", "--ignore-not-found", "-f", rights)

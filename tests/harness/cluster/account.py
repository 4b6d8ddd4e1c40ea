"""Give a test the service account and rights that our manifests give to a process."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.cluster.cluster import Cluster
from trimtab.kube.rest.rbac import SYSTEM_NAMESPACE, Component

DEPLOY = Path(__file__).parents[3] / "deploy"


def wait_for_home(cluster: Cluster) -> None:
    """Let our namespace go that another test has deleted: in what is on its way out nothing can be made."""
    home = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}"
    if cluster.has(home) and cluster.call("GET", home)["status"]["phase"] == "Terminating":
        cluster.kubectl("wait", "--for=delete", f"namespace/{SYSTEM_NAMESPACE}", "--timeout=60s")


NODE_NAME = "authentication.kubernetes.io/node-name"
"""The node of a pod, which the API server reads from the pod's token."""


def manifests_of(process: Component) -> list[str]:
    """Return the files with a process' account, and with the policies that bound what the account may write."""
    files = [DEPLOY / process / name for name in ("account.yaml", "admission.yaml", "pod-webhook.yaml")]
    return [str(file) for file in files if file.exists()]


def become(process: Component, *, node: str = "") -> dict[str, Any]:
    """Return what the user of a kubeconfig says to be a process' account, as one of its pods on a node is."""
    user: dict[str, Any] = {"as": f"system:serviceaccount:{SYSTEM_NAMESPACE}:trimtab-{process}"}
    return user | ({"as-user-extra": {NODE_NAME: [node]}} if node else {})


@contextmanager
def account(cluster: Cluster, process: Component) -> Iterator[None]:
    """Create the account with exactly the process' rights; delete it at the end, since Helm adopts no foreign account."""
    wait_for_home(cluster)
    rights = manifests_of(process)
    for manifest in (str(DEPLOY / "operator" / "namespace.yaml"), *rights):
        cluster.kubectl("apply", "--server-side", "-f", manifest)
    yield
    for manifest in rights:
        cluster.kubectl("delete", "--ignore-not-found", "-f", manifest)

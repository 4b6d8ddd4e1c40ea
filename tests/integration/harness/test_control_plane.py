import ssl

import aiohttp
import pytest

from harness import build
from harness.cluster import etcd
from harness.cluster.cluster import Cluster, KubectlError
from harness.process import wait_for


async def _version(cluster: Cluster, *, client_certificate: bool = False, token: str | None = None) -> int:
    """The status that the server gives to someone who comes like this."""
    trust = ssl.create_default_context(cafile=cluster.ca)
    if client_certificate:
        trust.load_cert_chain(cluster.client_cert, cluster.client_key)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(f"{cluster.server}/api/v1/nodes", ssl=trust) as response,
    ):
        return response.status


def test_control_plane_has_the_version_that_was_built(cluster: Cluster) -> None:
    assert cluster.call("GET", "/version")["gitVersion"] == build.KUBERNETES


def test_kubectl_is_of_the_same_version_and_finds_the_cluster(cluster: Cluster) -> None:
    said = cluster.kubectl("version")
    assert f"Client Version: {build.KUBERNETES}" in said
    assert f"Server Version: {build.KUBERNETES}" in said


def test_kubectl_error_contains_its_output(cluster: Cluster) -> None:
    with pytest.raises(KubectlError, match='namespaces "nowhere" not found'):
        cluster.kubectl("get", "namespace", "nowhere")


def test_kubectl_applies_manifests_from_stdin(cluster: Cluster, namespace: str) -> None:
    manifest = f"{{apiVersion: v1, kind: ConfigMap, metadata: {{name: noted, namespace: {namespace}}}}}"
    assert cluster.kubectl("apply", "-f", "-", stdin=manifest) == "configmap/noted created\n"


async def test_control_plane_accepts_a_token(cluster: Cluster) -> None:
    assert await _version(cluster, token=cluster.token) == 200


async def test_control_plane_accepts_a_client_certificate(cluster: Cluster) -> None:
    assert await _version(cluster, client_certificate=True) == 200


async def test_control_plane_rejects_a_wrong_token(cluster: Cluster) -> None:
    assert await _version(cluster, token="guessed") == 401


async def test_control_plane_rejects_anonymous_requests(cluster: Cluster) -> None:
    assert await _version(cluster) == 403


async def test_control_plane_certificate_is_verified(cluster: Cluster) -> None:
    async with aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await session.get(f"{cluster.server}/version")


def test_control_plane_runs_controllers_and_scheduler(cluster: Cluster, namespace: str) -> None:
    cluster.kubectl("create", "deployment", "idle", "--image=busybox:1", f"--namespace={namespace}")
    pods = f"/api/v1/namespaces/{namespace}/pods"

    def refused_by_the_scheduler() -> bool:
        conditions = [
            condition
            for pod in cluster.call("GET", pods)["items"]
            for condition in pod["status"].get("conditions", [])
        ]
        return any("no nodes available" in condition.get("message", "") for condition in conditions)

    wait_for(refused_by_the_scheduler, what="a pod that finds no node")


@pytest.mark.parametrize("gracefully", [True, False], ids=["restarted", "killed"])
def test_objects_survive_the_api_server(cluster: Cluster, namespace: str, gracefully: bool) -> None:  # noqa: FBT001
    if gracefully:
        cluster.restart_apiserver()
    else:
        cluster.kill_apiserver()
        assert not cluster.has("/readyz")
        cluster.start_apiserver()
    assert cluster.call("GET", f"/api/v1/namespaces/{namespace}")["status"] == {"phase": "Active"}


def test_control_plane_deletes_a_namespace_with_its_contents(cluster: Cluster) -> None:
    namespace = "/api/v1/namespaces/forgotten"
    pods = f"{namespace}/pods"
    cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": "forgotten"}})
    cluster.kubectl(
        "create", "deployment", "idle", "--image=busybox:1", "--replicas=3", "--namespace=forgotten"
    )
    wait_for(lambda: len(cluster.call("GET", pods)["items"]) == 3, what="the pods")
    etcd.forget(cluster.etcd, namespace="forgotten")
    apps = "/apis/apps/v1/namespaces/forgotten"
    for path in (pods, f"{apps}/deployments", f"{apps}/replicasets"):
        _wait_until_empty(
            cluster, f"{path}?resourceVersion=0"
        )  # which is what the API server has heard of its store
    assert not cluster.has(namespace)


def _wait_until_empty(cluster: Cluster, path: str) -> None:
    wait_for(lambda: not cluster.call("GET", path)["items"], what=f"nothing at {path}")

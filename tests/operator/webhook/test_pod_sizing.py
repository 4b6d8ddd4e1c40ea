"""Pods that a real API server creates with the effective size; no leader runs here to resize them."""

from typing import Any

import aiohttp
import msgspec
import pytest

from trimtab.http_server import serve_application
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.rest.client import Object
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.webhook.pod_sizing import build_pod_patch
from trimtab.operator.webhook.server import PODS_PATH, AdmissionHandlers

MIB = 1 << 20
SMALL = Resources(100, None, 64 * MIB, 64 * MIB)


@pytest.mark.parametrize(
    "stated",
    [
        None,
        {},
        {"metadata": None, "spec": None},
        {"metadata": {"ownerReferences": [{"controller": True}]}, "spec": {"containers": {}}},
        {"metadata": {"ownerReferences": [{"controller": True}]}, "spec": {"containers": [None]}},
        {"spec": {"containers": [{"name": "web", "resources": {"requests": {"cpu": "a lot"}}}]}},
        {"metadata": {"ownerReferences": "me"}, "spec": {"initContainers": None}},
    ],
)
async def test_pod_sizing_admits_a_malformed_pod_unchanged(stated: Object | None) -> None:
    admission = AdmissionHandlers(config=OperatorConfig, policies=list, size_pod=lambda _: {"web": SMALL})
    asked = {"uid": "1", "operation": "CREATE", "object": stated}
    async with (
        serve_application(admission.build_application(), "127.0.0.1:0") as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
        session.post(PODS_PATH, data=msgspec.json.encode({"request": asked})) as answer,
    ):
        assert (await answer.json(content_type=None))["response"] == {"uid": "1", "allowed": True}


SIZE = Resources(100, None, 64 << 20, 128 << 20)
ASKED = {"requests": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"}, "limits": {"memory": "1Gi"}}


def pod(**spec: Any) -> dict[str, Any]:
    owner = {"kind": "ReplicaSet", "name": "web-1", "uid": "u", "controller": True}
    containers = [{"name": "proxy", "resources": ASKED}, {"name": "web", "resources": ASKED}]
    metadata = {"generateName": "web-1-", "creationTimestamp": None, "ownerReferences": [owner]}
    return {"metadata": metadata, "spec": {"containers": containers} | spec, "status": {}}


def written(stated: dict[str, Any], **sizes: Resources) -> dict[str, str]:
    return {
        each["path"]: each["value"] for each in build_pod_patch(msgspec.json.encode(stated), lambda _: sizes)
    }


def test_cpu_and_memory_of_the_containers_that_are_sized_are_written_and_nothing_else() -> None:
    assert written(pod(), web=SIZE) == {
        "/spec/containers/1/resources/requests/cpu": "100m",
        "/spec/containers/1/resources/requests/memory": "64Mi",
        "/spec/containers/1/resources/limits/memory": "128Mi",
    }


def test_pod_patch_skips_sidecars() -> None:
    sidecar = {"name": "mesh", "restartPolicy": "Always", "resources": ASKED}
    stated = pod(initContainers=[{"name": "setup", "resources": ASKED}, sidecar])
    found = written(stated, mesh=Resources(5, None, 1 << 20, None), setup=SIZE)
    assert found == {
        "/spec/initContainers/1/resources/requests/cpu": "5m",
        "/spec/initContainers/1/resources/requests/memory": "1Mi",
    }


def test_pod_patch_skips_pod_level_resources() -> None:
    assert written(pod(resources={"limits": {"cpu": "2"}}), web=SIZE) == {}


def test_pod_patch_skips_pods_without_a_controller() -> None:
    stated = pod()
    stated["metadata"]["ownerReferences"][0]["controller"] = False
    assert written(stated, web=SIZE) == {}

"""Pods that a real API server creates with the effective size; no leader runs here to resize them."""

import aiohttp
import msgspec
import pytest

from trimtab.http_server import serve_application
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.rest.client import Object
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.webhook.server import PODS_PATH as ASKED
from trimtab.operator.webhook.server import AdmissionHandlers

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
        session.post(ASKED, data=msgspec.json.encode({"request": asked})) as answer,
    ):
        assert (await answer.json(content_type=None))["response"] == {"uid": "1", "allowed": True}

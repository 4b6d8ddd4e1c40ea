"""Answers of the admission webhook to any client."""

import threading
from collections.abc import Iterator
from typing import Any

import aiohttp
import msgspec
import pytest

from trimtab.http_server import serve_application
from trimtab.kube.kinds.policies import Policy
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.policy.validation import GUARDRAIL_ANNOTATION
from trimtab.operator.webhook.review import AdmissionRequest
from trimtab.operator.webhook.server import VALIDATE_PATH, AdmissionHandlers


class Watched(list[Policy]):
    """Policies that know who has counted them up."""

    def __init__(self) -> None:
        super().__init__()
        self.counted_by: list[threading.Thread] = []

    def __iter__(self) -> Iterator[Policy]:
        self.counted_by.append(threading.current_thread())
        return super().__iter__()


async def test_policies_are_counted_up_where_they_change_and_not_in_the_thread_that_judges() -> None:
    """There, one that comes meanwhile would end in an error, as where a folder of them is applied at once."""
    policies = Watched()
    admission = AdmissionHandlers(config=OperatorConfig, policies=lambda: policies)
    asked = {"uid": "1", "operation": "CREATE", "object": {"kind": "OptimizationPolicy", "spec": {}}}
    async with (
        serve_application(admission.build_application(), "127.0.0.1:0") as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
        session.post(VALIDATE_PATH, data=msgspec.json.encode({"request": asked})) as answer,
    ):
        assert (await answer.json(content_type=None))["response"]["allowed"]
    assert policies.counted_by == [threading.main_thread()]


@pytest.mark.parametrize(
    ("annotations", "is_weighed"),
    [({"team": "shop"}, False), ({GUARDRAIL_ANNOTATION: "errors > bool 5"}, True)],
)
def test_webhook_server_validates_a_policy_again_only_for_a_relevant_annotation(
    annotations: dict[str, Any], *, is_weighed: bool
) -> None:
    then: dict[str, Any] = {"metadata": {"name": "web"}, "spec": {"mode": "Auto"}}
    now = then | {"metadata": {"name": "web", "annotations": annotations}}
    request = AdmissionRequest(uid="1", operation="UPDATE", object=now, old_object=then)
    assert request.changes_spec is is_weighed

"""Floods of costly admission requests, which any pod may send, leave most of a CPU to the operator."""

import asyncio
from typing import Any

import aiohttp
import pytest

from trimtab.http_server import serve_application
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.webhook import server
from trimtab.operator.webhook.review import AdmissionRequest, AdmissionResponse
from trimtab.operator.webhook.server import VALIDATE_PATH, AdmissionHandlers

REVIEW = {
    "request": {"uid": "1", "operation": "CREATE", "object": {"kind": "OptimizationPolicy", "spec": {}}}
}


async def test_review_of_a_policy_keeps_its_slot_while_the_operator_does_other_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reviewed: list[AdmissionRequest] = []
    rested = asyncio.Event()

    class CountedHandlers(AdmissionHandlers):
        def validate(self, request: AdmissionRequest, others: Any) -> AdmissionResponse:
            reviewed.append(request)
            return super().validate(request, others)

    async def rest(seconds: float) -> None:
        assert 0 < seconds <= 1.0
        await rested.wait()

    monkeypatch.setattr(server, "_rest", rest)
    application = CountedHandlers(config=OperatorConfig, policies=tuple).build_application()
    async with (
        serve_application(application, "127.0.0.1:0") as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session,
    ):

        async def review() -> int:
            async with session.post(VALIDATE_PATH, json=REVIEW) as answer:
                return answer.status

        reviews = [asyncio.create_task(review()) for _ in range(6)]
        while len(reviewed) < 2:
            await asyncio.sleep(0.01)
        done, _ = await asyncio.wait(reviews, timeout=0.3)
        assert not done
        assert len(reviewed) == 2
        rested.set()
        assert await asyncio.gather(*reviews) == [200] * 6

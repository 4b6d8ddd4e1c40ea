"""Guardrails: queried for the changed workload, and unknown without an answer."""

from __future__ import annotations

import asyncio

import pytest

from harness.builders.records import workload
from trimtab.operator.config.model import Guardrail
from trimtab.operator.sizing import harm_signals
from trimtab.operator.sizing.harm_signals import PromqlGuardrailChecker
from trimtab.usage.errors import SourceUnavailable
from trimtab.usage.source import Vector

ERRORS = Guardrail(name="errors", query='sum(errors{namespace="$namespace",app="$workload"})', max=2)


class FakePromqlClient:
    """A PromQL client with a fixed answer."""

    def __init__(self, answer: float | Exception | None) -> None:
        self.answer = answer
        self.queries: list[tuple[str, float]] = []

    async def vector(self, promql: str, *, at: float) -> Vector:
        self.queries.append((promql, at))
        if isinstance(self.answer, Exception):
            raise self.answer
        return [] if self.answer is None else [({}, self.answer)]


@pytest.mark.parametrize(
    ("answer", "holds"),
    [
        (0.0, True),
        (2.0, True),
        (2.1, False),
        (None, None),
        (float("nan"), None),
        (SourceUnavailable("away"), None),
    ],
)
async def test_guardrail_holds_up_to_its_maximum_and_is_unknown_without_a_number(
    *, answer: float | Exception | None, holds: bool | None
) -> None:
    client = FakePromqlClient(answer)
    assert await PromqlGuardrailChecker(client).check_guardrails(workload(), [ERRORS], now=7.0) == {
        "errors": holds
    }
    assert client.queries == [('sum(errors{namespace="shop",app="web"})', 7.0)]


async def test_guardrail_checker_does_not_wait_for_a_silent_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class HungClient:
        async def vector(self, promql: str, *, at: float) -> Vector:
            await asyncio.Event().wait()
            raise AssertionError("unreachable")

    monkeypatch.setattr(harm_signals, "QUERY_TIMEOUT", 0.01)
    assert await PromqlGuardrailChecker(HungClient()).check_guardrails(workload(), [ERRORS], now=7.0) == {
        "errors": None
    }


async def test_guardrail_is_unknown_without_a_client() -> None:
    assert await PromqlGuardrailChecker(None).check_guardrails(workload(), [ERRORS], now=7.0) == {
        "errors": None
    }
    assert await PromqlGuardrailChecker(None).check_guardrails(workload(), [], now=7.0) == {}


async def test_guardrail_query_escapes_the_names_of_the_workload() -> None:
    client = FakePromqlClient(0.0)
    hostile = workload('web"} or vector(0) #')
    await PromqlGuardrailChecker(client).check_guardrails(hostile, [ERRORS], now=7.0)
    assert client.queries == [(r'sum(errors{namespace="shop",app="web\"} or vector(0) #"})', 7.0)]


async def test_guardrail_with_unquoted_placeholder_is_unknown() -> None:
    client = FakePromqlClient(0.0)
    stored = Guardrail.model_construct(name="errors", query="errors_$workload", max=2)
    found = await PromqlGuardrailChecker(client).check_guardrails(workload(), [stored], now=7.0)
    assert found == {"errors": None}
    assert client.queries == []

"""Harm signals of changed pods: guardrails and throttling, unknown without an answer."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from actuation.builders import NOW, pod
from harness.builders.records import workload
from trimtab.actuation.decide.health import ThrottlingSample
from trimtab.kube.kinds.pods import Resources
from trimtab.operator.config.model import Guardrail
from trimtab.operator.sizing import harm_signals
from trimtab.operator.sizing.harm_signals import PromqlGuardrailChecker, read_throttling
from trimtab.testing import ScriptedSource, steady
from trimtab.usage.errors import SourceUnavailable
from trimtab.usage.source import Capabilities, Progress, UsageQuery, Vector
from trimtab.usage.usage import PodContainer, Usage

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


LIMITED = pod("web-0", sizes={"web": Resources(100, 200), "log": Resources(100, 100)})
FREE = pod("web-1", sizes={"web": Resources(100), "log": Resources(100)})
STEP = 60.0


class Held(ScriptedSource):
    """Its containers are held back by these shares, at every step."""

    def __init__(self, **shares: float) -> None:
        super().__init__(steady(1.0, 1e6), *(PodContainer("shop", "web-0", name) for name in shares))
        self.capabilities = Capabilities(history=True, throttling=True)
        self._shares = list(shares.values())

    async def read(self, ask: UsageQuery, *, progress: Progress | None = None) -> Usage:
        usage = await super().read(ask)
        return replace(usage, throttled=np.tile(self._shares, (usage.steps, 1)))


async def test_throttling_is_the_highest_of_the_containers_at_each_step() -> None:
    source = Held(web=0.1, log=0.4)
    found = await read_throttling(source, [LIMITED, FREE], seconds=120.0, step=STEP, now=NOW + 59.0)
    last = NOW // STEP * STEP
    assert found == {"web-0": tuple(ThrottlingSample(last - n * STEP, 0.4) for n in (3, 2, 1))}


async def test_throttling_is_not_queried_without_a_limit() -> None:
    source = Held(web=0.1)
    assert await read_throttling(source, [FREE], seconds=120.0, step=STEP, now=NOW) == {}
    assert source.queries == []


async def test_throttling_is_unknown_without_samples() -> None:
    source = Held(web=0.1)
    source.stop()
    assert await read_throttling(source, [LIMITED], seconds=120.0, step=STEP, now=NOW) == {}
    blind = ScriptedSource(steady(1.0, 1e6))
    assert await read_throttling(blind, [LIMITED], seconds=120.0, step=STEP, now=NOW) == {}


async def test_throttling_check_does_not_delay_a_revert_for_a_silent_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class HungSource(Held):
        async def read(self, ask: UsageQuery, *, progress: Progress | None = None) -> Usage:
            await asyncio.Event().wait()
            raise AssertionError("unreachable")

    monkeypatch.setattr(harm_signals, "QUERY_TIMEOUT", 0.01)
    assert await read_throttling(HungSource(web=0.1), [LIMITED], seconds=120.0, step=STEP, now=NOW) == {}


async def test_throttling_plugin_failure_does_not_prevent_a_revert() -> None:
    source = Held(web=0.1)
    source.failure = ZeroDivisionError("oh")
    assert await read_throttling(source, [LIMITED], seconds=120.0, step=STEP, now=NOW) == {}

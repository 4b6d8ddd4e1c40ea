"""Throttling of changed pods: queried if there is a limit, and unknown without an answer."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from actuation.builders import NOW, pod
from trimtab.actuation.decide.health import ThrottlingSample
from trimtab.kube.kinds.pods import Resources
from trimtab.operator.sizing import harm_signals
from trimtab.operator.sizing.harm_signals import read_throttling
from trimtab.testing import ScriptedSource, steady
from trimtab.usage.source import Capabilities, Progress, UsageQuery
from trimtab.usage.usage import PodContainer, Usage

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

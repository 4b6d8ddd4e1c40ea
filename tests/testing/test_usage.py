"""The scripted source keeps the contract of every usage source, and fails on request."""

import math

import pytest

from trimtab.testing import ScriptedSource, steady
from trimtab.usage.errors import SourceUnavailable
from trimtab.usage.source import UsageQuery
from trimtab.usage.usage import PodContainer
from usage.conformance import conforms

QUERY = UsageQuery(start=0.0, end=600.0, step=60.0)
PODS = (PodContainer("shop", "web-1", "main"), PodContainer("bank", "api-1", "main"))


async def test_scripted_source_keeps_the_contract_of_sources() -> None:
    await conforms(ScriptedSource(steady(0.5, 1e8, since=120.0), *PODS), QUERY)


async def test_scripted_source_returns_the_script() -> None:
    usage = await ScriptedSource(steady(0.5, 1e8, since=120.0), *PODS).read(QUERY)
    assert [math.isnan(value) for value in usage.cpu[:, 0]] == [True, True] + [False] * 8
    assert set(usage.cpu[2:, 0].tolist()) == {0.5}
    assert set(usage.memory[2:, 1].tolist()) == {1e8}


async def test_scripted_source_fails_while_it_is_stopped() -> None:
    source = ScriptedSource(steady(0.5, 1e8), *PODS)
    source.stop()
    with pytest.raises(SourceUnavailable):
        await source.read(QUERY)
    assert not (await source.check()).ok
    source.start()
    assert (await source.read(QUERY)).sample_count > 0
    assert source.queries == [QUERY, QUERY]

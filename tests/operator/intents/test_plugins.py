"""Plugins within the loop, on the real API server: they are planned with and told to act, and one that hangs is done without."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from trimtab.intents.plugins.messages import plugin_pb2 as pb
from trimtab.intents.plugins.protocol import CANDIDATES, INFO, OBSERVE, PERFORM, VERSION, listen
from trimtab.kube.rest.resources import INTENTS

Shop = Any
"""See conftest."""


class Dial:
    """An actuator plugin that halves the latency for nothing; `stuck` it does not answer while a plan is made."""

    def __init__(self) -> None:
        self.stuck = False
        self.refuses = ""
        self.performed: list[pb.PerformRequest] = []
        self.observed: list[pb.ObserveRequest] = []
        self.together: threading.Barrier | None = None
        """How many of a shop's intents it wants to see before it answers for any."""
        self.shop = ""
        self._free = threading.Event()
        self._info = pb.PluginInfo(
            type=pb.PLUGIN_TYPE_ACTUATOR, name="dial", versions=[VERSION], group="dial"
        )
        calls: list[tuple[Any, Any]] = [
            (INFO, lambda _: self._info),
            (CANDIDATES, self._candidates),
            (PERFORM, self._perform),
            (OBSERVE, self._observe),
        ]
        self._server, port = listen("127.0.0.1:0", None, calls)
        self.info = pb.PluginInfo()
        self.info.CopyFrom(self._info)
        self.info.endpoint = f"127.0.0.1:{port}"

    def _candidates(self, asked: pb.CandidatesRequest) -> list[pb.Action]:
        if self.stuck:
            self._free.wait(60)
        after = pb.State()
        after.CopyFrom(asked.state)
        after.objectives["p99"] /= 2
        return [] if asked.goal.is_release else [pb.Action(actuator="dial", after=after)]

    def _perform(self, asked: pb.PerformRequest) -> pb.PerformResponse:
        self.performed.append(asked)
        return pb.PerformResponse(blocked_reason=self.refuses)

    def _observe(self, asked: pb.ObserveRequest) -> pb.ObserveResponse:
        if self.together and asked.target.namespace == self.shop:
            self.together.wait(60)
        self.observed.append(asked)
        return pb.ObserveResponse()

    def stop(self) -> None:
        self._free.set()
        self._server.stop(None)


@pytest.fixture
def dial() -> Iterator[Dial]:
    made = Dial()
    yield made
    made.stop()


async def test_a_plugins_deed_is_planned_and_the_plugin_does_it(shop: Shop, dial: Dial) -> None:
    shop.registry.register(dial.info)
    shop.settings["plugins"] = {"timeout": "30s"}
    await shop.write_intent()
    async with shop.looked_after() as loop:
        await shop.intents_known()
        await shop.pods_run()
        status = await shop.take(loop)
    assert [each["actuator"] for each in status["plan"]["actions"]] == ["dial"]
    # Intents of other tests, whose namespaces are on their way out, are looked after as well.
    for asked in (dial.performed, dial.observed):
        (ours,) = [each.target for each in asked if each.target.namespace == shop.namespace]
        assert (ours.kind, ours.name) == ("Deployment", "web")
    assert await shop.replicas() == 1


async def test_a_plugin_that_takes_its_time_is_shown_all_intents_side_by_side(shop: Shop, dial: Dial) -> None:
    shop.registry.register(dial.info)
    dial.shop, dial.together = shop.namespace, threading.Barrier(2)
    shop.settings["plugins"] = {"timeout": "60s"}
    objective = {"name": "p99", "value": 0.15, "measuredBy": "p99"}
    await shop.deploy(name="api")
    await shop.write_intent()
    await shop.write(INTENTS, "api", targetRef={"name": "api"}, objectives=[objective])
    async with shop.looked_after() as loop:
        await shop.intents_known(2)
        await shop.take(loop)
    ours = [each.target.name for each in dial.observed if each.target.namespace == shop.namespace]
    assert sorted(ours) == ["api", "web"]


async def test_what_a_plugin_does_not_do_is_planned_for_without_it_for_a_while(
    shop: Shop, dial: Dial
) -> None:
    """Else the best plan would be the one that fails, turn after turn."""
    shop.registry.register(dial.info)
    dial.refuses = "the dial is stuck"
    shop.settings["plugins"] = {"timeout": "30s"}
    await shop.write_intent()
    async with shop.looked_after() as loop:
        await shop.intents_known()
        await shop.pods_run()
        status = await shop.take(loop)
        assert status["plan"]["blockedReason"] == "dial: the dial is stuck"
        status = await shop.take(loop)
    assert [each["actuator"] for each in status["plan"]["actions"]] == ["scaleOut"]
    assert await shop.replicas() > 1


async def test_a_plugin_that_hangs_does_not_stop_the_loop(shop: Shop, dial: Dial) -> None:
    shop.registry.register(dial.info)
    dial.stuck = True
    shop.settings["plugins"] = {"timeout": "200ms"}
    await shop.write_intent()
    async with shop.looked_after() as loop:
        await shop.intents_known()
        await shop.pods_run()
        status = await shop.take(loop)
    assert [each["actuator"] for each in status["plan"]["actions"]] == ["scaleOut"]
    assert await shop.replicas() > 1
    assert dial.performed == []

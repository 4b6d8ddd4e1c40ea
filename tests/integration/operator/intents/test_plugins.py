"""Plugins in the control loop on the real API server: they plan and act, and one that hangs is skipped."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from harness.e2e.intent_env import IntentEnv
from trimtab.intents.plugins.messages import plugin_pb2 as pb
from trimtab.intents.plugins.protocol import CANDIDATES, INFO, OBSERVE, PERFORM, VERSION, listen
from trimtab.kube.rest.resources import INTENTS


class Dial:
    """An actuator plugin that halves the latency for nothing; `stuck` it does not answer while a plan is made."""

    def __init__(self) -> None:
        self.stuck = False
        self.refuses = ""
        self.performed: list[pb.PerformRequest] = []
        self.observed: list[pb.ObserveRequest] = []
        self.together: threading.Barrier | None = None
        """The number of Intents that it needs to see before it answers."""
        self.env = ""
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
        if self.together and asked.target.namespace == self.env:
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


async def test_controller_executes_planned_action_by_plugin(env: IntentEnv, dial: Dial) -> None:
    env.registry.register(dial.info)
    env.settings["plugins"] = {"timeout": "30s"}
    await env.write_intent()
    async with env.start_controller() as loop:
        await env.wait_for_intents()
        await env.make_pods_ready()
        status = await env.run_cycles(loop)
    assert [each["actuator"] for each in status["plan"]["actions"]] == ["dial"]
    # Intents of other tests, whose namespaces are on their way out, are looked after as well.
    for asked in (dial.performed, dial.observed):
        (ours,) = [each.target for each in asked if each.target.namespace == env.namespace]
        assert (ours.kind, ours.name) == ("Deployment", "web")
    assert await env.replicas() == 1


async def test_controller_calls_slow_plugin_concurrently_for_all_intents(env: IntentEnv, dial: Dial) -> None:
    env.registry.register(dial.info)
    dial.env, dial.together = env.namespace, threading.Barrier(2)
    env.settings["plugins"] = {"timeout": "60s"}
    objective = {"name": "p99", "value": 0.15, "measuredBy": "p99"}
    await env.deploy(name="api")
    await env.write_intent()
    await env.write(INTENTS, "api", targetRef={"name": "api"}, objectives=[objective])
    async with env.start_controller() as loop:
        await env.wait_for_intents(2)
        await env.run_cycles(loop)
    ours = [each.target.name for each in dial.observed if each.target.namespace == env.namespace]
    assert sorted(ours) == ["api", "web"]


async def test_controller_plans_without_plugin_that_refused(env: IntentEnv, dial: Dial) -> None:
    """Else the best plan would be the one that fails, turn after turn."""
    env.registry.register(dial.info)
    dial.refuses = "the dial is stuck"
    env.settings["plugins"] = {"timeout": "30s"}
    await env.write_intent()
    async with env.start_controller() as loop:
        await env.wait_for_intents()
        await env.make_pods_ready()
        status = await env.run_cycles(loop)
        assert status["plan"]["blockedReason"] == "dial: the dial is stuck"
        status = await env.run_cycles(loop)
    assert [each["actuator"] for each in status["plan"]["actions"]] == ["scaleOut"]
    assert await env.replicas() > 1


async def test_controller_continues_when_plugin_hangs(env: IntentEnv, dial: Dial) -> None:
    env.registry.register(dial.info)
    dial.stuck = True
    env.settings["plugins"] = {"timeout": "200ms"}
    await env.write_intent()
    async with env.start_controller() as loop:
        await env.wait_for_intents()
        await env.make_pods_ready()
        status = await env.run_cycles(loop)
    assert [each["actuator"] for each in status["plan"]["actions"]] == ["scaleOut"]
    assert await env.replicas() > 1
    assert dial.performed == []

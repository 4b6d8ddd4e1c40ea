"""The production intent loop against situations that hurt users, in fast time."""

from __future__ import annotations

from pathlib import Path

from actuation.builders import MIB
from harness.intent_loop import ScalableWorld, bed, intent, profile
from trimtab.kube.pods import Resources

P99 = {"name": "p99", "value": 0.1, "measuredBy": "p99"}
LATENCY = profile("p99", type="latency", query='max(max_over_time(latency{app="$name"}[1m]))')


def world(cpu: int = 500, memory: int = 512, replicas: int = 2) -> ScalableWorld:
    size = Resources(cpu, cpu, memory * MIB, memory * MIB)
    return ScalableWorld(template={"web": size}, replicas=replicas)


async def test_loop_serves_other_intents_when_one_profile_has_backticks(tmp_path: Path) -> None:
    query = "sum(rate(seconds_sum{pod=~`$pods`}[1m])) / sum(rate(seconds_count{pod=~`$pods`}[1m]))"
    theirs = profile("avg", namespace="team-b", type="latency", query=query)
    other = intent("cart", namespace="team-b", target="cart-api", objectives=[{**P99, "measuredBy": "avg"}])
    answers = {"latency{": 0.2, "cpu_usage": 0.8, "working_set": 200 * MIB}
    async with bed(
        world(), [intent(objectives=[P99]), other], [LATENCY, theirs], answers, folder=tmp_path
    ) as found:
        await found.turns(8)
        assert min(filter(None, found.cpu_limits)) > 500
        assert (
            found.conditions("cart")["Ready"] == "False"
        )  # its target is not there, and nothing else is wrong


async def test_loop_serves_other_intents_when_one_cannot_be_observed(tmp_path: Path) -> None:
    broken = intent("broken", namespace="team-b", target="cart", objectives=[P99])
    answers = {"latency{": 0.2, "cpu_usage": 0.8, "working_set": 200 * MIB}
    async with bed(world(), [broken, intent(objectives=[P99])], [LATENCY], answers, folder=tmp_path) as found:
        good = found.catalog.get

        def get(key: object) -> object:
            if getattr(key, "namespace", "") == "team-b":
                raise RuntimeError("no observation of this one")
            return good(key)  # type: ignore[arg-type]

        found.catalog.get = get  # type: ignore[method-assign,assignment]
        await found.turns(8)
        assert min(filter(None, found.cpu_limits)) > 500

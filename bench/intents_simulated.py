"""Intents beside HPA and VPA, in the simulator: services that share nodes, in a day's load.

    .venv/bin/python bench/intents_simulated.py --services 200 --seeds 5

Each seed is one cluster: services with a daily rhythm and some with sudden crowds, requests equal to limits, each
wanting 99 of 100 requests answered within its objective. The same cluster runs under each regime:

- HPA + VPA: per-pod CPU is what a VPA recommends after the first hour (90th percentile and 15 %), but no less than a
  share of the first size; replicas follow the HPA's rule with its tolerance of 10 % and five minutes of stabilisation.
  Several targets and shares are tried, as one tunes by hand.
- intents: the production operator with an Intent for each service and the actuators scaleOut, scaleIn and resizeCPU, in
  simulated time; it plans every minute.

Memory is left as it is under each regime. Counted are minutes in which a service misses its objective, and cores asked
for times hours, after two hours of settling. With --scarce the nodes have less than the services need, and missed
minutes are printed by priority.
"""

import asyncio
import logging
import math
import time
from argparse import ArgumentParser
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import structlog
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from trimtab.api.quantity import GIB
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.rest.resources import INTENTS, KPI_PROFILES, Resource
from trimtab.lab.simulator.objects import SimulatedPod, SimulatedWorkload, sum_requests
from trimtab.lab.simulator.physics import UNSCHEDULED
from trimtab.lab.simulator.scenario import ContainerSpec, NodePool, Scenario, ServiceSpec, WorkloadSpec
from trimtab.lab.simulator.simulation import Simulation
from trimtab.lab.simulator.world import SimulatedWorld
from trimtab.lab.workloads import generate
from trimtab.operator.config.model import OperatorConfig
from trimtab.usage.trace import Trace
from trimtab.web.demo.intents import build_intent, build_profile

STEP = 60.0
SETTLING = 2 * 3600.0
MOST_REPLICAS = 20
P99 = 2
SETTINGS: dict[str, Any] = {
    "interval": "1m",
    "actuators": {"scaleOut": {}, "scaleIn": {}, "resizeCPU": {}},
    "guardrails": [{"maxReplicas": MOST_REPLICAS, "maxCpu": "8", "maxPriorityOutside": 1.0, "explore": True}],
}


def scene(services: int, seed: int, hours: float, headroom: float) -> Scenario:
    """Generate services that request about twice their mean usage, and nodes with `headroom` times their requests."""
    crowds = services // 5
    drawn = [
        generate(kind, count=count, seed=seed, step=STEP, duration=hours * 3600)
        for kind, count in (("diurnal_web", services - crowds), ("flash_crowd", crowds))
    ]
    demand = Trace(
        names=tuple(name.replace("_", "-") for each in drawn for name in each.names),
        start=drawn[0].start + 6 * 3600,
        step=STEP,
        cpu=np.ascontiguousarray(np.concatenate([each.cpu for each in drawn]).T),
        memory=np.ascontiguousarray(np.concatenate([each.memory for each in drawn]).T),
    )
    chance = np.random.default_rng(seed)
    found = []
    for series in range(len(demand.names)):
        mean = max(0.02, float(np.nanmean(demand.cpu[:, series])))
        millicores = max(100, round(mean * 2000))
        resources = Resources(millicores, millicores, int(GIB / 4), 64 * int(GIB))
        answers = float(chance.uniform(0.005, 0.02))
        # What 99 of 100 take on the cores that they get, times what waiting may add: some tight, some loose.
        objective = answers * 4.6 / min(1.0, millicores / 1000) * float(chance.uniform(2.5, 6.0))
        found.append(
            WorkloadSpec(
                name=f"service-{series}",
                replicas=int(chance.integers(2, 6)),
                containers=(ContainerSpec(demand_series=series, resources=resources),),
                service=ServiceSpec(cpu_seconds=answers, latency_objective=objective),
            )
        )
    wanted = sum((each.containers[0].resources.cpu_request or 0) * each.replicas for each in found) / 1000
    pool = NodePool(count=max(2, math.ceil(wanted * headroom / 16)), cpu=16.0, memory=512 * GIB, pods=250)
    return Scenario(pools=(pool,), workloads=tuple(found), demand=demand)


@dataclass
class Score:
    minutes: float = 0.0
    core_hours: float = 0.0
    by_priority: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def count(self, world: SimulatedWorld, priorities: dict[str, float]) -> None:
        if world.now - world.start <= SETTLING:
            return
        for workload in world.workloads.values():
            service = workload.spec.service
            assert service is not None
            # A service without any answer misses its objective, too.
            if not world.latencies[workload.number, P99] <= service.latency_objective:
                self.minutes += STEP / 60
                third = ("low", "middle", "high")[min(2, int(priorities[workload.spec.name] * 3))]
                self.by_priority[third] += STEP / 60
        booked = (world.nodes.allocatable_cpu - world.nodes.cpu_left).sum() / 1000
        self.core_hours += float(booked) * STEP / 3600


def resize(world: SimulatedWorld, workload: SimulatedWorkload, millicores: int) -> None:
    """Give all pods this CPU where they are, as far as their nodes have capacity, and new ones from the start."""
    (main,) = workload.containers
    sized = replace(main, resources=replace(main.resources, cpu_request=millicores, cpu_limit=millicores))
    workload.containers = (sized,)
    for pod in workload.pods.values():
        more = millicores - sum_requests(pod.applied)[0]
        if pod.node == UNSCHEDULED or world.nodes.has_capacity(pod.node, more, 0):
            pod.containers = (sized,)
            world.apply_resize(pod)


class Hpa:
    """The HPA's rule on CPU utilization, with the size that a VPA recommends once."""

    def __init__(self, world: SimulatedWorld, target: float, floor: float) -> None:
        self._world, self._target, self._floor = world, target, floor
        self._wanted: dict[str, deque[int]] = defaultdict(lambda: deque(maxlen=5))
        self._seen: dict[str, list[float]] = defaultdict(list)

    def act(self) -> None:
        world = self._world
        for key, workload in world.workloads.items():
            ready = [pod for pod in workload.pods.values() if pod.ready]
            if not ready:
                continue
            used = used_by(world, ready) / len(ready)
            name = workload.spec.name
            self._seen[name].append(used)
            if len(self._seen[name]) == int(SETTLING / STEP) // 2:
                recommended = float(np.quantile(self._seen[name], 0.9)) * 1150
                at_first = workload.containers[0].resources.cpu_request or 1
                resize(world, workload, round(max(recommended, at_first * self._floor)))
            size = (workload.containers[0].resources.cpu_request or 1) / 1000
            ratio = used / size / self._target
            wanted = workload.replicas if abs(ratio - 1) <= 0.1 else math.ceil(len(ready) * ratio)
            self._wanted[name].append(min(MOST_REPLICAS, max(1, wanted)))
            steady = max(self._wanted[name])
            if steady != workload.replicas:
                world.scale_workload(key, steady)


def build_objects(made: Scenario, priorities: dict[str, float]) -> list[tuple[Resource, Any]]:
    """Build the profile of the services' KPI, and an Intent for each service."""
    found: list[tuple[Resource, Any]] = [(KPI_PROFILES, build_profile("default"))]
    for workload in made.workloads:
        assert workload.service is not None
        intent = build_intent(workload.key, workload.service.latency_objective)
        assert intent.spec is not None
        spec = intent.spec.model_copy(update={"priority": priorities[workload.name]})
        found.append((INTENTS, replace(intent, spec=spec)))
    return found


async def run_intents(made: Scenario, seed: int, hours: float, priorities: dict[str, float]) -> Score:
    """The whole operator, as `build_operator` puts it together, with Intents and without policies."""
    score = Score()
    config = OperatorConfig.model_validate({"intents": SETTINGS})
    async with Simulation(
        made, objects=build_objects(made, priorities), seed=seed, step=STEP, config=config
    ) as simulation:
        simulation.subscribe(lambda _: score.count(simulation.world, priorities))
        await simulation.run(hours * 3600)
    return score


def used_by(world: SimulatedWorld, pods: list[SimulatedPod]) -> float:
    return float(sum(world.container_arrays.containers.cpu[row] for pod in pods for row in pod.rows))


def run(made: Scenario, seed: int, hours: float, regime: str) -> Score:
    chance = np.random.default_rng([seed, 1])
    priorities = {each.name: float(chance.uniform(0.01, 1.0)) for each in made.workloads}
    if regime == "intents":
        return asyncio.run(run_intents(made, seed, hours, priorities))
    world, score = SimulatedWorld(made, seed=seed), Score()
    hpa = None if regime == "fixed" else Hpa(world, *map(float, regime.split()))
    for _ in range(int(hours * 3600 / STEP)):
        world.step(STEP)
        score.count(world, priorities)
        if hpa:
            hpa.act()
        world.process_due(world.now)
    return score


def main() -> None:
    parser = ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--services", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="the first seed, to run some elsewhere")
    parser.add_argument("--hours", type=float, default=8.0)
    parser.add_argument("--scarce", action="store_true", help="nodes with less than is wanted")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    by_hand = ["0.5 0.5", *(f"{target} 1.0" for target in (0.4, 0.5, 0.6, 0.7))]
    regimes = ["intents", "0.5 1.0"] if options.scarce else ["intents", *by_hand, "fixed"]
    scores: dict[str, list[Score]] = defaultdict(list)
    start = time.process_time()
    for seed in range(options.first, options.first + options.seeds):
        made = scene(options.services, seed, options.hours, 0.45 if options.scarce else 2.0)
        for regime in regimes:
            score = run(made, seed, options.hours, regime)
            scores[regime].append(score)
            print(
                f"seed {seed}, {regime}: {score.minutes:.0f} min, {score.core_hours:.0f} core-hours",
                flush=True,
            )
    title = f"{options.services} services, {options.seeds} seeds, {options.hours:g} h; {time.process_time() - start:.0f} s"
    table = Table(
        "regime", "violation minutes a seed", "core-hours a seed", "low / middle / high", title=title
    )
    for regime, found in scores.items():
        thirds = (
            float(np.mean([each.by_priority[third] for each in found])) for third in ("low", "middle", "high")
        )
        table.add_row(
            regime
            if " " not in regime
            else "HPA at {}, VPA from {} of the first size".format(*regime.split()),
            f"{np.mean([each.minutes for each in found]):,.0f} (worst {max(each.minutes for each in found):,.0f})",
            f"{np.mean([each.core_hours for each in found]):,.0f}",
            " / ".join(f"{each:,.0f}" for each in thirds),
        )
    Console(width=120).print(table)


if __name__ == "__main__":
    main()

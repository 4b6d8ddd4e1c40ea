"""The duration of plans: the original planner's case, one Intent with all features, and a whole cluster at once.

    .venv/bin/python bench/planner.py
    .venv/bin/python bench/planner.py --picture docs/pictures/planner.png

The original planner takes about 8 s for its case in Go at 5,000 states (10 s through gRPC), measured on a machine like
ours. Measured here is CPU time on one core, which does not depend on what else the machine does; a loop of ten million
additions beside it shows the speed of the core.
"""

import gc
import random
import time
from argparse import ArgumentParser
from collections.abc import Callable
from pathlib import Path

import numpy as np
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from trimtab.api.kpiprofile import KPIType
from trimtab.intents.actuator import Actuator, actuator
from trimtab.intents.arbitration import PlanRequest, arbitrate
from trimtab.intents.capacity import Capacity, FreeResources
from trimtab.intents.constraints import PlanConstraints
from trimtab.intents.effects.model import EffectModels
from trimtab.intents.effects.user_models import decode_user_model
from trimtab.intents.objective import Goal, Objective
from trimtab.intents.planner import Plan, Purpose
from trimtab.intents.planners.astar import AStar
from trimtab.intents.state import ContainerSize, PodState, TargetState

GIB = 2.0**30
GO_SECONDS = 8.0
NAMES = ("scaleOut", "scaleIn", "rmPod", "resizeCPU", "resizeMemory", "cacheClass", "powerProfile")
LIMITS = PlanConstraints(max_replicas=64, max_cpu=8.0, max_memory=16 * GIB)
PODS_AN_INTENT = 20
PODS_A_NODE = 40


def original_case() -> Callable[[], Plan]:
    state = TargetState(
        objectives={"p99": 0.04, "availability": 0.998},
        pods=(PodState(name="a", availability=0.9), PodState(name="b", availability=0.98)),
        replicas=2,
        load=4800.0,
    )
    wanted = Goal(
        intent="default/case",
        objectives=(
            Objective(name="p99", value=0.03, kind=KPIType.LATENCY),
            Objective(name="availability", value=0.999, kind=KPIType.AVAILABILITY, less_is_better=False),
        ),
    )
    scaling = {
        "popt": [0.306355135, 0.193240314, 53.0816499, 0.0147372746],
        "throughputScale": [0.002143905536223758, 0.9993568283391329],
        "replicaRange": [1, 12],
    }
    effects = EffectModels(user_models={("p99", "scaling"): decode_user_model("scaling", scaling)})
    actuators = [actuator("scaleOut"), actuator("rmPod")]
    planner, limits = AStar(), PlanConstraints(max_replicas=128)
    return lambda: planner.plan(state, wanted, actuators=actuators, effects=effects, limits=limits, now=0.0)


def intent(chance: random.Random, name: str, pods: tuple[PodState, ...]) -> PlanRequest:
    """Generate a service with five objectives, most of which are met; about a third misses its latency."""
    cpu = chance.choice([0.25, 0.5, 1.0, 2.0])
    latency = chance.uniform(0.01, 0.2)
    replicas = len(pods)
    power = replicas * cpu * 10
    state = TargetState(
        objectives={
            "p99": latency,
            "p50": latency / 3,
            "availability": chance.choice([0.999, 0.9999]),
            "throughput": 100.0,
            "power": power,
        },
        pods=pods,
        replicas=replicas,
        sizes=(
            ContainerSize(
                container="app", cpu_request=cpu, cpu_limit=cpu, memory_request=GIB, memory_limit=GIB
            ),
        ),
        load=chance.uniform(10, 1000),
        cpu_used=replicas * cpu * chance.uniform(0.1, 0.9),
        memory_used=chance.uniform(0.2, 0.9) * GIB,
    )
    objectives = (
        Objective(
            name="p99", value=latency * chance.choice([0.6, 0.9, 1.1, 1.2, 1.5, 3.0]), kind=KPIType.LATENCY
        ),
        Objective(name="p50", value=latency / 3 * chance.choice([1.2, 2.0]), kind=KPIType.LATENCY),
        Objective(name="availability", value=0.999, kind=KPIType.AVAILABILITY, less_is_better=False),
        Objective(name="throughput", value=50.0, kind=KPIType.THROUGHPUT, less_is_better=False),
        Objective(name="power", value=power * chance.choice([1.5, 2.0, 4.0]), kind=KPIType.POWER),
    )
    return PlanRequest(
        goal=Goal(intent=name, objectives=objectives, priority=chance.uniform(0.01, 1.0)),
        state=state,
        constraints=LIMITS,
    )


def missing(chance: random.Random, name: str) -> PlanRequest:
    """One that misses something, so that the whole search is made."""
    replicas = chance.choice([1, 2, 3, 5, 10, 20])
    pods = tuple(
        PodState(name=f"p{at}", availability=chance.choice([0.9, 0.99, 0.999])) for at in range(replicas)
    )
    request = intent(chance, name, pods)
    latency = request.state.objectives["p99"] or 0.0
    first, *others = request.goal.objectives
    first = replace(first, value=latency * chance.choice([0.4, 0.6, 0.8, 0.95]))
    return replace(request, goal=replace(request.goal, objectives=(first, *others)))


def cluster(intents: int, seed: int) -> tuple[list[PlanRequest], Capacity]:
    """Intents of twenty pods, forty pods a node: 10,000 are 200,000 pods on 5,000 nodes."""
    chance = random.Random(seed)
    nodes = max(1, intents * PODS_AN_INTENT // PODS_A_NODE)
    requests = [
        intent(
            chance,
            f"team-{at % 200}/service-{at}",
            tuple(
                PodState(name=f"s{at}-{pod}", node=f"node-{chance.randrange(nodes)}", availability=0.999)
                for pod in range(PODS_AN_INTENT)
            ),
        )
        for at in range(intents)
    ]
    free = {
        f"node-{at}": FreeResources(chance.uniform(0, 16), chance.uniform(4, 64) * GIB, 70)
        for at in range(nodes)
    }
    quotas = {f"team-{at}": FreeResources(cpu=chance.uniform(0, 400)) for at in range(200)}
    return requests, Capacity(free, quotas)


def whole(intents: int, actuators: list[Actuator]) -> tuple[float, dict[str, int]]:
    """The CPU seconds of one cycle, and what came of it."""
    requests, capacity = cluster(intents, seed=intents)
    planner = AStar()

    def make(request: PlanRequest, limits: PlanConstraints) -> Plan:
        return planner.plan(
            request.state, request.goal, actuators=actuators, effects=request.effects, limits=limits, now=0.0
        )

    gc.collect()
    gc.freeze()
    start = time.process_time()
    decisions = arbitrate(requests, capacity=capacity, make=make, now=0.0)
    took = time.process_time() - start
    gc.unfreeze()
    came = {purpose.value: 0 for purpose in Purpose}
    for decision in decisions.values():
        came[decision.plan.purpose.value] += 1
    return took, {"waits": sum(each.waiting_since is not None for each in decisions.values()), **came}


def times(action: Callable[[], object], repeats: int) -> list[float]:
    found = []
    for _ in range(repeats):
        start = time.process_time()
        action()
        found.append(time.process_time() - start)
    return found


def core() -> float:
    """Seconds for ten million additions: about 0.45 on an idle core of a server of today."""

    def loop() -> int:
        total = 0
        for at in range(10**7):
            total += at
        return total

    return min(times(loop, 3))


def picture(path: Path, growth: list[tuple[int, float]]) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 3.6), dpi=120)
    many, took = zip(*growth, strict=True)
    axes.loglog(many, took, "o-", label="one cycle, measured")
    axes.loglog(many, [took[0] / many[0] * each for each in many], ":", color="grey", label="in proportion")
    axes.axhline(60, color="tab:red", linewidth=0.8)
    axes.text(many[0], 66, "60 s", color="tab:red", fontsize=8)
    axes.set_xlabel("intents (20 pods each, 40 pods a node)")
    axes.set_ylabel("CPU seconds, one core")
    axes.set_title("Planning a whole cluster in one cycle", fontsize=10)
    axes.legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path)


def main() -> None:
    parser = ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--picture", type=Path, help="draw the growth with the number of intents")
    parser.add_argument("--most", type=int, default=10_000, help="intents of the largest cluster")
    options = parser.parse_args()
    actuators = [actuator(name) for name in NAMES]
    planner = AStar()
    case = original_case()
    case()
    table = Table(
        "what", "measured", "aim", title=f"Plans, CPU time; ten million additions take {core():.2f} s"
    )
    typical = float(np.median(times(case, 200)))
    table.add_row(
        "the original planner's case",
        f"{typical * 1e3:.2f} ms, {GO_SECONDS / typical:,.0f} times as fast",
        "500 times",
    )
    chance = random.Random(1)
    requests = [missing(chance, f"a/{at}") for at in range(1000)]

    def plan_one(request: PlanRequest) -> Plan:
        return planner.plan(
            request.state,
            request.goal,
            actuators=actuators,
            effects=request.effects,
            limits=request.constraints,
            now=0.0,
        )

    plan_one(requests[0])
    each = [times(lambda request=request: plan_one(request), 1)[0] for request in requests]  # type: ignore[misc]
    table.add_row(
        "one intent that misses, 5 objectives, 6 groups of actuators",
        f"p50 {np.quantile(each, 0.5) * 1e3:.1f} ms, p99 {np.quantile(each, 0.99) * 1e3:.1f} ms",
        "p99 20 ms",
    )
    growth = []
    for intents in sorted({100, 300, 1000, 3000, options.most}):
        took, came = whole(intents, actuators)
        growth.append((intents, took))
        counts = ", ".join(f"{count} {name.lower()}" for name, count in came.items() if count)
        table.add_row(
            f"{intents:,} intents at once: {counts}", f"{took:.1f} s", "60 s" if intents == 10_000 else ""
        )
    Console(width=140).print(table)
    if options.picture:
        picture(options.picture, growth)


if __name__ == "__main__":
    main()

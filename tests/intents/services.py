"""Services to plan for: a web service with what is usually wanted of one, and the planner with all its actuators."""

from msgspec.structs import replace

from trimtab.api.kpiprofile import KPIType
from trimtab.intents.actuator import Actuator, actuator
from trimtab.intents.constraints import PlanConstraints
from trimtab.intents.effects.model import EffectModels
from trimtab.intents.objective import Goal, Objective
from trimtab.intents.planner import Plan, SearchBudget
from trimtab.intents.planners.astar import AStar
from trimtab.intents.state import ContainerSize, PodState, TargetState

GIB = 2.0**30
ALL = ("scaleOut", "scaleIn", "rmPod", "resizeCPU", "resizeMemory", "cacheClass", "powerProfile")


def latency(value: float, name: str = "p99", *, tolerance: float = 0.0) -> Objective:
    return Objective(
        name=name, value=value, kind=KPIType.LATENCY, tolerance=tolerance, measured_by=f"default/{name}"
    )


def availability(value: float) -> Objective:
    return Objective(name="availability", value=value, kind=KPIType.AVAILABILITY, less_is_better=False)


def throughput(value: float) -> Objective:
    return Objective(name="throughput", value=value, kind=KPIType.THROUGHPUT, less_is_better=False)


def power(value: float) -> Objective:
    return Objective(name="power", value=value, kind=KPIType.POWER)


def goal(*objectives: Objective, priority: float = 0.5, intent: str = "default/shop") -> Goal:
    return Goal(intent=intent, objectives=objectives, priority=priority)


def service(
    *,
    p99: float | None = 0.1,
    replicas: int = 2,
    cpu: float = 1.0,
    memory: float = GIB,
    used: float | None = None,
    memory_used: float | None = 0.4 * GIB,
    load: float | None = 100.0,
    pods: tuple[float, ...] | None = None,
    **objectives: float | None,
) -> TargetState:
    """`used` is the share of their CPU that the pods use; `pods` how available each is."""
    return TargetState(
        objectives={"p99": p99, **objectives},
        pods=tuple(
            PodState(name=f"shop-{at}", node=f"node-{at}", availability=each)
            for at, each in enumerate(pods or (0.999,) * replicas)
        ),
        replicas=replicas,
        sizes=(
            ContainerSize(
                container="app",
                cpu_request=cpu,
                cpu_limit=cpu,
                memory_request=memory,
                memory_limit=memory,
            ),
            ContainerSize(container="proxy", cpu_request=0.1, memory_request=GIB / 8),
        ),
        load=load,
        cpu_used=None if used is None else used * cpu * replicas,
        memory_used=memory_used,
    )


def actuators(*names: str) -> list[Actuator]:
    return [actuator(name) for name in names or ALL]


def make_plan(
    state: TargetState,
    wanted: Goal,
    *,
    by: tuple[str, ...] = ALL,
    effects: EffectModels | None = None,
    limits: PlanConstraints | None = None,
    now: float = 0.0,
    budget: SearchBudget | None = None,
    planner: AStar | None = None,
) -> Plan:
    return (planner or AStar()).plan(
        state,
        wanted,
        actuators=actuators(*by),
        effects=effects or EffectModels(),
        limits=limits or PlanConstraints(),
        now=now,
        budget=budget,
    )


def done(plan: Plan, state: TargetState) -> TargetState:
    """The state that a plan leads to, as if it had been measured."""
    return replace(plan.actions[-1].after, log_spread={}) if plan.actions else state

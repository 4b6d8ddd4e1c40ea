"""Building of the planner's state of a workload from pods and Prometheus readings. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from trimtab.actuation.effective_size import PodSync, effective_sizes
from trimtab.actuation.pod_options import most_common_options
from trimtab.actuation.resources import NO_LIMITS, SizeLimits
from trimtab.api.intent import IntentSpec
from trimtab.intents.kpi.availability import PodHistory
from trimtab.intents.kpi.measurement import KpiDefinition, KpiReading
from trimtab.intents.kpi.query import CPU, CPU_PODS, LOAD, MEMORY, MEMORY_MEDIAN
from trimtab.intents.objective import Goal, Objective
from trimtab.intents.state import ContainerSize, PodState, TargetState
from trimtab.kube.kinds.pods import Container, Pod, Resources
from trimtab.kube.kinds.workloads import Workload
from trimtab.operator.config.intents import IntentSettings


def find_main_container(containers: Sequence[Container]) -> str:
    """Return the main container: the one with the largest CPU request that is not a sidecar."""
    mains = [each for each in containers if each.role == "main"]
    return max(mains, key=lambda each: each.resources.cpu_request or 0).name if mains else ""


def build_state(
    workload: Workload,
    pods: Sequence[Pod],
    history: PodHistory,
    readings: Mapping[str, KpiReading],
    extra: Mapping[str, float | None],
    *,
    main: str,
    excluded_nodes: frozenset[str] = frozenset(),
    limits: SizeLimits = NO_LIMITS,
) -> TargetState:
    """Build the state of a workload from its pods, history, readings and excluded nodes."""
    sizes = effective_sizes(workload, pods, PodSync(limits=limits))
    past = history.total
    options = most_common_options(pods)
    return TargetState(
        objectives={name: reading.value for name, reading in readings.items()},
        pods=tuple(
            PodState(
                name=pod.name,
                node=pod.node,
                state="Running" if pod.ready else _not_ready_reason(pod),
                qos=pod.qos_class,
                availability=history.availability(pod.uid),
            )
            for pod in sorted(pods, key=lambda pod: pod.name)
        ),
        replicas=workload.replicas,
        unplaced=_count_unplaced(workload, pods),
        sizes=tuple(_to_size(name, resources) for name, resources in sizes.items()),
        main=list(sizes).index(main) if main in sizes else len(sizes),
        load=extra.get(LOAD),
        cpu_used=_cpu_used(pods, extra),
        memory_used=extra.get(MEMORY),
        memory_median=extra.get(MEMORY_MEDIAN),
        cache_class=options.cache_class,
        power_profile=options.power_profile,
        excluded_nodes=excluded_nodes,
        data={"history": {"up": past.up, "down": past.down}},
    )


def _cpu_used(pods: Sequence[Pod], extra: Mapping[str, float | None]) -> float | None:
    """Return the CPU usage of all pods; None if samples of some running pods are missing, such as while a node is not
    scraped.

    The sum of the others would look like a lower usage.
    """
    sampled = extra.get(CPU_PODS)
    running = sum(pod.ready for pod in pods)
    return None if sampled is None or sampled < running else extra.get(CPU)


def _count_unplaced(workload: Workload, pods: Sequence[Pod]) -> int:
    """Return the number of unscheduled pods, including those not created; pods of a job complete one by one."""
    placed = sum(bool(pod.node or pod.ready) for pod in pods)
    wanted = workload.replicas if workload.is_long_running else len(pods)
    return max(0, wanted - placed)


def _not_ready_reason(pod: Pod) -> str:
    return (
        next((state.waiting_reason for state in pod.container_statuses if state.waiting_reason), "")
        or "NotReady"
    )


def _to_size(container: str, resources: Resources) -> ContainerSize:
    def cores(amount: int | None) -> float | None:
        return None if amount is None else amount / 1000

    def size(amount: int | None) -> float | None:
        return None if amount is None else float(amount)

    return ContainerSize(
        container=container,
        cpu_request=cores(resources.cpu_request),
        cpu_limit=cores(resources.cpu_limit),
        memory_request=size(resources.memory_request),
        memory_limit=size(resources.memory_limit),
    )


def build_goal(
    name: str,
    spec: IntentSpec,
    *,
    namespace: str,
    resolve_kpi: Callable[[str], KpiDefinition],
    settings: IntentSettings,
    target_uid: str = "",
) -> Goal:
    """Build the goal of an Intent; `resolve_kpi` returns the definition of a KPIProfile."""
    objectives = []
    for each in spec.objectives:
        definition = resolve_kpi(each.measured_by)
        objectives.append(
            Objective(
                name=each.name,
                value=each.value,
                kind=definition.type,
                less_is_better=definition.less_is_better,
                tolerance=each.tolerance,
                weight=settings.objective_weights.get(definition.type, 1.0),
                measured_by=each.measured_by,
                unit=definition.unit,
                description=definition.description,
            )
        )
    guardrails = settings.guardrails_for(namespace)
    most = min((each.max_priority for each in guardrails), default=1.0)
    outside = min((each.max_priority_outside for each in guardrails), default=0.0)
    return Goal(
        intent=name,
        target=f"{spec.target_ref.kind}/{spec.target_ref.name} {target_uid}",
        objectives=tuple(objectives),
        priority=min(spec.priority, most),
        priority_outside=min(spec.priority, most, outside),
    )

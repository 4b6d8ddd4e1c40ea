"""A workload and its pods as the planner sees them: one state, from what the cluster and Prometheus tell. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from trimtab.actuation.effective_size import effective_sizes
from trimtab.actuation.pod_options import options_of
from trimtab.api.intent import IntentSpec
from trimtab.intents.kpi.availability import PodHistory
from trimtab.intents.kpi.measurement import LOAD, Measure, Reading
from trimtab.intents.objective import Goal, Objective
from trimtab.intents.state import PodState, Size, State
from trimtab.kube.kinds.pods import Container, Pod, Resources
from trimtab.kube.kinds.workloads import Workload
from trimtab.operator.config.intents import IntentSettings

CPU, CPU_PODS, MEMORY, MEMORY_MEDIAN = "cpu", "cpu pods", "memory", "median memory"
"""What is known of a workload besides its objectives: the CPU that its pods use, of how many pods that is, the peak of the
pod that uses most memory, and of the median one."""


def main_container(containers: Sequence[Container]) -> str:
    """The container that does the work: of those that are no sidecars the one that asks for most CPU."""
    mains = [each for each in containers if each.role == "main"]
    return max(mains, key=lambda each: each.resources.cpu_request or 0).name if mains else ""


def state_of(
    workload: Workload,
    pods: Sequence[Pod],
    history: PodHistory,
    readings: Mapping[str, Reading],
    more: Mapping[str, float | None],
    *,
    main: str,
    closed: frozenset[str] = frozenset(),
) -> State:
    """The state of a workload, given how its objectives fare, what else is known of it, and which nodes are closed to it."""
    sizes = effective_sizes(workload, pods)
    past = history.whole
    options = options_of(pods)
    return State(
        objectives={name: reading.value for name, reading in readings.items()},
        pods=tuple(
            PodState(
                name=pod.name,
                node=pod.node,
                state="Running" if pod.ready else _why_not(pod),
                qos=pod.qos,
                availability=history.availability(pod.uid),
            )
            for pod in sorted(pods, key=lambda pod: pod.name)
        ),
        replicas=workload.replicas,
        unplaced=_unplaced(workload, pods),
        sizes=tuple(_size(name, resources) for name, resources in sizes.items()),
        main=list(sizes).index(main) if main in sizes else len(sizes),
        load=more.get(LOAD),
        cpu_used=_cpu_used(pods, more),
        memory_used=more.get(MEMORY),
        memory_usual=more.get(MEMORY_MEDIAN),
        cache_class=options.cache_class,
        power_profile=options.power_profile,
        closed=closed,
        data={"history": {"up": past.up, "down": past.down}},
    )


def _cpu_used(pods: Sequence[Pod], more: Mapping[str, float | None]) -> float | None:
    """Return what all pods use; None where samples of some that run are missing, as while one node is not scraped.

    The sum of the others would look like a workload that uses less than it does.
    """
    sampled = more.get(CPU_PODS)
    running = sum(pod.ready for pod in pods)
    return None if sampled is None or sampled < running else more.get(CPU)


def _unplaced(workload: Workload, pods: Sequence[Pod]) -> int:
    """How many pods have no place, those that are wanted and not made included; of a job, pods are done one by one."""
    placed = sum(bool(pod.node or pod.ready) for pod in pods)
    wanted = workload.replicas if workload.runs_on else len(pods)
    return max(0, wanted - placed)


def _why_not(pod: Pod) -> str:
    return next((state.waiting for state in pod.states if state.waiting), "") or "NotReady"


def _size(container: str, resources: Resources) -> Size:
    def cores(amount: int | None) -> float | None:
        return None if amount is None else amount / 1000

    def size(amount: int | None) -> float | None:
        return None if amount is None else float(amount)

    return Size(
        container=container,
        cpu_request=cores(resources.cpu_request),
        cpu_limit=cores(resources.cpu_limit),
        memory_request=size(resources.memory_request),
        memory_limit=size(resources.memory_limit),
    )


def goal_of(
    name: str,
    spec: IntentSpec,
    *,
    namespace: str,
    measure: Callable[[str], Measure],
    settings: IntentSettings,
    target_uid: str = "",
) -> Goal:
    """Make the goal of an intent by its full name; `measure` says how what a KPIProfile names is measured."""
    objectives = []
    for each in spec.objectives:
        how = measure(each.measured_by)
        objectives.append(
            Objective(
                name=each.name,
                value=each.value,
                kind=how.type,
                less_is_better=how.less_is_better,
                tolerance=each.tolerance,
                weight=settings.utilities.get(how.type, 1.0),
                measured_by=each.measured_by,
            )
        )
    most = min((each.max_priority for each in settings.guardrails_of(namespace)), default=1.0)
    return Goal(
        intent=name,
        target=f"{spec.target_ref.kind}/{spec.target_ref.name} {target_uid}",
        objectives=tuple(objectives),
        priority=min(spec.priority, most),
    )

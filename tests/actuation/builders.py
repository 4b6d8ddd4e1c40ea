"""Builders of workloads, pods and desired changes."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, cast

from hypothesis import strategies as st

from trimtab.actuation.actions import (
    ChangeAction,
    EmitEvent,
    EvictPod,
    PatchTemplate,
    ResizePod,
    Skip,
    Wait,
    WriteAnnotations,
)
from trimtab.actuation.change_annotations import ChangeAnnotations, OngoingChange, encode_change_annotations
from trimtab.actuation.decide.health import HarmSignals, ThrottlingSample
from trimtab.actuation.decide.observation import DesiredChange, LocalObservations, Observation
from trimtab.actuation.decide.transitions import next_actions
from trimtab.actuation.resources import Sizes
from trimtab.api.optimizationpolicy import UpdateStrategy
from trimtab.kube.kinds.pods import (
    Container,
    ContainerStatus,
    ContainerTermination,
    Pod,
    PodResize,
    Resources,
)
from trimtab.kube.kinds.workloads import Workload
from trimtab.kube.rest.resources import DEPLOYMENTS, Resource

MIB = 1 << 20
NOW = 1_800_000_000
NAMESPACE = "shop"

SMALL = Resources(100, None, 64 * MIB, 256 * MIB)
LARGE = Resources(400, None, 128 * MIB, 256 * MIB)


def container(name: str = "web", resources: Resources = SMALL, **flags: Any) -> Container:
    return Container(name, "main", resources, **flags)


def pod(
    name: str = "web-0",
    *,
    sizes: Sizes | None = None,
    applied: Sizes | None = None,
    created: int = NOW - 86_400,
    ready: bool = True,
    node: str = "node-1",
    resize: PodResize | None = None,
    exits: Mapping[str, ContainerTermination] | None = None,
    phase: str = "Running",
    restarts_when_resized: bool = False,
    waiting: str = "",
    ended: bool = False,
    version: int = 1,
) -> Pod:
    sizes = sizes or {"web": SMALL}
    effective = applied or sizes
    return Pod(
        namespace=NAMESPACE,
        name=name,
        uid=f"uid-{name}",
        version=version,
        node=node,
        phase=phase,
        qos_class="Burstable",
        ready=ready,
        deleting=False,
        priority=0,
        created=created,
        started=created,
        owner=None,
        labels=(),
        annotations=(),
        containers=tuple(
            Container(each, "main", resources, restarts_when_resized, restarts_when_resized)
            for each, resources in sizes.items()
        ),
        container_statuses=tuple(
            ContainerStatus(
                name=each,
                ready=ready,
                restarts=0,
                waiting_reason=waiting,
                actual_resources=effective[each],
                last_termination=(exits or {}).get(each),
                is_terminated=ended,
            )
            for each in sizes
        ),
        resize=resize,
    )


def workload(
    *,
    resource: Resource = DEPLOYMENTS,
    template: Sizes | None = None,
    change_annotations: ChangeAnnotations | None = None,
    annotations: Mapping[str, str] | None = None,
    replicas: int = 1,
    update: str = "RollingUpdate",
    rolling: bool = False,
    **flags: Any,
) -> Workload:
    written = dict(annotations or {}) | (
        encode_change_annotations(change_annotations, uid="uid-web") if change_annotations else {}
    )
    facts: dict[str, Any] = {
        "resource": resource,
        "namespace": NAMESPACE,
        "name": "web",
        "uid": "uid-web",
        "version": 1,
        "generation": 1,
        "created": NOW - 86_400,
        "deleting": False,
        "owner": None,
        "labels": (),
        "annotations": tuple(sorted(written.items())),
        "containers": tuple(container(name, each) for name, each in (template or {"web": SMALL}).items()),
        "selector": "app=web",
        "replicas": replicas,
        "updated_replicas": replicas,
        "ready_replicas": replicas,
        "update_strategy": update,
        "is_spec_observed": True,
        "is_rolling_out": rolling,
        "paused": False,
        "finished": False,
    }
    return Workload(**facts | flags)


class ChangeFacts(TypedDict, total=False):
    """Fields of a desired change that its policy does not set."""

    is_urgent: bool
    usage_error: str
    blocked_reason: str
    needed_memory: Mapping[str, int]
    harm_signals: HarmSignals
    excluded_containers: frozenset[str]
    memory_limits_fixed: bool
    hold_reason: str
    computed_from: Sizes | None


def desired_change(
    sizes: Sizes | None = None, *, can_resize_in_place: bool = True, **terms: Any
) -> DesiredChange:
    """Ask for a larger size on a cluster that resizes in place; other keywords are fields of the update strategy."""
    facts = cast(
        "ChangeFacts", {name: terms.pop(name) for name in ChangeFacts.__annotations__ if name in terms}
    )
    return DesiredChange(
        sizes={"web": LARGE} if sizes is None else sizes,
        strategy=UpdateStrategy(**terms),  # pydantic rejects unknown fields
        can_resize_in_place=can_resize_in_place,
        **facts,
    )


def observation(
    wanted: DesiredChange | None = None,
    *,
    pods: Sequence[Pod] | None = None,
    on: Workload | None = None,
    now: int = NOW,
    local: LocalObservations | None = None,
) -> Observation:
    pods = [pod()] if pods is None else pods
    return Observation(
        workload=on or workload(replicas=len(pods)),
        pods=pods,
        desired=wanted or desired_change(),
        now=now,
        local=local or LocalObservations(),
    )


def writes(actions: Sequence[ChangeAction]) -> list[ChangeAction]:
    """Return the actions that change something in the cluster."""
    return [
        action
        for action in actions
        if isinstance(action, ResizePod | EvictPod | PatchTemplate | WriteAnnotations)
    ]


def start_change(observation: Observation) -> OngoingChange:
    """Return the change that starts here."""
    (recorded,) = [action for action in next_actions(observation) if isinstance(action, WriteAnnotations)]
    assert recorded.annotations.change is not None
    return recorded.annotations.change


def wait_reason(actions: Sequence[ChangeAction]) -> str:
    """Return the reason why nothing is done."""
    assert writes(actions) == []
    (rest,) = [action for action in actions if isinstance(action, Wait | Skip)]
    return rest.reason


def warnings(actions: Sequence[ChangeAction]) -> list[str]:
    return [
        action.message for action in actions if isinstance(action, EmitEvent) and action.type == "Warning"
    ]


def harm_signals(
    *,
    throttled: Mapping[str, Sequence[ThrottlingSample]] | None = None,
    guardrails: Mapping[str, bool | None] | None = None,
) -> HarmSignals:
    return HarmSignals(throttled=throttled or {}, guardrails=guardrails or {})


amounts = st.integers(10, 4000)
bytes_of_memory = st.integers(32, 4096).map(lambda mebibytes: mebibytes * MIB)


def some_resources() -> st.SearchStrategy[Resources]:
    """Requests, with limits at or above them where there are any."""
    return st.builds(
        lambda cpu, more_cpu, memory, more_memory: Resources(
            cpu, more_cpu and cpu + more_cpu, memory, more_memory and memory + more_memory
        ),
        amounts,
        st.none() | amounts,
        bytes_of_memory,
        st.none() | bytes_of_memory,
    )

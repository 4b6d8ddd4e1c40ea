"""Build and write the status of VerticalPodAutoscalers that name `trimtab` as their recommender.

The status is a pure function of a strategy's proposals and the VPA's own resource policy, with the rules of the VPA's own
recommender: `*` for every container without a policy of its own, none if the mode is Off, only the controlled resources,
minAllowed before maxAllowed. If limits stay (RequestsOnly), a request stays below its limit too. Without a proposal the
previous recommendation stays, within the present policy: no data, no action.

The VPA's updater or an OptimizationPolicy applies it. `recommender.vpa_checkpoints` reads the VPA's checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import structlog

from trimtab.api.meta import Document, build_condition, set_conditions
from trimtab.api.quantity import Quantity, ResourceName, format_exact
from trimtab.kube.errors import Conflict, NotFound
from trimtab.kube.kinds.pods import Container
from trimtab.kube.kinds.vpas import ContainerPolicy, VerticalPodAutoscaler
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.kube.rest.client import Object, PatchType
from trimtab.kube.rest.object_client import ObjectClient
from trimtab.kube.rest.resources import VPAS
from trimtab.operator.cluster_state import ClusterState
from trimtab.sizing.guards.requests import round_up
from trimtab.sizing.proposal import Proposal, ResourceTarget

log = structlog.get_logger(__name__)

RECOMMENDER = "trimtab"
"""Trimtab's name in `spec.recommenders`."""

_OWNED_CONDITIONS = {"RecommendationProvided", "NoPodsMatched", "ConfigUnsupported"}
_MAX_AMOUNT = 10**14
"""The maximum amounts of a VPA, in millicores and bytes."""


def is_trimtab_vpa(vpa: VerticalPodAutoscaler) -> bool:
    return RECOMMENDER in vpa.recommenders


def build_vpa_status(
    vpa: VerticalPodAutoscaler,
    workload: Workload | None,
    *,
    proposals: Mapping[str, Proposal],
    pods: int,
    now: float,
) -> Object | None:
    """Return the status that a VPA should have from the proposals for its target's containers; None if it is unchanged.

    `workload` is its target, None where there is no such workload; `pods` is how many of it run.
    """
    old: Object = msgspec.json.decode(vpa.status) if vpa.status else {}
    found = _build_recommendations(vpa, old, workload, proposals)
    status: Object = {
        "conditions": _merge_conditions(
            old.get("conditions") or (),
            _build_conditions(vpa, workload, provided=bool(found), pods=pods),
            now,
        ),
        **({"recommendation": {"containerRecommendations": found}} if found else {}),
    }
    # An older CRD drops observedGeneration: a field that the API server does not keep is no reason to write again.
    observed = old.pop("observedGeneration", vpa.generation)
    if status == old and observed == vpa.generation:
        return None
    return {**status, "observedGeneration": vpa.generation}


async def update_vpa_statuses(
    client: ObjectClient,
    cluster_state: ClusterState,
    key: WorkloadKey,
    *,
    proposals: Callable[[VerticalPodAutoscaler], Mapping[str, Proposal]],
    now: float,
) -> None:
    """Write the proposals for a workload's containers to every VPA of it that names Trimtab."""
    workload = cluster_state.get(key)
    pods = len(cluster_state.list_pods(workload)) if workload else 0
    for vpa in filter(is_trimtab_vpa, cluster_state.list_vpas(key)):
        if status := build_vpa_status(vpa, workload, proposals=proposals(vpa), pods=pods, now=now):
            await write_vpa_status(client, vpa, status)


async def write_vpa_status(client: ObjectClient, vpa: VerticalPodAutoscaler, status: Object) -> None:
    """Write a VPA's new status; ignore a deleted one."""
    try:
        await client.patch(
            VPAS,
            vpa.name,
            # A merge patch keeps fields that it does not name.
            {"metadata": {"uid": vpa.uid}, "status": {"recommendation": None, **status}},
            type=PatchType.MERGE,
            namespace=vpa.namespace,
            subresource="status",
        )
    except (NotFound, Conflict):  # deleted, or recreated with the same name
        log.info("vpa.not_found", vpa=f"{vpa.namespace}/{vpa.name}")


# What it recommends


def _build_recommendations(
    vpa: VerticalPodAutoscaler, old: Object, workload: Workload | None, proposals: Mapping[str, Proposal]
) -> list[Object]:
    before = {
        entry["containerName"]: entry
        for entry in (old.get("recommendation") or {}).get("containerRecommendations") or ()
    }
    containers = {container.name: container for container in workload.containers} if workload else {}
    names = {*before, *proposals}
    if containers:  # the template of a custom kind may be elsewhere
        names &= containers.keys()
    found = []
    for name in sorted(names):
        policy = vpa.container_policy(name)
        asked = _ResourceTargets.choose(proposals.get(name), before.get(name, {}), restarts=vpa.updates_pods)
        entry = _build_entry(asked, policy, containers.get(name))
        if not policy.is_off and entry["target"]:
            found.append({"containerName": name, **entry})
    return found


class _ResourceTargets(NamedTuple):
    """Return the targets of a container by resource."""

    cpu: ResourceTarget
    memory: ResourceTarget

    @classmethod
    def choose(
        cls, proposal: Proposal | None, before: Mapping[str, Any], *, restarts: bool
    ) -> _ResourceTargets:
        # The VPA's updater follows every number, and would release at night what the morning needs.
        cpu, memory = (
            (
                proposal.cpu.raise_to_recent(restarts=restarts),
                proposal.memory.raise_to_recent(restarts=restarts),
            )
            if proposal
            else (ResourceTarget(), ResourceTarget())
        )
        return cls(
            cpu if math.isfinite(cpu.target) else _read_previous(before, "cpu"),
            memory if math.isfinite(memory.target) else _read_previous(before, "memory"),
        )


def _read_previous(entry: Mapping[str, Any], resource: ResourceName) -> ResourceTarget:
    def read(*fields: str) -> float:
        text = next(
            (entry[field][resource] for field in fields if resource in (entry.get(field) or {})), None
        )
        if text is None:
            return math.nan
        quantity = Quantity.parse(str(text))
        return quantity.millicores if resource == "cpu" else quantity.bytes

    return ResourceTarget(read("uncappedTarget", "target"), read("lowerBound"), read("upperBound"))


def _build_entry(
    targets: _ResourceTargets, policy: ContainerPolicy, container: Container | None
) -> dict[str, dict[str, str]]:
    """Return the four amounts of one container; a resource that is unknown or not controlled is in none of them."""
    entry: dict[str, dict[str, str]] = {
        "target": {},
        "lowerBound": {},
        "upperBound": {},
        "uncappedTarget": {},
    }
    resource: ResourceName
    for resource in ("cpu", "memory"):
        ask: ResourceTarget = getattr(targets, resource)
        # As policies round, so that a workload with both has one target.
        ask = ResourceTarget(
            _round_up(resource, ask.target), _round_up(resource, ask.lower), _round_up(resource, ask.upper)
        )
        if resource not in policy.controlled_resources or not math.isfinite(ask.target):
            continue
        least, most = getattr(policy.min_allowed, resource), getattr(policy.max_allowed, resource)
        if not policy.controls_limits and container is not None:
            limit = getattr(container.resources, f"{resource}_limit")
            most = min((one for one in (most, limit) if one is not None), default=None)
        entry["uncappedTarget"][resource] = _format_amount(resource, ask.target)
        for field, amount in (("target", ask.target), ("lowerBound", ask.lower), ("upperBound", ask.upper)):
            if not math.isnan(amount):
                entry[field][resource] = _format_amount(resource, _clamp(amount, least, most))
    return entry


def _clamp(amount: float, least: int | None, most: int | None) -> float:
    if least is not None and amount < least:
        amount = least
    return most if most is not None and amount > most else amount


def _round_up(resource: ResourceName, amount: float) -> float:
    """Round up to an amount that is easy to read."""
    return round_up(resource, math.ceil(amount)) if math.isfinite(amount) else amount


def _format_amount(resource: ResourceName, amount: float) -> str:
    return format_exact(resource, round(min(max(amount, 0.0), _MAX_AMOUNT)))


# Its conditions


def _build_conditions(
    vpa: VerticalPodAutoscaler, workload: Workload | None, *, provided: bool, pods: int
) -> list[Document]:
    target = f"{vpa.target.kind} {vpa.target.name}"
    problems = []
    if workload is None:
        reason, message = "TargetNotFound", f"there is no workload {target}, or its kind cannot be read"
        problems = [build_condition("ConfigUnsupported", holds=True, reason=reason, message=message)]
    elif not pods:
        reason, message = "NoPodsMatched", f"{target} has no pods"
        problems = [build_condition("NoPodsMatched", holds=True, reason=reason, message=message)]
    else:
        reason, message = "NotEnoughData", f"there is not enough usage of {target} yet"
    if provided:
        return [*problems, build_condition("RecommendationProvided", holds=True)]
    return [
        *problems,
        build_condition("RecommendationProvided", holds=False, reason=reason, message=message),
    ]


def _merge_conditions(before: Sequence[Object], wanted: Iterable[Document], now: float) -> list[Object]:
    """Return the conditions by type, including those of other writers."""
    others = [condition for condition in before if condition["type"] not in _OWNED_CONDITIONS]
    return sorted(
        [*others, *set_conditions(wanted, before, now=now)], key=lambda condition: str(condition["type"])
    )

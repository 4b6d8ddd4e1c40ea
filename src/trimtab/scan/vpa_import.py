"""What a cluster's VerticalPodAutoscalers ask for and their recommender has learned, as policies and state of ours.

A VPA names one workload, a policy selects by labels: of the labels of the workload those are taken that no other of
its kind and namespace has. What a policy cannot say is not dropped in silence: it is among the `notes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any

from trimtab.api import API_VERSION, OptimizationPolicy
from trimtab.api.errors import InvalidObjectError
from trimtab.api.quantity import Quantity
from trimtab.kube.kinds.vpas import EVERY_CONTAINER, ContainerPolicy, VerticalPodAutoscaler
from trimtab.kube.kinds.workloads import Workload, WorkloadKey, qualify_kind
from trimtab.kube.rest.client import Object
from trimtab.recommender.cohort import StrategyCohort, StrategySpec
from trimtab.recommender.vpa_checkpoints import CheckpointKey, restore_checkpoints
from trimtab.sizing.strategies.vpa import VpaStrategy
from trimtab.usage.pod_ownership import WorkloadContainer

STRATEGY = VpaStrategy.name
STRATEGY_SPEC = StrategySpec.from_settings(STRATEGY, {})

MAX_BOOST = 10
"""What a policy takes at the most."""
POLICY_LABEL = "trimtab.io/policy"
"""The label by which a workload is selected that has none of its own to be told by."""

RESOURCES = ("cpu", "memory")
_IDENTIFYING_LABELS = ("app.kubernetes.io/instance", "app.kubernetes.io/name", "app", "k8s-app", "name")
_VOLATILE_LABELS = {"app.kubernetes.io/version", "helm.sh/chart", "version", "pod-template-hash"}
_UNSUPPORTED_FIELDS = {
    "updatePolicy": ("minReplicas", "evictionRequirements", "evictAfterOOMSeconds"),
    "containerPolicies": (
        "oomBumpUpRatio",
        "oomMinBumpUp",
        "memoryAggregationIntervalSeconds",
        "memoryAggregationIntervalCount",
        "startupBoost",
    ),
}
"""Fields of a VPA that a policy has none for."""
_MODES: Mapping[str, tuple[str, dict[str, bool]]] = {
    "Off": ("Recommend", {}),
    "Initial": ("Recommend", {}),
    "Recreate": ("Auto", {"allowInPlaceResize": False, "allowRecreate": True}),
    "Auto": ("Auto", {"allowRecreate": True}),
    "InPlaceOrRecreate": ("Auto", {"allowRecreate": True}),
    "InPlace": ("Auto", {}),
}


@dataclass(frozen=True, slots=True)
class ImportedPolicy:
    """A VPA as a policy; None where it cannot be one, and then the notes say why."""

    vpa: VerticalPodAutoscaler
    policy: Object | None
    notes: tuple[str, ...]


def convert_vpa(
    vpa: VerticalPodAutoscaler,
    spec: Object,
    workloads: Sequence[Workload],
    owned: Mapping[WorkloadKey, WorkloadKey] = MappingProxyType({}),
) -> ImportedPolicy:
    """Build the policy that asks for what a VPA asks for; `spec` is the VPA's own.

    `workloads` are all that no other owns, and `owned` has the owner of each other one.
    """
    target = _find_target(vpa, workloads)
    if owner := owned.get(_build_target_key(vpa)):
        # VPA's own recommender refuses such a target as well.
        return ImportedPolicy(
            vpa,
            None,
            (f"its target, {vpa.target.kind} {vpa.target.name}, belongs to {owner}; name that in targetRef",),
        )
    if target is None:
        return ImportedPolicy(vpa, None, (f"its target, {vpa.target.kind} {vpa.target.name}, is not there",))
    mode = str((spec.get("updatePolicy") or {}).get("updateMode") or "Auto")
    ours, how = _MODES.get(mode, _MODES["Auto"])
    # Who has no policy has no bounds either.
    policies = [vpa.container_policy(each.name) for each in target.containers if each.role != "init"]
    boost = _convert_boost(spec)
    notes = [*_list_differences(vpa, mode, policies), *_list_unsupported(spec, boosts=bool(boost))]
    labels = _find_identifying_labels(target, workloads)
    if labels is None:
        labels = {POLICY_LABEL: vpa.name}
        where = f"-n {target.namespace} {target.resource}/{target.name}"
        notes.append(
            f"no labels of its own tell it from others; kubectl label {where} {POLICY_LABEL}={vpa.name}"
        )
    containers = [_build_rule(each) for each in vpa.container_policies]
    follows = all(each.controls_limits for each in policies if not each.is_off)
    policy: Object = {
        "apiVersion": API_VERSION,
        "kind": OptimizationPolicy.__name__,
        "metadata": {"name": vpa.name, "namespace": vpa.namespace},
        "spec": {
            "mode": ours,
            "selector": {
                "workloadSelector": {"matchLabels": labels},
                "workloadTypes": {"include": [target.key.kind]},
            },
            "strategy": {"name": STRATEGY},
            **({"containers": containers} if containers else {}),
            "updateStrategy": {**how, "updateRequestsOnly": not follows, **boost},
        },
    }
    try:
        OptimizationPolicy.read(policy)
    except InvalidObjectError as error:
        return ImportedPolicy(vpa, None, (*notes, str(error)))
    return ImportedPolicy(vpa, policy, tuple(notes))


def build_vpa_cohort(
    vpas: Iterable[VerticalPodAutoscaler],
    checkpoints: Mapping[CheckpointKey, Object],
    workloads: Sequence[Workload],
) -> StrategyCohort | None:
    """What their recommender learned of the containers of their targets; None when that is nothing."""
    names: dict[CheckpointKey, WorkloadContainer] = {}
    for vpa in vpas:
        if target := _find_target(vpa, workloads):
            for key in checkpoints:
                if key[:2] == (vpa.namespace, vpa.name):
                    names[key] = WorkloadContainer.from_workload(target.key, key.container)
    cohort = StrategyCohort(STRATEGY_SPEC, until=0.0)
    cohort.include(names.values())
    sizer = cohort.table.strategy
    assert isinstance(sizer, VpaStrategy)
    rows = {key: int(cohort.table.find_rows([name])[0]) for key, name in names.items()}
    known = restore_checkpoints(sizer, rows, checkpoints)
    cohort.table.forget(name for key, name in names.items() if key not in known)
    # From when on usage is still to be seen; of what some were shown after the last of them, a few samples are lost.
    cohort.ingested_until = max((_read_update_time(checkpoints[key]) for key in known), default=0.0)
    return cohort if known else None


def _find_target(vpa: VerticalPodAutoscaler, workloads: Sequence[Workload]) -> Workload | None:
    wanted = _build_target_key(vpa)
    return next((each for each in workloads if each.key == wanted), None)


def _build_target_key(vpa: VerticalPodAutoscaler) -> WorkloadKey:
    return WorkloadKey(qualify_kind(vpa.target.kind, vpa.target.group), vpa.namespace, vpa.target.name)


def _find_identifying_labels(target: Workload, workloads: Sequence[Workload]) -> dict[str, str] | None:
    """The fewest labels that only this workload has; None when others have all of them."""
    peers = [
        set(each.labels) for each in workloads if each.key[:2] == target.key[:2] and each.name != target.name
    ]
    own = {key: value for key, value in target.labels if key not in _VOLATILE_LABELS}
    for key in (*(key for key in _IDENTIFYING_LABELS if key in own), *sorted(own)):
        if not any((key, own[key]) in peer for peer in peers):
            return {key: own[key]}
    return own if own and not any(set(own.items()) <= peer for peer in peers) else None


def _build_rule(policy: ContainerPolicy) -> Object:
    """What holds for a container, or for every other one."""
    rule: Object = {"name": policy.container}
    controlled = [] if policy.is_off else [each for each in RESOURCES if each in policy.controlled_resources]
    if len(controlled) < len(RESOURCES):
        rule["controlledResources"] = controlled
    bounds = {
        resource: {
            name: str(write(amount))
            for name, amount in (
                ("min", getattr(policy.min_allowed, resource)),
                ("max", getattr(policy.max_allowed, resource)),
            )
            if amount is not None
        }
        for resource, write in (("cpu", Quantity.from_millicores), ("memory", Quantity.from_bytes))
    }
    if stated := {resource: found for resource, found in bounds.items() if found}:
        rule["resourceBounds"] = stated
    return rule


def _convert_boost(spec: Object) -> Object:
    """More CPU while pods start, where it is said as a policy does."""
    boost = (spec.get("startupBoost") or {}).get("cpu") or {}
    factor = boost.get("factor") if boost.get("type", "Factor") == "Factor" else None
    return {"startupBoost": {"factor": min(factor, MAX_BOOST)}} if factor else {}


def _list_unsupported(spec: Object, *, boosts: bool) -> Iterable[str]:
    """What a policy has no field for."""
    if boosts:
        yield "its startupBoost is given until a pod is ready, for 5 minutes at the most"
    elif spec.get("startupBoost"):
        yield "its startupBoost is no factor, and is left out"
    update = spec.get("updatePolicy") or {}
    for name in _UNSUPPORTED_FIELDS["updatePolicy"]:
        if name in update:
            yield f"updatePolicy.{name} is left out: a policy has nothing like it"
    for each in (spec.get("resourcePolicy") or {}).get("containerPolicies") or ():
        for name in _UNSUPPORTED_FIELDS["containerPolicies"]:
            if name in each:
                where = f"containerPolicies[{each.get('containerName', EVERY_CONTAINER)}].{name}"
                yield f"{where} is left out: a policy has nothing like it for one container"


def _list_differences(
    vpa: VerticalPodAutoscaler, mode: str, policies: Sequence[ContainerPolicy]
) -> Iterable[str]:
    """What a policy does not say as the VPA does."""
    if mode == "Initial":
        yield "it sets sizes only when pods are made (Initial); as a policy it recommends, until its mode is Auto"
    if len({each.controls_limits for each in policies if not each.is_off}) > 1:
        yield "limits follow requests in some of its containers only; the policy changes requests alone"
    if vpa.recommenders:
        yield f"it names a recommender of its own ({', '.join(vpa.recommenders)})"


def _read_update_time(checkpoint: Mapping[str, Any]) -> float:
    stamp = (checkpoint.get("status") or {}).get("lastUpdateTime")
    return datetime.fromisoformat(stamp).timestamp() if stamp else 0.0

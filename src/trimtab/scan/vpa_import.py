"""Convert VerticalPodAutoscalers to policies, and the checkpoints of their recommender to learned state.

A VPA names one workload while a policy selects by labels, so the policy uses labels that no other workload of the same
kind and namespace has. Anything that a policy cannot express is listed in the `notes`.
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
"""The highest startup boost factor that a policy accepts."""
POLICY_LABEL = "trimtab.io/policy"
"""The label that selects a workload without distinctive labels of its own."""

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
"""The fields of a VPA that a policy has no counterpart for."""
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
    """A VPA converted to a policy; `policy` is None if that is impossible, and the notes give the reason."""

    vpa: VerticalPodAutoscaler
    policy: Object | None
    notes: tuple[str, ...]


def convert_vpa(
    vpa: VerticalPodAutoscaler,
    spec: Object,
    workloads: Sequence[Workload],
    owned: Mapping[WorkloadKey, WorkloadKey] = MappingProxyType({}),
) -> ImportedPolicy:
    """Build the policy that is equivalent to a VPA; `spec` is the spec of the VPA.

    `workloads` are the top-level workloads, and `owned` maps every other workload to its owner.
    """
    target = _find_target(vpa, workloads)
    if owner := owned.get(_build_target_key(vpa)):
        # VPA's own recommender rejects such a target too.
        return ImportedPolicy(
            vpa,
            None,
            (
                f"its target, {vpa.target.kind} {vpa.target.name}, is owned by {owner}; name the owner in targetRef",
            ),
        )
    if target is None:
        return ImportedPolicy(
            vpa,
            None,
            (
                f"its target, {vpa.target.kind} {vpa.target.name}, does not exist; create it or delete the VPA",
            ),
        )
    mode = str((spec.get("updatePolicy") or {}).get("updateMode") or "Auto")
    target_mode, update_options = _MODES.get(mode, _MODES["Auto"])
    # Init containers have no VPA recommendation, so their policies do not count.
    policies = [vpa.container_policy(each.name) for each in target.containers if each.role != "init"]
    boost = _convert_boost(spec)
    notes = [*_list_differences(vpa, mode, policies), *_list_unsupported(spec, boosts=bool(boost))]
    labels = _find_identifying_labels(target, workloads)
    if labels is None:
        labels = {POLICY_LABEL: vpa.name}
        where = f"-n {target.namespace} {target.resource}/{target.name}"
        notes.append(
            f"its labels do not distinguish it from others; run: kubectl label {where} {POLICY_LABEL}={vpa.name}"
        )
    containers = [_build_rule(each) for each in vpa.container_policies]
    limits_follow = all(each.controls_limits for each in policies if not each.is_off)
    policy: Object = {
        "apiVersion": API_VERSION,
        "kind": OptimizationPolicy.__name__,
        "metadata": {"name": vpa.name, "namespace": vpa.namespace},
        "spec": {
            "mode": target_mode,
            "selector": {
                "workloadSelector": {"matchLabels": labels},
                "workloadTypes": {"include": [target.key.kind]},
            },
            "strategy": {"name": STRATEGY},
            **({"containers": containers} if containers else {}),
            "updateStrategy": {**update_options, "updateRequestsOnly": not limits_follow, **boost},
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
    """Build learned state from the VPA checkpoints of the targets' containers; None if there are none."""
    names: dict[CheckpointKey, WorkloadContainer] = {}
    for vpa in vpas:
        if target := _find_target(vpa, workloads):
            for key in checkpoints:
                if key[:2] == (vpa.namespace, vpa.name):
                    names[key] = WorkloadContainer.from_workload(target.key, key.container)
    cohort = StrategyCohort(STRATEGY_SPEC, until=0.0)
    cohort.add(names.values())
    sizer = cohort.strategy
    assert isinstance(sizer, VpaStrategy)
    rows = {key: int(cohort.find_rows([name])[0]) for key, name in names.items()}
    known = restore_checkpoints(sizer, rows, checkpoints)
    cohort.forget(name for key, name in names.items() if key not in known)
    # Ingestion resumes after the newest checkpoint; containers with an older one lose the few samples between.
    cohort.ingested_until = max((_read_update_time(checkpoints[key]) for key in known), default=0.0)
    return cohort if known else None


def _find_target(vpa: VerticalPodAutoscaler, workloads: Sequence[Workload]) -> Workload | None:
    wanted = _build_target_key(vpa)
    return next((each for each in workloads if each.key == wanted), None)


def _build_target_key(vpa: VerticalPodAutoscaler) -> WorkloadKey:
    return WorkloadKey(qualify_kind(vpa.target.kind, vpa.target.group), vpa.namespace, vpa.target.name)


def _find_identifying_labels(target: Workload, workloads: Sequence[Workload]) -> dict[str, str] | None:
    """Return the fewest labels that only this workload has; None if another one has all of them."""
    peers = [
        set(each.labels) for each in workloads if each.key[:2] == target.key[:2] and each.name != target.name
    ]
    own = {key: value for key, value in target.labels if key not in _VOLATILE_LABELS}
    for key in (*(key for key in _IDENTIFYING_LABELS if key in own), *sorted(own)):
        if not any((key, own[key]) in peer for peer in peers):
            return {key: own[key]}
    return own if own and not any(set(own.items()) <= peer for peer in peers) else None


def _build_rule(policy: ContainerPolicy) -> Object:
    """Build the policy rule of one container, or of all others (`*`)."""
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
    """Convert a startup boost that is given as a factor; a policy has no other form."""
    boost = (spec.get("startupBoost") or {}).get("cpu") or {}
    factor = boost.get("factor") if boost.get("type", "Factor") == "Factor" else None
    return {"startupBoost": {"factor": min(factor, MAX_BOOST)}} if factor else {}


def _list_unsupported(spec: Object, *, boosts: bool) -> Iterable[str]:
    """List the settings of a VPA that a policy has no field for."""
    if boosts:
        yield "its startupBoost ends when a pod is ready, after 5 minutes at the latest"
    elif spec.get("startupBoost"):
        yield "its startupBoost is omitted: a policy supports only a factor"
    update = spec.get("updatePolicy") or {}
    for name in _UNSUPPORTED_FIELDS["updatePolicy"]:
        if name in update:
            yield f"updatePolicy.{name} is omitted: a policy has no such field"
    for each in (spec.get("resourcePolicy") or {}).get("containerPolicies") or ():
        for name in _UNSUPPORTED_FIELDS["containerPolicies"]:
            if name in each:
                where = f"containerPolicies[{each.get('containerName', EVERY_CONTAINER)}].{name}"
                yield f"{where} is omitted: a policy has no such field for one container"


def _list_differences(
    vpa: VerticalPodAutoscaler, mode: str, policies: Sequence[ContainerPolicy]
) -> Iterable[str]:
    """List the settings that behave differently under a policy."""
    if mode == "Initial":
        yield "updateMode Initial sizes pods only at their creation; the policy only recommends until you set its mode to Auto"
    if len({each.controls_limits for each in policies if not each.is_off}) > 1:
        yield "limits follow the requests of some containers only; the policy changes requests only"
    if vpa.recommenders:
        yield f"Trimtab does not use the recommender that the VPA names: {', '.join(vpa.recommenders)}"


def _read_update_time(checkpoint: Mapping[str, Any]) -> float:
    stamp = (checkpoint.get("status") or {}).get("lastUpdateTime")
    return datetime.fromisoformat(stamp).timestamp() if stamp else 0.0

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
from trimtab.kube.kinds.vpas import EVERY_CONTAINER, ContainerPolicy, Vpa
from trimtab.kube.kinds.workloads import Workload, WorkloadKey, kind_name
from trimtab.kube.rest.client import Object
from trimtab.recommender.cohort import Sizing, StrategyCohort
from trimtab.recommender.vpa_checkpoints import CheckpointKey, warm_up
from trimtab.sizing.strategies.vpa import Vpa as VpaStrategy
from trimtab.usage.pod_ownership import WorkloadContainer

STRATEGY = VpaStrategy.name
SIZING = Sizing.of(STRATEGY, {})

MOST_BOOST = 10
"""What a policy takes at the most."""
CHOSEN = "trimtab.io/policy"
"""The label by which a workload is selected that has none of its own to be told by."""

BOTH = ("cpu", "memory")
_TELLING = ("app.kubernetes.io/instance", "app.kubernetes.io/name", "app", "k8s-app", "name")
_CHANGING = {"app.kubernetes.io/version", "helm.sh/chart", "version", "pod-template-hash"}
_UNSAID = {
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
class Inherited:
    """A VPA as a policy; None where it cannot be one, and then the notes say why."""

    vpa: Vpa
    policy: Object | None
    notes: tuple[str, ...]


def policy_of(
    vpa: Vpa,
    spec: Object,
    workloads: Sequence[Workload],
    owned: Mapping[WorkloadKey, WorkloadKey] = MappingProxyType({}),
) -> Inherited:
    """Build the policy that asks for what a VPA asks for; `spec` is the VPA's own.

    `workloads` are all that no other owns, and `owned` has the owner of each other one.
    """
    target = _target(vpa, workloads)
    if owner := owned.get(_target_key(vpa)):
        # VPA's own recommender refuses such a target as well.
        return Inherited(
            vpa,
            None,
            (f"its target, {vpa.target.kind} {vpa.target.name}, belongs to {owner}; name that in targetRef",),
        )
    if target is None:
        return Inherited(vpa, None, (f"its target, {vpa.target.kind} {vpa.target.name}, is not there",))
    mode = str((spec.get("updatePolicy") or {}).get("updateMode") or "Auto")
    ours, how = _MODES.get(mode, _MODES["Auto"])
    # Who has no policy has no bounds either.
    policies = [vpa.policy(each.name) for each in target.containers if each.role != "init"]
    boost = _boost(spec)
    notes = [*_notes(vpa, mode, policies), *_unsaid(spec, boosts=bool(boost))]
    labels = _telling_labels(target, workloads)
    if labels is None:
        labels = {CHOSEN: vpa.name}
        where = f"-n {target.namespace} {target.resource}/{target.name}"
        notes.append(f"no labels of its own tell it from others; kubectl label {where} {CHOSEN}={vpa.name}")
    containers = [_rule(each) for each in vpa.policies]
    follows = all(each.limits_follow for each in policies if not each.off)
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
        return Inherited(vpa, None, (*notes, str(error)))
    return Inherited(vpa, policy, tuple(notes))


def learned_of(
    vpas: Iterable[Vpa], checkpoints: Mapping[CheckpointKey, Object], workloads: Sequence[Workload]
) -> StrategyCohort | None:
    """What their recommender learned of the containers of their targets; None when that is nothing."""
    names: dict[CheckpointKey, WorkloadContainer] = {}
    for vpa in vpas:
        if target := _target(vpa, workloads):
            for key in checkpoints:
                if key[:2] == (vpa.namespace, vpa.name):
                    names[key] = WorkloadContainer.of(target.key, key.container)
    cohort = StrategyCohort(SIZING, until=0.0)
    cohort.include(names.values())
    sizer = cohort.fleet.strategy
    assert isinstance(sizer, VpaStrategy)
    rows = {key: int(cohort.fleet.rows([name])[0]) for key, name in names.items()}
    known = warm_up(sizer, rows, checkpoints)
    cohort.fleet.forget(name for key, name in names.items() if key not in known)
    # From when on usage is still to be seen; of what some were shown after the last of them, a few samples are lost.
    cohort.until = max((_written(checkpoints[key]) for key in known), default=0.0)
    return cohort if known else None


def _target(vpa: Vpa, workloads: Sequence[Workload]) -> Workload | None:
    wanted = _target_key(vpa)
    return next((each for each in workloads if each.key == wanted), None)


def _target_key(vpa: Vpa) -> WorkloadKey:
    return WorkloadKey(kind_name(vpa.target.kind, vpa.target.group), vpa.namespace, vpa.target.name)


def _telling_labels(target: Workload, workloads: Sequence[Workload]) -> dict[str, str] | None:
    """The fewest labels that only this workload has; None when others have all of them."""
    peers = [
        set(each.labels) for each in workloads if each.key[:2] == target.key[:2] and each.name != target.name
    ]
    own = {key: value for key, value in target.labels if key not in _CHANGING}
    for key in (*(key for key in _TELLING if key in own), *sorted(own)):
        if not any((key, own[key]) in peer for peer in peers):
            return {key: own[key]}
    return own if own and not any(set(own.items()) <= peer for peer in peers) else None


def _rule(policy: ContainerPolicy) -> Object:
    """What holds for a container, or for every other one."""
    rule: Object = {"name": policy.container}
    controlled = [] if policy.off else [each for each in BOTH if each in policy.resources]
    if len(controlled) < len(BOTH):
        rule["controlledResources"] = controlled
    bounds = {
        resource: {
            name: str(write(amount))
            for name, amount in (
                ("min", getattr(policy.least, resource)),
                ("max", getattr(policy.most, resource)),
            )
            if amount is not None
        }
        for resource, write in (("cpu", Quantity.of_millicores), ("memory", Quantity.of_bytes))
    }
    if stated := {resource: found for resource, found in bounds.items() if found}:
        rule["resourceBounds"] = stated
    return rule


def _boost(spec: Object) -> Object:
    """More CPU while pods start, where it is said as a policy does."""
    boost = (spec.get("startupBoost") or {}).get("cpu") or {}
    factor = boost.get("factor") if boost.get("type", "Factor") == "Factor" else None
    return {"startupBoost": {"factor": min(factor, MOST_BOOST)}} if factor else {}


def _unsaid(spec: Object, *, boosts: bool) -> Iterable[str]:
    """What a policy has no field for."""
    if boosts:
        yield "its startupBoost is given until a pod is ready, for 5 minutes at the most"
    elif spec.get("startupBoost"):
        yield "its startupBoost is no factor, and is left out"
    update = spec.get("updatePolicy") or {}
    for name in _UNSAID["updatePolicy"]:
        if name in update:
            yield f"updatePolicy.{name} is left out: a policy has nothing like it"
    for each in (spec.get("resourcePolicy") or {}).get("containerPolicies") or ():
        for name in _UNSAID["containerPolicies"]:
            if name in each:
                where = f"containerPolicies[{each.get('containerName', EVERY_CONTAINER)}].{name}"
                yield f"{where} is left out: a policy has nothing like it for one container"


def _notes(vpa: Vpa, mode: str, policies: Sequence[ContainerPolicy]) -> Iterable[str]:
    """What a policy does not say as the VPA does."""
    if mode == "Initial":
        yield "it sets sizes only when pods are made (Initial); as a policy it recommends, until its mode is Auto"
    if len({each.limits_follow for each in policies if not each.off}) > 1:
        yield "limits follow requests in some of its containers only; the policy changes requests alone"
    if vpa.recommenders:
        yield f"it names a recommender of its own ({', '.join(vpa.recommenders)})"


def _written(checkpoint: Mapping[str, Any]) -> float:
    stamp = (checkpoint.get("status") or {}).get("lastUpdateTime")
    return datetime.fromisoformat(stamp).timestamp() if stamp else 0.0

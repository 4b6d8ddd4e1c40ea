"""What a cluster's VerticalPodAutoscalers ask for and their recommender has learned, as policies and state of ours.

A VPA names one workload, a policy selects by labels: of the labels of the workload those are taken that no other of
its kind and namespace has. What a policy cannot say is not dropped in silence: it is among the `notes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trimtab.api import API_VERSION, OptimizationPolicy
from trimtab.api.errors import InvalidObjectError
from trimtab.api.quantity import Quantity
from trimtab.kube.client import Object
from trimtab.kube.vpas import EVERY_CONTAINER, ContainerPolicy, Vpa
from trimtab.kube.workloads import Workload, kind_name
from trimtab.operator.checkpoints import CheckpointKey, warm_up
from trimtab.operator.cohort import Cohort, Sizing
from trimtab.sizing.vpa import Vpa as VpaStrategy
from trimtab.usage.owners import WorkloadContainer

STRATEGY = VpaStrategy.name
SIZING = Sizing.of(STRATEGY, {})

CHOSEN = "trimtab.io/policy"
"""The label by which a workload is selected that has none of its own to be told by."""

BOTH = {"cpu", "memory"}
_UNTIL = "as a policy it recommends, until its mode is Auto"
_TELLING = ("app.kubernetes.io/instance", "app.kubernetes.io/name", "app", "k8s-app", "name")
_CHANGING = {"app.kubernetes.io/version", "helm.sh/chart", "version", "pod-template-hash"}
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


def policy_of(vpa: Vpa, mode: str, workloads: Sequence[Workload]) -> Inherited:
    """The policy that asks for what a VPA asks for; `mode` is its update mode, `workloads` are all that there are."""
    target = _target(vpa, workloads)
    if target is None:
        return Inherited(vpa, None, (f"its target, {vpa.target.kind} {vpa.target.name}, is not there",))
    ours, how = _MODES.get(mode, _MODES["Auto"])
    if any(each.off or len(each.resources) < len(BOTH) for each in vpa.policies):
        ours = "Recommend"  # rather than size what its owner has kept out
    # Who has no policy has no bounds either.
    policies = [vpa.policy(each.name) for each in target.containers if each.role != "init"]
    notes = [*_notes(vpa, mode, policies)]
    labels = _telling_labels(target, workloads)
    if labels is None:
        labels = {CHOSEN: vpa.name}
        where = f"-n {target.namespace} {target.resource}/{target.name}"
        notes.append(f"no labels of its own tell it from others; kubectl label {where} {CHOSEN}={vpa.name}")
    bounds = _bounds(policies)
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
            **({"resourceBounds": bounds} if bounds else {}),
            "updateStrategy": {**how, "updateRequestsOnly": not follows},
        },
    }
    try:
        OptimizationPolicy.read(policy)
    except InvalidObjectError as error:
        return Inherited(vpa, None, (*notes, str(error)))
    return Inherited(vpa, policy, tuple(notes))


def learned_of(
    vpas: Iterable[Vpa], checkpoints: Mapping[CheckpointKey, Object], workloads: Sequence[Workload]
) -> Cohort | None:
    """What their recommender learned of the containers of their targets; None when that is nothing."""
    names: dict[CheckpointKey, WorkloadContainer] = {}
    for vpa in vpas:
        if target := _target(vpa, workloads):
            for key in checkpoints:
                if key[:2] == (vpa.namespace, vpa.name):
                    names[key] = WorkloadContainer.of(target.key, key.container)
    cohort = Cohort(SIZING, until=0.0)
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
    wanted = kind_name(vpa.target.kind, vpa.target.group), vpa.namespace, vpa.target.name
    return next((each for each in workloads if each.key == wanted), None)


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


def _bounds(policies: Sequence[ContainerPolicy]) -> dict[str, dict[str, str]]:
    """The widest of all containers: a policy has one range for all."""
    found: dict[str, dict[str, str]] = {}
    for resource in sorted(BOTH):
        least = [getattr(each.least, resource) for each in policies if not each.off]
        most = [getattr(each.most, resource) for each in policies if not each.off]
        write = Quantity.of_millicores if resource == "cpu" else Quantity.of_bytes
        bounds = {
            name: str(write(pick(amounts)))
            for name, pick, amounts in (("min", min, least), ("max", max, most))
            if amounts and None not in amounts
        }
        if bounds:
            found[resource] = bounds
    return found


def _notes(vpa: Vpa, mode: str, policies: Sequence[ContainerPolicy]) -> Iterable[str]:
    """What a policy does not say as the VPA does."""
    if mode == "Initial":
        yield f"it sets sizes only when pods are made (Initial); {_UNTIL}"
    named = [each for each in vpa.policies if each.container != EVERY_CONTAINER]
    for each in vpa.policies:
        who = "all other containers" if each.container == EVERY_CONTAINER else f"container {each.container}"
        if each.off:
            yield f"it leaves {who} alone, and a policy sizes every container; {_UNTIL}"
        for resource in sorted(BOTH - set(each.resources)):
            yield f"it leaves {resource} of {who} alone, and a policy sizes both resources; {_UNTIL}"
    if len({(each.least, each.most) for each in policies if not each.off}) > 1:
        names = ", ".join(each.container for each in named)
        yield f"it has bounds of their own for {names}; the policy has the widest for all"
    if len({each.limits_follow for each in policies if not each.off}) > 1:
        yield "limits follow requests in some of its containers only; the policy changes requests alone"
    if vpa.recommenders:
        yield f"it names a recommender of its own ({', '.join(vpa.recommenders)})"


def _written(checkpoint: Mapping[str, Any]) -> float:
    stamp = (checkpoint.get("status") or {}).get("lastUpdateTime")
    return datetime.fromisoformat(stamp).timestamp() if stamp else 0.0

"""A recommender for the Kubernetes VPA: a VerticalPodAutoscaler that names `trimtab` gets its recommendation from us.

What stands in a status is a pure function of what a strategy proposes and of the VPA's own resource policy, as VPA's
recommender has it: `*` for every container without a policy of its own, none where the mode is Off, only the controlled
resources, minAllowed before maxAllowed. Where limits stay (RequestsOnly) a request is kept below its limit, too. Without
a proposal what was recommended before stays, within the policy of today: no data, no deed.

Left out: putting it into effect, which VPA's updater or an OptimizationPolicy does, and the checkpoints of VPA's own
recommender (`checkpoints`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec
import structlog

from trimtab.api.fields import time_text
from trimtab.api.quantity import Quantity
from trimtab.kube.errors import Conflict, NotFound
from trimtab.kube.kinds.pods import Container
from trimtab.kube.kinds.vpas import ContainerPolicy, Vpa
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.kube.rest.client import Object, PatchType
from trimtab.kube.rest.object_client import Objects
from trimtab.kube.rest.resources import VPAS
from trimtab.operator.cluster_state import Catalog
from trimtab.sizing.guards.change_size import round_up
from trimtab.sizing.proposal import Ask, Proposal
from trimtab.sizing.recommendation import ResourceName

log = structlog.get_logger(__name__)

RECOMMENDER = "trimtab"
"""What `spec.recommenders` calls us."""

_OURS = {"RecommendationProvided", "NoPodsMatched", "ConfigUnsupported"}
_MOST = 10**14
"""Where VPA's amounts end, in millicores and bytes."""


def is_ours(vpa: Vpa) -> bool:
    return RECOMMENDER in vpa.recommenders


def new_status(
    vpa: Vpa, workload: Workload | None, *, proposals: Mapping[str, Proposal], pods: int, now: float
) -> Object | None:
    """The status that a VPA should have, by the proposals for its target's containers; None when it has it.

    `workload` is its target, None where there is no such workload; `pods` is how many of it run.
    """
    old: Object = msgspec.json.decode(vpa.status) if vpa.status else {}
    found = _recommendations(vpa, old, workload, proposals)
    status: Object = {
        "conditions": _conditions(old, _wanted(vpa, workload, provided=bool(found), pods=pods), now),
        **({"recommendation": {"containerRecommendations": found}} if found else {}),
    }
    # An older CRD has no observedGeneration: what the server does not keep is no reason to write again.
    observed = old.pop("observedGeneration", vpa.generation)
    if status == old and observed == vpa.generation:
        return None
    return {**status, "observedGeneration": vpa.generation}


async def recommend(
    client: Objects,
    catalog: Catalog,
    key: WorkloadKey,
    *,
    proposals: Callable[[Vpa], Mapping[str, Proposal]],
    now: float,
) -> None:
    """Let every VPA of ours that is about a workload have what is proposed for its containers, by their names."""
    workload = catalog.get(key)
    pods = len(catalog.pods_of(workload)) if workload else 0
    for vpa in filter(is_ours, catalog.vpas_of(key)):
        if status := new_status(vpa, workload, proposals=proposals(vpa), pods=pods, now=now):
            await write_status(client, vpa, status)


async def write_status(client: Objects, vpa: Vpa, status: Object) -> None:
    """Give a VPA its new status; one that is gone needs none."""
    try:
        await client.patch(
            VPAS,
            vpa.name,
            # A merge leaves alone what it does not name.
            {"metadata": {"uid": vpa.uid}, "status": {"recommendation": None, **status}},
            type=PatchType.MERGE,
            namespace=vpa.namespace,
            subresource="status",
        )
    except (NotFound, Conflict):  # or another has taken its name
        log.info("vpa.gone", vpa=f"{vpa.namespace}/{vpa.name}")


# What it recommends


def _recommendations(
    vpa: Vpa, old: Object, workload: Workload | None, proposals: Mapping[str, Proposal]
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
        policy = vpa.policy(name)
        asked = _Asked.of(proposals.get(name), before.get(name, {}))
        entry = _entry(asked, policy, containers.get(name))
        if not policy.off and entry["target"]:
            found.append({"containerName": name, **entry})
    return found


class _Asked(NamedTuple):
    """What is asked for a container, by resource."""

    cpu: Ask
    memory: Ask

    @classmethod
    def of(cls, proposal: Proposal | None, before: Mapping[str, Any]) -> _Asked:
        # VPA's updater follows every number, and would give back at night what the morning needs.
        cpu, memory = (
            (proposal.cpu.of_the_day(), proposal.memory.of_the_day()) if proposal else (Ask(), Ask())
        )
        return cls(
            cpu if math.isfinite(cpu.target) else _asked_before(before, "cpu"),
            memory if math.isfinite(memory.target) else _asked_before(before, "memory"),
        )


def _asked_before(entry: Mapping[str, Any], resource: ResourceName) -> Ask:
    def read(*fields: str) -> float:
        text = next(
            (entry[field][resource] for field in fields if resource in (entry.get(field) or {})), None
        )
        if text is None:
            return math.nan
        quantity = Quantity.parse(str(text))
        return quantity.millicores if resource == "cpu" else quantity.bytes

    return Ask(read("uncappedTarget", "target"), read("lowerBound"), read("upperBound"))


def _entry(asked: _Asked, policy: ContainerPolicy, container: Container | None) -> dict[str, dict[str, str]]:
    """The four amounts of one container; a resource that is not known or not controlled is in none of them."""
    entry: dict[str, dict[str, str]] = {
        "target": {},
        "lowerBound": {},
        "upperBound": {},
        "uncappedTarget": {},
    }
    resource: ResourceName
    for resource in ("cpu", "memory"):
        ask: Ask = getattr(asked, resource)
        if resource == "memory":
            ask = Ask(_readable(ask.target), _readable(ask.lower), _readable(ask.upper))
        if resource not in policy.resources or not math.isfinite(ask.target):
            continue
        least, most = getattr(policy.least, resource), getattr(policy.most, resource)
        if not policy.limits_follow and container is not None:
            limit = getattr(container.resources, f"{resource}_limit")
            most = min((one for one in (most, limit) if one is not None), default=None)
        entry["uncappedTarget"][resource] = _text(resource, ask.target)
        for field, amount in (("target", ask.target), ("lowerBound", ask.lower), ("upperBound", ask.upper)):
            if not math.isnan(amount):
                entry[field][resource] = _text(resource, _capped(amount, least, most))
    return entry


def _capped(amount: float, least: int | None, most: int | None) -> float:
    if least is not None and amount < least:
        amount = least
    return most if most is not None and amount > most else amount


def _readable(amount: float) -> float:
    """Round memory up to a whole MiB: VPA's own recommender writes bytes, which nobody reads."""
    return round_up("memory", math.ceil(amount)) if math.isfinite(amount) else amount


def _text(resource: ResourceName, amount: float) -> str:
    whole = round(min(max(amount, 0.0), _MOST))
    return str(Quantity.of_millicores(whole) if resource == "cpu" else Quantity.of_bytes(whole))


# What it says of itself


class _Said(NamedTuple):
    """What a condition should say."""

    status: str
    reason: str = ""
    message: str = ""


def _wanted(vpa: Vpa, workload: Workload | None, *, provided: bool, pods: int) -> dict[str, _Said]:
    target = f"{vpa.target.kind} {vpa.target.name}"
    if workload is None:
        missing = _Said(
            "True", "TargetNotFound", f"there is no workload {target}, or its kind cannot be read"
        )
        return {"ConfigUnsupported": missing, "RecommendationProvided": _provided(provided, missing)}
    if not pods:
        missing = _Said("True", "NoPodsMatched", f"{target} has no pods")
        return {"NoPodsMatched": missing, "RecommendationProvided": _provided(provided, missing)}
    waiting = _Said("True", "NotEnoughData", f"there is not enough usage of {target} yet")
    return {"RecommendationProvided": _provided(provided, waiting)}


def _provided(is_provided: bool, otherwise: _Said) -> _Said:  # noqa: FBT001 - the one thing that it is about
    return _Said("True") if is_provided else _Said("False", otherwise.reason, otherwise.message)


def _conditions(old: Object, wanted: Mapping[str, _Said], now: float) -> list[Object]:
    """The conditions by type, with others' left alone; the time of one stays while its status does."""
    before = {condition["type"]: condition for condition in old.get("conditions") or ()}
    kept = [condition for kind, condition in before.items() if kind not in _OURS]
    stamp = time_text(now)
    for kind, said in wanted.items():
        known = before.get(kind, {})
        since = known.get("lastTransitionTime", stamp) if known.get("status") == said.status else stamp
        texts = {"reason": said.reason, "message": said.message}
        kept.append(
            {
                "type": kind,
                "status": said.status,
                "lastTransitionTime": since,
                **{field: text for field, text in texts.items() if text},
            }
        )
    return sorted(kept, key=lambda condition: str(condition["type"]))

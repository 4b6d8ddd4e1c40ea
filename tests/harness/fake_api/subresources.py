"""The subresources that are no part of the object: scale and eviction."""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Any

from harness.fake_api.kinds import PODS, ServedKind
from harness.fake_api.objects import Object, ObjectStore
from harness.fake_api.selectors import match_selector
from harness.fake_api.status import ApiFailure, conflict


def scale_of(body: Object) -> Object:
    metadata = {
        name: body["metadata"][name]
        for name in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    }
    status = {"replicas": (body.get("status") or {}).get("replicas", 0)}
    spec = {"replicas": body["spec"].get("replicas", 0)}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }


def set_scale(store: ObjectStore, kind: ServedKind, live: Object, patch: Object, *, dry_run: bool) -> Object:
    version = patch.get("metadata", {}).get("resourceVersion")
    if version and version != live["metadata"]["resourceVersion"]:
        raise conflict(kind, live["metadata"]["name"])
    changed = deepcopy(live)
    changed["spec"]["replicas"] = patch["spec"]["replicas"]
    namespace = live["metadata"].get("namespace", "")
    store.update(kind, namespace, changed, subresource="", manager="scale", dry_run=dry_run)
    return scale_of(changed if dry_run else store.get(kind, namespace, live["metadata"]["name"]))


def evict(store: ObjectStore, namespace: str, name: str, eviction: Object, *, dry_run: bool) -> Object:
    """Delete a pod, unless a disruption budget has too few others."""
    pod = store.get(PODS, namespace, name)
    if (pod.get("status") or {}).get("phase") == "Running":
        # A pod that is not ready may go only if enough others are.
        needed = 1 if _is_healthy(pod) else 0
        for budget in store.select(store.kind_named("poddisruptionbudgets"), namespace):
            if (
                match_selector(budget["spec"].get("selector") or {})(pod)
                and _disruptions(store, budget) < needed
            ):
                text = "Cannot evict pod as it would violate the pod's disruption budget."
                cause = {
                    "reason": "DisruptionBudget",
                    "message": f"The disruption budget {budget['metadata']['name']} needs more pods",
                }
                raise ApiFailure(429, "TooManyRequests", text, causes=[cause])
    options = eviction.get("deleteOptions") or {}
    dry_run = dry_run or bool(options.get("dryRun"))
    store.delete(PODS, namespace, name, preconditions=options.get("preconditions"), dry_run=dry_run)
    return {"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201}


def _disruptions(store: ObjectStore, budget: Object) -> int:
    matches = match_selector(budget["spec"].get("selector") or {})
    pods = [each for each in store.select(PODS, budget["metadata"]["namespace"]) if matches(each)]
    healthy, spec = sum(map(_is_healthy, pods)), budget["spec"]
    if "maxUnavailable" in spec:
        return _amount(spec["maxUnavailable"], len(pods)) - (len(pods) - healthy)
    return healthy - _amount(spec.get("minAvailable", 0), len(pods))


def _amount(value: Any, of: int) -> int:
    return math.ceil(int(value.removesuffix("%")) * of / 100) if isinstance(value, str) else int(value)


def _is_healthy(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

"""Build the patch that sets the sizes of a pod during admission. Pure."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from trimtab.actuation.resources import Sizes, to_manifest
from trimtab.errors import TrimtabError
from trimtab.kube.errors import DECODE_ERRORS
from trimtab.kube.kinds.pods import Pod, pod_projection
from trimtab.kube.rest.client import Object

SizePod = Callable[[Pod], Sizes]
"""A function that returns the sizes for the containers of a pod."""

_POD_PROJECTION = pod_projection()


def build_pod_patch(stated: Object, size_pod: SizePod) -> list[Object]:
    """Return the patch; empty for a pod that cannot be read or that has pod-level resources."""
    try:
        pod = _POD_PROJECTION.project(
            msgspec.json.decode(msgspec.json.encode(stated), type=_POD_PROJECTION.wire_type)
        )
    except (*DECODE_ERRORS, TrimtabError):
        return []
    spec = stated.get("spec") or {}
    if pod.owner is None or spec.get("resources"):
        return []
    sizes = size_pod(pod)
    places = [
        f"{group}/{n}" for group in ("containers", "initContainers") for n in range(len(spec.get(group, ())))
    ]
    return [
        {"op": "add", "path": f"/spec/{place}/resources/{kind}/{resource}", "value": amount}
        for place, container in zip(places, pod.containers, strict=True)
        if container.role != "init" and container.name in sizes
        for kind, amounts in to_manifest(sizes[container.name]).items()
        for resource, amount in amounts.items()
    ]

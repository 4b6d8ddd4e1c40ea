"""A pod that is about to be made, as the API server shows it, and the patch that gives it other sizes. Pure."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from trimtab.actuation.resources import Sizes, written
from trimtab.errors import TrimtabError
from trimtab.kube.errors import NOT_UNDERSTOOD
from trimtab.kube.kinds.pods import Pod, pods
from trimtab.kube.rest.client import Object

Births = Callable[[Pod], Sizes]
"""What containers of a pod are to be born with instead."""

_POD = pods()


def birth_patch(stated: Object, births: Births) -> list[Object]:
    """What is to be written otherwise; nothing of a pod that cannot be read, or has resources as a whole."""
    try:
        pod = _POD.fold(msgspec.json.decode(msgspec.json.encode(stated), type=_POD.wire))
    except (*NOT_UNDERSTOOD, TrimtabError):
        return []
    spec = stated.get("spec") or {}
    if pod.owner is None or spec.get("resources"):
        return []
    sizes = births(pod)
    places = [
        f"{group}/{n}" for group in ("containers", "initContainers") for n in range(len(spec.get(group, ())))
    ]
    return [
        {"op": "add", "path": f"/spec/{place}/resources/{kind}/{resource}", "value": amount}
        for place, container in zip(places, pod.containers, strict=True)
        if container.role != "init" and container.name in sizes
        for kind, amounts in written(sizes[container.name]).items()
        for resource, amount in amounts.items()
    ]

"""Sizes on their way to a page: from records of the cluster and from what the history wrote of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trimtab.api.quantity import memory_bytes, millicores
from trimtab.kube.kinds.pods import Resources
from trimtab.web.model import Size


def size_of(has: Resources) -> Size:
    return Size(
        cpu=_cores(has.cpu_request),
        cpu_limit=_cores(has.cpu_limit),
        memory=has.memory_request,
        memory_limit=has.memory_limit,
    )


def together(sizes: Iterable[Resources]) -> Size:
    """Of a pod: what its containers come to; a limit only where each has one."""
    found = list(sizes)

    def total(field: str, *, of_all: bool) -> float | None:
        amounts = [getattr(each, field) for each in found]
        known = [amount for amount in amounts if amount is not None]
        return None if not known or (of_all and len(known) < len(amounts)) else float(sum(known))

    cpu, cpu_limit = total("cpu_request", of_all=False), total("cpu_limit", of_all=True)
    return Size(
        cpu=None if cpu is None else cpu / 1000,
        cpu_limit=None if cpu_limit is None else cpu_limit / 1000,
        memory=total("memory_request", of_all=False),
        memory_limit=total("memory_limit", of_all=True),
    )


def read(manifest: Mapping[str, Any]) -> Resources:
    """As `actuation.sizes.written` wrote it."""
    requests, limits = manifest.get("requests", {}), manifest.get("limits", {})
    return Resources(
        _read(requests, "cpu", millicores),
        _read(limits, "cpu", millicores),
        _read(requests, "memory", memory_bytes),
        _read(limits, "memory", memory_bytes),
    )


def by_container(entry: Mapping[str, Any] | None, container: str) -> dict[str, Resources]:
    """The sizes in one side of a history entry, which is about one container or, where that is empty, about all."""
    if not entry:
        return {}
    return {container: read(entry)} if container else {name: read(each) for name, each in entry.items()}


def _cores(amount: int | None) -> float | None:
    return None if amount is None else amount / 1000


def _read(amounts: Mapping[str, str], name: str, parse: Any) -> int | None:
    return int(parse(amounts[name])) if name in amounts else None

"""Sizes on their way to a page: from records of the cluster and from what the history wrote of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trimtab.api.quantity import parse_memory_bytes, parse_millicores
from trimtab.kube.kinds.pods import Resources
from trimtab.web.model import ResourceSize


def build_size(has: Resources) -> ResourceSize:
    return ResourceSize(
        cpu=_to_cores(has.cpu_request),
        cpu_limit=_to_cores(has.cpu_limit),
        memory=has.memory_request,
        memory_limit=has.memory_limit,
    )


def sum_sizes(sizes: Iterable[Resources]) -> ResourceSize:
    """Of a pod: what its containers come to; a limit only where each has one."""
    found = list(sizes)

    def total(field: str, *, of_all: bool) -> float | None:
        amounts = [getattr(each, field) for each in found]
        known = [amount for amount in amounts if amount is not None]
        return None if not known or (of_all and len(known) < len(amounts)) else float(sum(known))

    cpu, cpu_limit = total("cpu_request", of_all=False), total("cpu_limit", of_all=True)
    return ResourceSize(
        cpu=None if cpu is None else cpu / 1000,
        cpu_limit=None if cpu_limit is None else cpu_limit / 1000,
        memory=total("memory_request", of_all=False),
        memory_limit=total("memory_limit", of_all=True),
    )


def parse_resources(manifest: Mapping[str, Any]) -> Resources:
    """As `actuation.sizes.written` wrote it."""
    requests, limits = manifest.get("requests", {}), manifest.get("limits", {})
    return Resources(
        _parse_amount(requests, "cpu", parse_millicores),
        _parse_amount(limits, "cpu", parse_millicores),
        _parse_amount(requests, "memory", parse_memory_bytes),
        _parse_amount(limits, "memory", parse_memory_bytes),
    )


def parse_sizes(entry: Mapping[str, Any] | None, container: str) -> dict[str, Resources]:
    """The sizes in one side of a history entry, which is about one container or, where that is empty, about all."""
    if not entry:
        return {}
    return (
        {container: parse_resources(entry)}
        if container
        else {name: parse_resources(each) for name, each in entry.items()}
    )


def _to_cores(amount: int | None) -> float | None:
    return None if amount is None else amount / 1000


def _parse_amount(amounts: Mapping[str, str], name: str, parse: Any) -> int | None:
    return int(parse(amounts[name])) if name in amounts else None

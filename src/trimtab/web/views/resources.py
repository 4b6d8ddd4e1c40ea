"""Convert sizes from cluster records and history entries to those of the pages."""

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
    """Sum the sizes of a pod's containers; a limit only if every container has one."""
    found = list(sizes)

    def total(field: str, *, require_all: bool) -> float | None:
        amounts = [getattr(each, field) for each in found]
        known = [amount for amount in amounts if amount is not None]
        return None if not known or (require_all and len(known) < len(amounts)) else float(sum(known))

    cpu, cpu_limit = total("cpu_request", require_all=False), total("cpu_limit", require_all=True)
    return ResourceSize(
        cpu=None if cpu is None else cpu / 1000,
        cpu_limit=None if cpu_limit is None else cpu_limit / 1000,
        memory=total("memory_request", require_all=False),
        memory_limit=total("memory_limit", require_all=True),
    )


def parse_resources(manifest: Mapping[str, Any]) -> Resources:
    """Parse resources as `actuation.resources.to_manifest` writes them."""
    requests, limits = manifest.get("requests", {}), manifest.get("limits", {})
    return Resources(
        _parse_amount(requests, "cpu", parse_millicores),
        _parse_amount(limits, "cpu", parse_millicores),
        _parse_amount(requests, "memory", parse_memory_bytes),
        _parse_amount(limits, "memory", parse_memory_bytes),
    )


def parse_sizes(entry: Mapping[str, Any] | None, container: str) -> dict[str, Resources]:
    """Parse one side of a history entry, which is about one container, or about all if `container` is empty."""
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

"""Convert sizes from cluster records and history entries to those of the pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

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
    return build_size(Resources.total(sizes))


def parse_resources(manifest: Mapping[str, Any]) -> Resources:
    """Parse resources as `actuation.resources.to_manifest` writes them."""
    return Resources.parse(manifest.get("requests", {}), manifest.get("limits", {}))


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

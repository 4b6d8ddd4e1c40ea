"""Convert sizes from cluster records to those of the pages."""

from __future__ import annotations

from collections.abc import Iterable

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


def _to_cores(amount: int | None) -> float | None:
    return None if amount is None else amount / 1000

"""The QoS class of a pod, as Kubernetes computes it.

Each container keeps its own shape: one whose requests equal its limits in a Guaranteed pod stays so, and one
that differs in a Burstable pod stays different. That keeps the class of the pod, whatever its other
containers do at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable

from trimtab.kube.kinds.pods import Resources

GUARANTEED = "Guaranteed"
BURSTABLE = "Burstable"
BEST_EFFORT = "BestEffort"


def qos_class(containers: Iterable[Resources]) -> str:
    """Return the class of a pod with these containers, init containers included."""
    everyone = tuple(containers)
    if all(map(is_guaranteed, everyone)):
        return GUARANTEED
    return BURSTABLE if any(map(_has_requests_or_limits, everyone)) else BEST_EFFORT


def is_guaranteed(has: Resources) -> bool:
    """Return whether both limits are set and requests equal them or are unset."""
    return all(limit and request in {None, limit} for request, limit in (has.cpu, has.memory))


def _has_requests_or_limits(has: Resources) -> bool:
    return any(has.amounts)

"""Floors: amounts that a decrease must not go below, however low the usual usage is.

A floor never increases anything: it only stops a decrease. `safe_minimum` is the only place that knows the
container's own need; here its surroundings are added: earlier proposals and an autoscaler's target.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

from trimtab.sizing.constraints import UtilisationTarget
from trimtab.sizing.guards.context import GuardContext
from trimtab.sizing.proposal import ROUNDING_TOLERANCE
from trimtab.sizing.safe_minimum import NO_DECREASE, SafeMinimum, safe_minimums

HOUR = 3600.0
UTILISATION = "utilisation"


def list_floors(case: GuardContext) -> tuple[SafeMinimum, ...]:
    """List all floors of one resource, in the order in which an explanation names them."""
    around = (found for floor in CONSTRAINT_FLOORS if (found := floor(case)) is not None)
    return (*safe_minimums(case), *around)


def check_stabilization(case: GuardContext) -> SafeMinimum | None:
    """Lower a request only to the highest recent proposal: capacity released at night may be gone in the
    morning.
    """
    window = case.rules.stabilization
    # Both ends of the window lie within an hour: counted by its length alone, the oldest hour would be left
    # out.
    hours = int(case.now // HOUR - (case.now - window) // HOUR) + 1 if window else 0
    highest = max(case.proposed.recent[:hours], default=0.0)
    # A forecast for the whole window moves with the window: good enough in place, but not where each move is
    # a restart.
    if not highest or (case.proposed.covers_stabilization and not case.restarts_container):
        return None
    why = f"the highest that was proposed in the last {window / HOUR:g} h"
    return _build_request_floor(
        "stabilization", ceil(highest - ROUNDING_TOLERANCE), why, "policy changes.stabilization"
    )


def check_utilisation(case: GuardContext) -> SafeMinimum | None:
    """Keep an autoscaler's utilisation at or below its target, because it answers a smaller request with more
    replicas.

    Every container of the pod may shrink by the same share, the one that brings the utilisation up to the
    target, so that the pod's utilisation stays at or below it whichever of them do. The autoscaler's last
    value may be from a quiet hour, so the container's own recent peak must fit under the target as well.
    """
    found = [
        _check_autoscaler(scaler, case)
        for scaler in case.constraints.autoscalers
        if scaler.resource == case.resource and scaler.container in {None, case.container}
    ]
    return max(found, key=lambda floor: floor.amount, default=None)


def _check_autoscaler(scaler: UtilisationTarget, case: GuardContext) -> SafeMinimum:
    source, target = f"HPA {scaler.name}", scaler.target
    if scaler.highest_seen is None:
        return _build_request_floor(UTILISATION, NO_DECREASE, "its utilisation is not known", source)
    # At its target, the autoscaler answers any decrease with another replica.
    if scaler.highest_seen >= target:
        why = f"at {scaler.highest_seen:.0%} of a target of {target:.0%}"
        return _build_request_floor(UTILISATION, NO_DECREASE, why, source)
    highest = case.evidence.cpu_peak if case.resource == "cpu" else case.evidence.memory_peak
    # Autoscalers divide usage by the request, so that usage divided by the target is the least request.
    least = max((case.request or 0) * scaler.highest_seen, highest or 0) / target
    return _build_request_floor(
        UTILISATION, ceil(least), f"keeps its utilisation at or below {target:.0%}", source
    )


def _build_request_floor(name: str, amount: int, why: str, source: str) -> SafeMinimum:
    """Return a floor of the request alone: none of these is about the container's own need."""
    return SafeMinimum(name, amount, why, source, binds_limit=False)


CONSTRAINT_FLOORS: tuple[Callable[[GuardContext], SafeMinimum | None], ...] = (
    check_stabilization,
    check_utilisation,
)

"""How small a container may be made: what it is known to need, however little its usual usage is.

A floor never makes anything larger: it only stops a decrease. `LASTING` bounds limits too, for a limit below what is
needed throttles or kills, where a request below it does neither.
"""

from __future__ import annotations

from math import ceil

from trimtab.sizing.case import AS_IT_IS, Case, Floor, FloorGuard
from trimtab.sizing.proposal import ALMOST
from trimtab.sizing.proposed import HOUR
from trimtab.sizing.recommendation import MIB, amount_text
from trimtab.sizing.surroundings import UtilisationTarget

LEAST_HEAP_OVERHEAD = 64 * MIB


def history(case: Case) -> Floor | None:
    """A quiet night is not the whole: growing may be done on little evidence, shrinking may not."""
    evidence, rules = case.evidence, case.rules
    known = evidence.last - evidence.first
    if known < rules.minimum_history:
        why = (
            f"observed for {known / 3600:.1f} h, made smaller only after {rules.minimum_history / 3600:.1f} h"
        )
        return Floor(AS_IT_IS, why, "policy metricsConfig.minimumHistory")
    return None


def stabilization(case: Case) -> Floor | None:
    """What is given back at night may be gone in the morning, with its node: only down to the highest of late."""
    window = case.rules.stabilization
    hours = int(case.now // HOUR - (case.now - window) // HOUR) + 1 if window else 0
    highest = max(case.ask.lately[:hours], default=0.0)
    if case.ask.keeps or not highest:
        return None
    why = f"the highest that was proposed in the last {window / HOUR:g} h"
    return Floor(ceil(highest - ALMOST), why, "policy changes.stabilization")


def coverage(case: Case) -> Floor | None:
    """Peaks may lie in the gaps."""
    share, wanted = case.evidence.coverage, case.rules.caution.coverage
    if share < wanted:
        return Floor(AS_IT_IS, f"{share:.0%} of the samples are there, {wanted:.0%} are needed", "usage")
    return None


def throttling(case: Case) -> Floor | None:
    """A throttled container would use more if it could: its usage does not show its need."""
    share = case.evidence.throttled
    if share is not None and share > case.rules.caution.throttled:
        return Floor(AS_IT_IS, f"throttled in {share:.0%} of periods", "usage")
    return None


def utilisation(case: Case) -> Floor | None:
    """A smaller request is a higher utilisation, and an autoscaler answers that with replicas.

    Every container of the pod may shrink by the same share, that which brings the utilisation up to the target; so
    the pod's stays at or below it whichever of them do. What the autoscaler saw last may be a quiet hour, so the
    container's own recent peak must fit under the target as well.
    """
    floors = [
        _under(scaler, case)
        for scaler in case.around.autoscalers
        if scaler.resource == case.resource and scaler.container in {None, case.container}
    ]
    return max(floors, key=lambda floor: floor.amount, default=None)


def _under(scaler: UtilisationTarget, case: Case) -> Floor:
    source, target = f"HPA {scaler.name}", scaler.target
    if scaler.highest is None:
        return Floor(AS_IT_IS, "its utilisation is not known", source)
    if scaler.highest >= target:
        return Floor(AS_IT_IS, f"at {scaler.highest:.0%} of a target of {target:.0%}", source)
    highest = case.evidence.cpu_peak if case.resource == "cpu" else case.evidence.memory_peak
    least = max((case.request or 0) * scaler.highest, highest or 0) / target
    return Floor(ceil(least), f"keeps its utilisation at or below {target:.0%}", source)


def peak(case: Case) -> Floor | None:
    """Memory shrinks only down to what was really needed lately, and some headroom."""
    highest = case.evidence.memory_peak
    if highest is None:
        return Floor(AS_IT_IS, "its recent peak is not known", "usage")
    share = case.rules.caution.memory_headroom
    why = f"recent peak of {amount_text('memory', highest)} and {share:.0%}"
    return Floor(ceil(highest * (1 + share)), why, "usage")


def startup(case: Case) -> Floor | None:
    """What a container needs while it starts; CPU only for init containers, for others may start slowly."""
    evidence = case.evidence
    if case.resource == "memory":
        highest = evidence.memory_start
        share = case.rules.caution.memory_headroom
    else:
        highest = evidence.cpu_start if case.role == "init" else None
        share = 0.0
    if highest is None:
        return None
    why = f"peak while starting of {amount_text(case.resource, highest)} and {share:.0%}"
    return Floor(ceil(highest * (1 + share)), why, "usage")


def heap(case: Case) -> Floor | None:
    """A collected heap fills up to its own bound, not to what is live in it: never less than that and overhead."""
    evidence, share = case.evidence, case.rules.caution.heap_overhead
    if evidence.heap is not None:
        most = evidence.heap.most
        overhead = max(ceil(most * share), LEAST_HEAP_OVERHEAD)
        why = f"heap of up to {amount_text('memory', most)} and {amount_text('memory', overhead)} besides"
        return Floor(most + overhead, why, evidence.heap.source)
    if evidence.sawtooth and evidence.memory_peak is not None:
        why = f"a garbage-collected heap of unknown bound: its peak and {share:.0%}"
        return Floor(ceil(evidence.memory_peak * (1 + share)), why, "usage")
    return None


def initial(case: Case) -> Floor | None:
    """An init container is made smaller only as far as that saves anything."""
    if case.role == "init":
        return Floor(case.staying, "the containers that stay request as much anyway", "pod")
    return None


CPU: tuple[FloorGuard, ...] = (
    history,
    stabilization,
    coverage,
    throttling,
    utilisation,
    startup,
    initial,
)
MEMORY: tuple[FloorGuard, ...] = (
    history,
    stabilization,
    coverage,
    utilisation,
    peak,
    startup,
    heap,
    initial,
)
LASTING: frozenset[FloorGuard] = frozenset({history, coverage, throttling, peak, startup, heap})

"""Resolve all requests for a knob into one value, by a documented precedence.

The value starts from the knob's original. Requests are applied from the weakest to the strongest: by
precedence (priority, policy, safety). An exact request sets the value, a bound clips it. Among requests of
the same precedence exact ones come first, then "at least", then "at most", and the more cautious value last.

The result does not depend on the order of the requests. A request that was not satisfied is reported in a
conflict.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from trimtab.node.arbiter.requests import BoundType, KnobRef, KnobRequest
from trimtab.node.arbiter.value_order import Value, is_within, join, meet, rank


@dataclass(frozen=True, slots=True)
class KnobConflict:
    """A knob for which not all requests could be satisfied."""

    ref: KnobRef
    value: Value
    overruled: tuple[KnobRequest, ...]

    def __str__(self) -> str:
        losers = "; ".join(
            f"{request.strategy} requested {request.bound.value} {request.value}"
            for request in self.overruled
        )
        return f"{self.ref} is {self.value}: {losers}"


ReadBaseline = Callable[[KnobRef], Value | None]
"""Return the original value of a knob; None if it does not exist."""


def resolve_requests(
    requests: Iterable[KnobRequest], before: ReadBaseline
) -> tuple[dict[KnobRef, Value], list[KnobConflict]]:
    """Return the value of each requested knob, and the conflicts."""
    by_ref: dict[KnobRef, list[KnobRequest]] = defaultdict(list)
    for request in requests:
        by_ref[request.ref].append(request)
    decided: dict[KnobRef, Value] = {}
    conflicts = []
    for ref in sorted(by_ref, key=lambda ref: ref.key):
        ordered = sorted(by_ref[ref], key=_strength_key)
        # The original is the start, so that a bound without an exact request only moves the node's own value as
        # far as needed.
        value = _resolve_value(ordered, before(ref))
        # Only bounds, and the knob does not exist: its cgroup ended, or this kernel has no such file.
        if value is None:
            continue
        decided[ref] = value
        overruled = tuple(request for request in ordered if not _is_satisfied(request, value))
        if overruled:
            conflicts.append(KnobConflict(ref, value, overruled))
    return decided, conflicts


_BOUND_ORDER = {BoundType.EXACTLY: 0, BoundType.AT_LEAST: 1, BoundType.AT_MOST: 2}


def _strength_key(request: KnobRequest) -> tuple[int, int, float, str, str]:
    """Return the sort key, strongest last; it is total so that the order of requests cannot matter."""
    # Equal requests of two strategies are ordered by their text and name. Without a total order, the result
    # would depend on the order of strategies and change from round to round.
    allows, spelt = rank(request.value)
    return request.precedence, _BOUND_ORDER[request.bound], -allows, spelt, request.strategy


def _resolve_value(ordered: Iterable[KnobRequest], before: Value | None) -> Value | None:
    value = before
    for request in ordered:
        if request.bound is BoundType.EXACTLY:
            value = request.value
        # A bound clips a value; without an original there is none.
        elif value is not None:
            value = (
                _clip_at_most(value, request.value)
                if request.bound is BoundType.AT_MOST
                else join(value, request.value)
            )
    return value


def _clip_at_most(value: Value, most: Value) -> Value:
    """Clip a value; of disjoint CPU sets the stronger is used whole, because no CPU is never meant."""
    clipped = meet(value, most)
    return most if clipped == frozenset() else clipped


def _is_satisfied(request: KnobRequest, value: Value) -> bool:
    match request.bound:
        case BoundType.AT_MOST:
            return is_within(value, request.value)
        case BoundType.AT_LEAST:
            return is_within(request.value, value)
    return bool(request.value == value)

"""One value a knob out of all wishes for it, by a precedence that anybody can look up.

The value starts from what the knob held before us. Then the wishes have their say, the weakest first and the strongest
last, so that the stronger has the last word: by precedence (priority, then policy, then safety), then by the
strategies' own priority. An exact wish sets the value, a bound clips it. Of wishes that are equally strong the exact
come first and bounds after, "at least" before "at most", and the more cautious value last; for safety, where nothing
may overrule a bound, all are equally strong.

The answer does not depend on the order of the wishes. Whoever did not get what he wished for is named in a conflict.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from trimtab.node.arbiter.requests import BoundType, KnobRef, KnobRequest, Precedence
from trimtab.node.arbiter.value_order import Value, is_within, join, meet, rank


@dataclass(frozen=True, slots=True)
class KnobConflict:
    """A knob that not all who wished for it could have their way with."""

    ref: KnobRef
    value: Value
    overruled: tuple[KnobRequest, ...]

    def __str__(self) -> str:
        losers = "; ".join(
            f"{wish.strategy} wished {wish.bound.value} {wish.value}" for wish in self.overruled
        )
        return f"{self.ref} is {self.value}: {losers}"


ReadBaseline = Callable[[KnobRef], Value | None]
"""What a knob held before us; None where it is not there."""


def resolve_requests(
    requests: Iterable[KnobRequest], before: ReadBaseline
) -> tuple[dict[KnobRef, Value], list[KnobConflict]]:
    """What each knob that somebody wishes for is to hold, and who had to yield."""
    by_spot: dict[KnobRef, list[KnobRequest]] = defaultdict(list)
    for wish in requests:
        by_spot[wish.ref].append(wish)
    decided: dict[KnobRef, Value] = {}
    conflicts = []
    for spot in sorted(by_spot, key=lambda spot: spot.key):
        ordered = sorted(by_spot[spot], key=_strength_key)
        value = _resolve_value(ordered, before(spot))
        if value is None:
            continue
        decided[spot] = value
        overruled = tuple(wish for wish in ordered if not _is_satisfied(wish, value))
        if overruled:
            conflicts.append(KnobConflict(spot, value, overruled))
    return decided, conflicts


_BOUND_ORDER = {BoundType.EXACTLY: 0, BoundType.AT_LEAST: 1, BoundType.AT_MOST: 2}


def _strength_key(request: KnobRequest) -> tuple[int, int, int, float, str, str]:
    """By which wishes have their say, the strongest last. It is total, or the order of the wishes would matter."""
    priority = 0 if request.precedence is Precedence.SAFETY else request.priority
    allows, spelt = rank(request.value)
    return request.precedence, priority, _BOUND_ORDER[request.bound], -allows, spelt, request.strategy


def _resolve_value(ordered: Iterable[KnobRequest], before: Value | None) -> Value | None:
    value = before
    for wish in ordered:
        if wish.bound is BoundType.EXACTLY:
            value = wish.value
        elif value is not None:
            value = (
                _clip_at_most(value, wish.value)
                if wish.bound is BoundType.AT_MOST
                else join(value, wish.value)
            )
    return value


def _clip_at_most(value: Value, most: Value) -> Value:
    """No CPU at all is never meant: where two sets have none in common, the stronger one is taken whole."""
    clipped = meet(value, most)
    return most if clipped == frozenset() else clipped


def _is_satisfied(request: KnobRequest, value: Value) -> bool:
    match request.bound:
        case BoundType.AT_MOST:
            return is_within(value, request.value)
        case BoundType.AT_LEAST:
            return is_within(request.value, value)
    return bool(request.value == value)

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

from trimtab.node.arbiter.requests import Bound, Precedence, Spot, Wish
from trimtab.node.arbiter.value_order import Value, join, meet, rank, within


@dataclass(frozen=True, slots=True)
class Conflict:
    """A knob that not all who wished for it could have their way with."""

    spot: Spot
    given: Value
    overruled: tuple[Wish, ...]

    def __str__(self) -> str:
        losers = "; ".join(
            f"{wish.strategy} wished {wish.bound.value} {wish.value}" for wish in self.overruled
        )
        return f"{self.spot} is {self.given}: {losers}"


Before = Callable[[Spot], Value | None]
"""What a knob held before us; None where it is not there."""


def consolidate(wishes: Iterable[Wish], before: Before) -> tuple[dict[Spot, Value], list[Conflict]]:
    """What each knob that somebody wishes for is to hold, and who had to yield."""
    by_spot: dict[Spot, list[Wish]] = defaultdict(list)
    for wish in wishes:
        by_spot[wish.spot].append(wish)
    decided: dict[Spot, Value] = {}
    conflicts = []
    for spot in sorted(by_spot, key=lambda spot: spot.key):
        ordered = sorted(by_spot[spot], key=_strength)
        value = _decide(ordered, before(spot))
        if value is None:
            continue
        decided[spot] = value
        overruled = tuple(wish for wish in ordered if not _is_granted(wish, value))
        if overruled:
            conflicts.append(Conflict(spot, value, overruled))
    return decided, conflicts


_TURN = {Bound.EXACTLY: 0, Bound.AT_LEAST: 1, Bound.AT_MOST: 2}


def _strength(wish: Wish) -> tuple[int, int, int, float, str, str]:
    """By which wishes have their say, the strongest last. It is total, or the order of the wishes would matter."""
    priority = 0 if wish.precedence is Precedence.SAFETY else wish.priority
    allows, spelt = rank(wish.value)
    return wish.precedence, priority, _TURN[wish.bound], -allows, spelt, wish.strategy


def _decide(ordered: Iterable[Wish], before: Value | None) -> Value | None:
    value = before
    for wish in ordered:
        if wish.bound is Bound.EXACTLY:
            value = wish.value
        elif value is not None:
            value = _at_most(value, wish.value) if wish.bound is Bound.AT_MOST else join(value, wish.value)
    return value


def _at_most(value: Value, most: Value) -> Value:
    """No CPU at all is never meant: where two sets have none in common, the stronger one is taken whole."""
    clipped = meet(value, most)
    return most if clipped == frozenset() else clipped


def _is_granted(wish: Wish, value: Value) -> bool:
    match wish.bound:
        case Bound.AT_MOST:
            return within(value, wish.value)
        case Bound.AT_LEAST:
            return within(wish.value, value)
    return bool(wish.value == value)

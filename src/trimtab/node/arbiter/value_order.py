"""Order and combine knob values: compare, join and meet.

Numbers (-1 is unlimited), CPU sets and amounts per device (a missing device is unlimited) share these
operations, so that callers need not know a knob's type.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

from trimtab.node.cgroups import UNLIMITED
from trimtab.node.cgroups.values import format_cpus

Value: TypeAlias = int | frozenset[int] | Mapping[str, int]


def to_comparable(number: int) -> float:
    """Return a number that compares by what it allows."""
    return math.inf if number == UNLIMITED else number


def join(one: Value, other: Value) -> Value:
    """Return the value that allows everything that either does: the maximum or union."""
    match one, other:
        case frozenset(), frozenset():
            return one | other
        case int(), int():
            return max(one, other, key=to_comparable)
        case Mapping(), Mapping():
            return {
                device: max(one[device], other[device], key=to_comparable)
                # A device that either does not name is unlimited in the union.
                for device in one.keys() & other.keys()
            }
    raise TypeError(f"{one!r} and {other!r} have different types")


def meet(one: Value, other: Value) -> Value:
    """Return the value that allows only what both do: the minimum or intersection."""
    match one, other:
        case frozenset(), frozenset():
            return one & other
        case int(), int():
            return min(one, other, key=to_comparable)
        case Mapping(), Mapping():
            devices = one.keys() | other.keys()
            both = {
                device: min(one.get(device, UNLIMITED), other.get(device, UNLIMITED), key=to_comparable)
                for device in devices
            }
            # Written out, an unlimited device would differ from one that the kernel does not list, and be
            # written again for ever.
            return {device: amount for device, amount in both.items() if amount != UNLIMITED}
    raise TypeError(f"{one!r} and {other!r} have different types")


def is_within(one: Value, other: Value) -> bool:
    """Return whether `one` allows nothing that `other` does not."""
    return join(one, other) == other


def rank(value: Value) -> tuple[float, str]:
    """Return a total order, more cautious first, so that ties do not depend on the order of requests."""
    match value:
        case frozenset():
            # The text decides between sets of one size: a set's own order changes between processes.
            return len(value), repr(sorted(value))
        case int():
            return to_comparable(value), ""
    return sum(map(to_comparable, value.values())), repr(sorted(value.items()))


def format_value(value: Value) -> str:
    """Format a value for people, as short as the kernel's form."""
    match value:
        case frozenset():
            return format_cpus(value)
        case int():
            return str(value)
    return " ".join(f"{name}={amount}" for name, amount in value.items())

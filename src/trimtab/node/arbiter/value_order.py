"""Arithmetic on what knobs hold: which of two values allows more, the least that allows both, the most within both.

Numbers (-1 is without limit), sets of CPUs, and amounts a device (a device that is not named has no limit) all have
it, so that whoever orders or clips values need not ask which kind a knob is of.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

from trimtab.node.cgroups import UNLIMITED
from trimtab.node.cgroups.values import format_cpus

Value: TypeAlias = int | frozenset[int] | Mapping[str, int]


def to_comparable(number: int) -> float:
    """A number that compares as what it allows."""
    return math.inf if number == UNLIMITED else number


def join(one: Value, other: Value) -> Value:
    """What allows all that either does: the greater, the union."""
    match one, other:
        case frozenset(), frozenset():
            return one | other
        case int(), int():
            return max(one, other, key=to_comparable)
        case Mapping(), Mapping():
            return {
                device: max(one[device], other[device], key=to_comparable)
                for device in one.keys() & other.keys()
            }
    raise TypeError(f"{one!r} and {other!r} are not of a kind")


def meet(one: Value, other: Value) -> Value:
    """What either allows: the lesser, the intersection."""
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
            return {device: amount for device, amount in both.items() if amount != UNLIMITED}
    raise TypeError(f"{one!r} and {other!r} are not of a kind")


def is_within(one: Value, other: Value) -> bool:
    """Whether the one allows nothing that the other does not."""
    return join(one, other) == other


def rank(value: Value) -> tuple[float, str]:
    """An order that is total, the more cautious first: for ties, which must not depend on who came first."""
    match value:
        case frozenset():
            return len(value), repr(sorted(value))
        case int():
            return to_comparable(value), ""
    return sum(map(to_comparable, value.values())), repr(sorted(value.items()))


def format_value(value: Value) -> str:
    """As people read it, and as short as the kernel has it."""
    match value:
        case frozenset():
            return format_cpus(value)
        case int():
            return str(value)
    return " ".join(f"{name}={amount}" for name, amount in value.items())

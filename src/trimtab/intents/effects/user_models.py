"""Given effects: models that a person wrote down, or that come from an Intent Driven Orchestration knowledge base.

They are trusted where they were seen; beyond, they get the less sure the further it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, inf, isnan, log
from typing import Annotated, Any

import msgspec

from trimtab.errors import TrimtabError
from trimtab.intents.effects.inputs import Fan, Knobs
from trimtab.intents.effects.model import Model, Moves

_BEYOND = 0.5
"""How unsure a model is at e times the range it was seen in."""
_LEAST = 1e-9
_Range = Annotated[tuple[float, ...], msgspec.Meta(min_length=2, max_length=2)]


class Scaling(msgspec.Struct, frozen=True, rename="camel"):
    """Latency against load and replicas: p0·e^(p1·t) / (p2·e^(p3·t·pods)), t the load, scaled."""

    popt: tuple[float, float, float, float]
    throughput_scale: tuple[float, float]
    throughput_range: _Range = (0.0, inf)
    replica_range: _Range = (1.0, inf)

    def moves(self, fan: Fan, value: float) -> Moves:  # noqa: ARG002 - in proportion
        was, *would = fan.places
        here = self._height(was)
        return (
            [self._height(each) - here for each in would],
            [0.0 if each[0] == was[0] else _beyond(each.replicas, self.replica_range) for each in would],
        )

    def _height(self, at: Knobs) -> float:
        load = at.load
        if isnan(load):
            low, high = self.throughput_range
            load = low if high == inf else (low + high) / 2
        t = load * self.throughput_scale[0] + self.throughput_scale[1]
        _, p1, _, p3 = self.popt  # the others move nothing
        return p1 * t - p3 * t * at.replicas

    def data(self) -> dict[str, Any]:
        return dict(msgspec.to_builtins(self))


class CpuScaling(msgspec.Struct, frozen=True, rename="camel"):
    """Latency against cores: p0·e^(-p1·cpu) + p2."""

    popt: tuple[tuple[float, float, float]]
    cpu_range: _Range = (0.0, inf)

    def moves(self, fan: Fan, value: float) -> Moves:  # noqa: ARG002 - in proportion
        was, *would = fan.places
        here = self._height(was)
        return (
            [self._height(each) - here for each in would],
            [0.0 if each.cpu == was.cpu else _beyond(each.cpu, self.cpu_range) for each in would],
        )

    def _height(self, at: Knobs) -> float:
        """A curve that was fitted elsewhere may fall below nothing; a latency does not."""
        ((p0, p1, p2),) = self.popt
        return log(max(_LEAST, p0 * exp(-p1 * at.cpu) + p2))

    def data(self) -> dict[str, Any]:
        return dict(msgspec.to_builtins(self))


class Options(msgspec.Struct, frozen=True, rename="camel"):
    """What each option, such as a cache class, makes of an objective: by how much its logarithm moves."""

    moves_by: dict[str, float] = msgspec.field(name="moves")
    spread: float = 0.0

    def moves(self, fan: Fan, value: float) -> Moves:  # noqa: ARG002 - in proportion
        was, *would = fan.places
        here = self._of(was)
        ways = [self._of(each) - here for each in would]
        return ways, [self.spread if way else 0.0 for way in ways]

    def _of(self, at: Knobs) -> float:
        return sum(self.moves_by.get(name.partition(":")[2], 0.0) for name in (at.cache, at.power))

    def data(self) -> dict[str, Any]:
        return {"model": "options", **msgspec.to_builtins(self)}


_FORMS: Mapping[str, type[Scaling | CpuScaling]] = {"scaling": Scaling, "vertical_scaling": CpuScaling}


def given(group: str, data: Mapping[str, Any]) -> Model:
    """The model that a person gave for a group of deeds."""
    try:
        if "moves" in data:
            return msgspec.convert(data, Options)
        if group in _FORMS:
            return msgspec.convert(data, _FORMS[group])
    except msgspec.ValidationError as error:
        raise TrimtabError(f"the given effect of {group} cannot be read: {error}") from None
    known = ", ".join(sorted(_FORMS))
    raise TrimtabError(
        f"the given effect of {group} cannot be read: give moves of options, or one of {known}"
    )


def _beyond(value: float, seen: tuple[float, ...]) -> float:
    low, high = seen
    if value > high > 0:
        return _BEYOND * log(value / high)
    if 0 < value < low:
        return _BEYOND * log(low / value)
    return 0.0

"""Given effects: models that a person wrote down, or that come from an Intent Driven Orchestration knowledge base.

They are trusted where they were seen; beyond, they get the less sure the further it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, inf, log
from typing import Annotated, Any

import msgspec

from trimtab.errors import TrimtabError
from trimtab.intents.effects.knobs import CACHE, POWER, option
from trimtab.intents.effects.model import STILL, Model, Move
from trimtab.intents.state import State

_BEYOND = 0.5
"""How unsure a model is at e times the range it was seen in."""
_Range = Annotated[tuple[float, ...], msgspec.Meta(min_length=2, max_length=2)]


class Scaling(msgspec.Struct, frozen=True, rename="camel"):
    """Latency against load and replicas: p0·e^(p1·t) / (p2·e^(p3·t·pods)), t the load, scaled."""

    popt: tuple[float, float, float, float]
    throughput_scale: tuple[float, float]
    throughput_range: _Range = (0.0, inf)
    replica_range: _Range = (1.0, inf)

    def move(self, before: State, after: State, value: float) -> Move:  # noqa: ARG002 - in proportion
        if before.replicas == after.replicas and before.load == after.load:
            return STILL
        unsure = _beyond(float(after.replicas), self.replica_range)
        return Move(self._height(after) - self._height(before), unsure)

    def _height(self, state: State) -> float:
        load = state.load
        if load is None:
            low, high = self.throughput_range
            load = low if high == inf else (low + high) / 2
        t = load * self.throughput_scale[0] + self.throughput_scale[1]
        p0, p1, p2, p3 = self.popt
        return log(p0 / p2) + p1 * t - p3 * t * state.replicas

    def data(self) -> dict[str, Any]:
        return dict(msgspec.to_builtins(self))


class CpuScaling(msgspec.Struct, frozen=True, rename="camel"):
    """Latency against cores: p0·e^(-p1·cpu) + p2."""

    popt: tuple[tuple[float, float, float]]
    cpu_range: _Range = (0.0, inf)

    def move(self, before: State, after: State, value: float) -> Move:  # noqa: ARG002 - in proportion
        was, would = before.cpu, after.cpu
        if was is None or would is None or was == would:
            return STILL
        ((p0, p1, p2),) = self.popt
        ratio = (p0 * exp(-p1 * would) + p2) / (p0 * exp(-p1 * was) + p2)
        return Move(log(ratio), _beyond(would, self.cpu_range))

    def data(self) -> dict[str, Any]:
        return dict(msgspec.to_builtins(self))


class Options(msgspec.Struct, frozen=True, rename="camel"):
    """What each option, such as a cache class, makes of an objective: by how much its logarithm moves."""

    moves: dict[str, float]
    spread: float = 0.0

    def move(self, before: State, after: State, value: float) -> Move:  # noqa: ARG002 - in proportion
        by = self._of(after) - self._of(before)
        return Move(by, self.spread) if by else STILL

    def _of(self, state: State) -> float:
        names = (option(CACHE, state.cache_class), option(POWER, state.power_profile))
        return sum(self.moves.get(name.partition(":")[2], 0.0) for name in names)

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

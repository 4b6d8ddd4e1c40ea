"""Models that a user provides, or that come from an Intent Driven Orchestration knowledge base.

They are trusted within the range of their data; outside, their uncertainty grows with the distance.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, inf, isnan, log
from typing import Annotated, Any

import msgspec

from trimtab.errors import TrimtabError
from trimtab.intents.effects.inputs import InputBatch, ModelInputs
from trimtab.intents.effects.model import EffectModel, PredictedChanges

_EXTRAPOLATION_SPREAD = 0.5
"""The standard deviation at e times the range of a model's data."""
_MIN_LATENCY = 1e-9
_Range = Annotated[tuple[float, ...], msgspec.Meta(min_length=2, max_length=2)]


class ReplicaScalingModel(msgspec.Struct, frozen=True, rename="camel"):
    """Latency against load and replicas: p0·e^(p1·t) / (p2·e^(p3·t·pods)), with t the scaled load."""

    popt: tuple[float, float, float, float]
    throughput_scale: tuple[float, float]
    throughput_range: _Range = (0.0, inf)
    replica_range: _Range = (1.0, inf)

    def predict_changes(self, batch: InputBatch, value: float) -> PredictedChanges:  # noqa: ARG002 - in proportion
        was, *would = batch.inputs
        before = self._log_value(was)
        return (
            [self._log_value(each) - before for each in would],
            [
                0.0 if each[0] == was[0] else _extrapolation_spread(each.replicas, self.replica_range)
                for each in would
            ],
        )

    def _log_value(self, at: ModelInputs) -> float:
        load = at.load
        if isnan(load):
            low, high = self.throughput_range
            load = low if high == inf else (low + high) / 2
        t = load * self.throughput_scale[0] + self.throughput_scale[1]
        _, p1, _, p3 = self.popt  # the others cancel out
        return p1 * t - p3 * t * at.replicas

    def encode(self) -> dict[str, Any]:
        return dict(msgspec.to_builtins(self))


class CpuScalingModel(msgspec.Struct, frozen=True, rename="camel"):
    """Latency against cores: p0·e^(-p1·cpu) + p2."""

    popt: tuple[tuple[float, float, float]]
    cpu_range: _Range = (0.0, inf)

    def predict_changes(self, batch: InputBatch, value: float) -> PredictedChanges:  # noqa: ARG002 - in proportion
        was, *would = batch.inputs
        before = self._log_value(was)
        return (
            [self._log_value(each) - before for each in would],
            [
                0.0 if each.cpu == was.cpu else _extrapolation_spread(each.cpu, self.cpu_range)
                for each in would
            ],
        )

    def _log_value(self, at: ModelInputs) -> float:
        """Return the logarithm of latency; a curve from elsewhere may be negative, a latency is not."""
        ((p0, p1, p2),) = self.popt
        return log(max(_MIN_LATENCY, p0 * exp(-p1 * at.cpu) + p2))

    def encode(self) -> dict[str, Any]:
        return dict(msgspec.to_builtins(self))


class OptionModel(msgspec.Struct, frozen=True, rename="camel"):
    """The change of an objective's logarithm by each option, such as a cache class."""

    log_changes: dict[str, float] = msgspec.field(name="moves")
    spread: float = 0.0

    def predict_changes(self, batch: InputBatch, value: float) -> PredictedChanges:  # noqa: ARG002 - in proportion
        was, *would = batch.inputs
        before = self._option_change(was)
        ways = [self._option_change(each) - before for each in would]
        return ways, [self.spread if way else 0.0 for way in ways]

    def _option_change(self, at: ModelInputs) -> float:
        return sum(self.log_changes.get(name.partition(":")[2], 0.0) for name in (at.cache, at.power))

    def encode(self) -> dict[str, Any]:
        return {"model": "options", **msgspec.to_builtins(self)}


_USER_MODEL_TYPES: Mapping[str, type[ReplicaScalingModel | CpuScalingModel]] = {
    "scaling": ReplicaScalingModel,
    "vertical_scaling": CpuScalingModel,
}


def decode_user_model(group: str, data: Mapping[str, Any]) -> EffectModel:
    """Decode a user's model for a group of actions."""
    try:
        if "moves" in data:
            return msgspec.convert(data, OptionModel)
        if group in _USER_MODEL_TYPES:
            return msgspec.convert(data, _USER_MODEL_TYPES[group])
    except msgspec.ValidationError as error:
        raise TrimtabError(f"the given effect of {group} cannot be read: {error}") from None
    known = ", ".join(sorted(_USER_MODEL_TYPES))
    raise TrimtabError(
        f"the given effect of {group} cannot be read: give moves of options, or one of {known}"
    )


def _extrapolation_spread(value: float, seen: tuple[float, ...]) -> float:
    low, high = seen
    if value > high > 0:
        return _EXTRAPOLATION_SPREAD * log(value / high)
    if 0 < value < low:
        return _EXTRAPOLATION_SPREAD * log(low / value)
    return 0.0

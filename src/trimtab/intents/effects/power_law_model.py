"""Elastic: what moves throughput, power and objectives of one's own: a power of each knob, learned from events.

Beforehand, throughput follows the pods' CPU only while they are busy to the brim, power follows replicas and CPU,
and of an objective of one's own nothing is known: nothing is counted on to move it until events show what does, and
anything may, by as much again as it is turned, when something is to be given back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan, log, nan
from typing import Any, Self

import msgspec
import numpy as np
from numba import njit

from trimtab.api.kpiprofile import KPIType
from trimtab.errors import TrimtabError
from trimtab.intents.effects.inputs import Fan, Knobs
from trimtab.intents.effects.latency_model import FASTER, HALF_LIFE
from trimtab.intents.effects.model import Moves
from trimtab.intents.effects.robust_fit import Floats, Points, fit
from trimtab.intents.effects.samples import Sample

KIND = "elastic"
_KNOBS = ("replicas", "cpu", "memory", "load")
_BRIMMING = 0.85
"""From here on, pods are thought to turn requests away."""
_SPREAD = 0.1
_SPREAD_OF_UNKNOWN = 1.0
_POWER = {
    "power:performance": 0.15,
    "power:balance-performance": 0.05,
    "power:balance-power": -0.1,
    "power:power": -0.2,
}


class Elastic:
    """A model of one objective."""

    def __init__(self, powers: Mapping[str, float], covariance: Floats, *, samples: int) -> None:
        self.powers, self.covariance, self.samples = dict(powers), covariance, samples
        self._theta = np.array(list(powers.values()))
        self._options = [name for name in powers if name not in _KNOBS]

    def moves(self, fan: Fan, value: float) -> Moves:  # noqa: ARG002 - a power law is in proportion
        by, spread = _moves(self._theta, self.covariance, fan.at, _chosen(fan.places, self._options)).tolist()
        return by, spread

    @classmethod
    def guess(cls, kind: KPIType, seen: Sample) -> Self:
        """What is thought of an objective that was measured once."""
        options = _POWER if kind is KPIType.POWER else dict.fromkeys(FASTER, 0.0)
        powers = {**_before(kind, seen), **options}
        return cls(powers, np.diag(np.full(len(powers), _spread(kind, _SPREAD) ** 2)), samples=0)

    @classmethod
    def learn(cls, kind: KPIType, seen: Sequence[Sample], *, now: float) -> Self:
        prior = cls.guess(kind, seen[-1]).powers
        for sample in seen:
            prior.update({name: 0.0 for name in sample.knobs[4:6] if name and name not in prior})
        names = list(prior)
        places = [sample.knobs for sample in seen]
        chosen = _chosen(places, [name for name in names if name not in _KNOBS])
        features = np.empty((len(seen), len(names)))
        _features(np.array([each[:4] for each in places]), chosen, features)
        start = np.array([float(np.mean([log(sample.value) for sample in seen])), *prior.values()])
        # The level is measured from the middle of the points, so that it and the powers can be told apart.
        rows = np.column_stack([np.ones(len(seen)), features - features.mean(axis=0)])
        found = fit(
            lambda theta: (rows @ theta, rows),
            Points(
                np.log([sample.value for sample in seen]),
                0.5 ** (np.array([max(0.0, now - sample.at) for sample in seen]) / HALF_LIFE),
                np.zeros(len(seen), dtype=np.bool_),
            ),
            prior=start,
            spread=np.array([10.0, *[_spread(kind, 3 * _SPREAD)] * len(names)]),
        )
        powers = dict(zip(names, found.theta[1:].tolist(), strict=True))
        return cls(powers, found.covariance[1:, 1:], samples=len(seen))

    def data(self) -> dict[str, Any]:
        return {
            "model": KIND,
            "version": 1,
            "powers": self.powers,
            "order": list(self.powers),
            "covariance": self.covariance.tolist(),
            "samples": self.samples,
        }

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Self:
        try:
            stored = msgspec.convert(data, _Stored)
        except msgspec.ValidationError as error:
            raise TrimtabError(f"an effect of model {KIND!r} cannot be read: {error}") from None
        names, covariance = tuple(stored.order or stored.powers), np.array(stored.covariance)
        powers = {name: stored.powers.get(name, nan) for name in names}
        if covariance.shape != (len(powers), len(powers)):
            raise TrimtabError(
                f"an effect of model {KIND!r} cannot be read: its covariance is not of its powers"
            )
        if names[: len(_KNOBS)] != _KNOBS or any(map(isnan, powers.values())):
            raise TrimtabError(f"an effect of model {KIND!r} cannot be read: its powers are not {_KNOBS}")
        return cls(powers, covariance, samples=stored.samples)


class _Stored(msgspec.Struct):
    powers: dict[str, float]
    covariance: list[list[float]]
    order: list[str] = []
    """Of the powers in the covariance: on its way to a plugin, a map forgets its own."""
    samples: int = 0


def _spread(kind: KPIType, usual: float) -> float:
    return _SPREAD_OF_UNKNOWN if kind is KPIType.CUSTOM else usual


def _before(kind: KPIType, seen: Sample) -> dict[str, float]:
    if kind is KPIType.THROUGHPUT:
        full = 1.0 if (seen.busy or 0.0) > _BRIMMING else 0.0
        return {"replicas": full, "cpu": full, "memory": 0.0, "load": 1.0 - full}
    if kind is KPIType.POWER:
        return {"replicas": 0.8, "cpu": 0.4, "memory": 0.0, "load": 0.2}
    return dict.fromkeys(_KNOBS, 0.0)


def _chosen(places: Sequence[Knobs], options: Sequence[str]) -> Floats:
    """Of each option, whether it is set there."""
    chosen = np.zeros((len(places), len(options)))
    if not any(each.cache or each.power for each in places):
        return chosen
    for column, name in enumerate(options):
        for row, each in enumerate(places):
            if name in {each.cache, each.power}:
                chosen[row, column] = 1.0
    return chosen


@njit(cache=True, error_model="numpy")
def _features(at: Floats, chosen: Floats, into: Floats) -> None:
    """The logarithms of the knobs, nothing where one is not known; and of each option, whether it is set."""
    for row in range(at.shape[0]):
        for knob in range(4):
            into[row, knob] = np.log(at[row, knob]) if np.isfinite(at[row, knob]) else 0.0
        into[row, 4:] = chosen[row]


@njit(cache=True, error_model="numpy")
def _moves(powers: Floats, covariance: Floats, at: Floats, chosen: Floats) -> Any:
    """How the logarithm moves from the first place to the others, and its standard deviation: two rows."""
    features = np.empty((at.shape[0], powers.size))
    _features(at, chosen, features)
    found = np.zeros((2, at.shape[0] - 1))
    for row in range(1, at.shape[0]):
        way = features[row] - features[0]
        variance = 0.0
        for i in range(powers.size):
            if way[i] != 0.0:
                found[0, row - 1] += powers[i] * way[i]
                for j in range(powers.size):
                    variance += way[i] * covariance[i, j] * way[j]
        found[1, row - 1] = np.sqrt(max(0.0, variance))
    return found

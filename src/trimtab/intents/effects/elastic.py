"""Elastic: what moves throughput, power and objectives of one's own: a power of each knob, learned from events.

Beforehand, throughput follows the pods' CPU only while they are busy to the brim, power follows replicas and CPU,
and of an objective of one's own nothing is known: nothing is thought to move it until events show what does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, log, sqrt
from typing import Any, Self

import msgspec
import numpy as np

from trimtab.api.kpiprofile import KPIType
from trimtab.errors import TrimtabError
from trimtab.intents.effects.fitting import Floats, fit
from trimtab.intents.effects.knobs import Knobs, knobs
from trimtab.intents.effects.model import STILL, Move
from trimtab.intents.effects.sample import Sample
from trimtab.intents.effects.service import HALF_LIFE
from trimtab.intents.state import State

KIND = "elastic"
_KNOBS = ("replicas", "cpu", "memory", "load")
_BRIMMING = 0.85
"""From here on, pods are thought to turn requests away."""
_SPREAD = 0.1
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
        self._rows = covariance.tolist()
        self._place = {name: place for place, name in enumerate(self.powers)}

    def move(self, before: State, after: State, value: float) -> Move:  # noqa: ARG002 - a power law is in proportion
        was, would = knobs(before), knobs(after)
        if was == would:
            return STILL
        ways = self._ways(was, would)
        by = sum(self.powers[name] * way for name, way in ways)
        place, rows = self._place, self._rows
        variance = sum(one * rows[place[a]][place[b]] * other for a, one in ways for b, other in ways)
        return Move(by, sqrt(max(0.0, variance)))

    def _ways(self, was: Knobs, would: Knobs) -> list[tuple[str, float]]:
        """By how much each feature moves."""
        ways = [
            (name, log(b / a))
            for name, a, b in zip(_KNOBS, was[:4], would[:4], strict=True)
            if a != b and isfinite(a) and isfinite(b)
        ]
        for left, taken in ((was.cache, would.cache), (was.power, would.power)):
            if left != taken:
                ways += [(name, sign) for name, sign in ((left, -1.0), (taken, 1.0)) if name in self.powers]
        return ways

    @classmethod
    def guess(cls, kind: KPIType, seen: Sample) -> Self:
        """What is thought of an objective that was measured once."""
        powers = {**_before(kind, seen), **(_POWER if kind is KPIType.POWER else {})}
        return cls(powers, np.diag(np.full(len(powers), _SPREAD**2)), samples=0)

    @classmethod
    def learn(cls, kind: KPIType, seen: Sequence[Sample], *, now: float) -> Self:
        prior = cls.guess(kind, seen[-1]).powers
        for sample in seen:
            prior.update({name: 0.0 for name in sample.knobs[4:] if name and name not in prior})
        names = list(prior)
        rows = np.array([[1.0, *(_feature(sample.knobs, name) for name in names)] for sample in seen])
        start = np.array([float(np.mean([log(sample.value) for sample in seen])), *prior.values()])
        # The level is measured from the middle of the points, so that it and the powers can be told apart.
        rows[:, 1:] -= rows[:, 1:].mean(axis=0)
        found = fit(
            lambda theta: (rows @ theta, rows),
            np.log([sample.value for sample in seen]),
            0.5 ** (np.array([max(0.0, now - sample.at) for sample in seen]) / HALF_LIFE),
            prior=start,
            spread=np.array([10.0, *[3 * _SPREAD] * len(names)]),
        )
        powers = dict(zip(names, found.theta[1:].tolist(), strict=True))
        return cls(powers, found.covariance[1:, 1:], samples=len(seen))

    def data(self) -> dict[str, Any]:
        return {
            "model": KIND,
            "version": 1,
            "powers": self.powers,
            "covariance": self.covariance.tolist(),
            "samples": self.samples,
        }

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Self:
        try:
            stored = msgspec.convert(data, _Stored)
        except msgspec.ValidationError as error:
            raise TrimtabError(f"an effect of model {KIND!r} cannot be read: {error}") from None
        covariance = np.array(stored.covariance)
        if covariance.shape != (len(stored.powers), len(stored.powers)):
            raise TrimtabError(
                f"an effect of model {KIND!r} cannot be read: its covariance is not of its powers"
            )
        return cls(stored.powers, covariance, samples=stored.samples)


class _Stored(msgspec.Struct):
    powers: dict[str, float]
    covariance: list[list[float]]
    samples: int = 0


def _before(kind: KPIType, seen: Sample) -> dict[str, float]:
    if kind is KPIType.THROUGHPUT:
        full = 1.0 if (seen.busy or 0.0) > _BRIMMING else 0.0
        return {"replicas": full, "cpu": full, "memory": 0.0, "load": 1.0 - full}
    if kind is KPIType.POWER:
        return {"replicas": 0.8, "cpu": 0.4, "memory": 0.0, "load": 0.2}
    return dict.fromkeys(_KNOBS, 0.0)


def _feature(at: Knobs, name: str) -> float:
    if name in _KNOBS:
        value: float = getattr(at, name)
        return log(value) if isfinite(value) else 0.0
    return float(name in {at.cache, at.power})

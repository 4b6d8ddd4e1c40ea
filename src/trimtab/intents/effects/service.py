"""Service: what moves a latency: the curve, with parameters that are guessed first and learned from events.

Guessed: of a service of which one measurement is known, 30 % of the latency is what no resource makes faster, and it
is as busy as its CPU usage tells, or 40 % when that is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, isnan, log
from typing import Any, NamedTuple, Self

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from trimtab.errors import TrimtabError
from trimtab.intents.effects import curve
from trimtab.intents.effects.fitting import NOISE, Floats, fit
from trimtab.intents.effects.knobs import Fan, Knobs
from trimtab.intents.effects.model import Moves
from trimtab.intents.effects.sample import Sample

Indices = npt.NDArray[np.int64]

KIND = "service"
FASTER = {
    "cache:guaranteed": -0.10,
    "cache:burstable": -0.06,
    "cache:besteffort": 0.05,
    "power:performance": -0.15,
    "power:balance-performance": -0.08,
    "power:balance-power": 0.05,
    "power:power": 0.15,
}
"""How options are thought to move the logarithm of a latency, before anything is known."""
FIXED_SHARE = 0.3
USUALLY_BUSY = 0.4
BUSY_UNSEEN = 0.2
"""How busy it is thought to have been where neither load nor use was recorded: little that one could learn from."""
OPENNESS = 2.0
"""How many times as far from the guess parameters may lie once there are events."""
_PARAMETERS = ("level", "share", "speed", "demand", "scaling", "need", "knee")
_SPREADS = (1.5, 0.7, 0.25, 0.5, 0.6, 0.4, 0.3)
_SPREAD_OF_KNOWN_DEMAND = 0.15
_SPREAD_OF_OPTION = 0.10
HALF_LIFE = 14 * 86400.0
"""Seconds after which an event counts half: services change."""


class Usual(NamedTuple):
    """Where the curve is at home."""

    load: float
    """Taken for a load that is not known."""
    replicas: float
    """What replicas are measured by: so a doubt about how pods scale is none about the pods that are there."""

    def relative(self, at: Floats) -> Floats:
        """Places as the curve takes them."""
        found: Floats = curve.relative(at, self.replicas, self.load)
        return found


class Service:
    """A model of one latency."""

    def __init__(
        self,
        theta: Floats,
        covariance: Floats,
        *,
        options: Sequence[str],
        usual: Usual,
        samples: int,
        noise: float,
    ) -> None:
        self.theta, self.covariance = theta, covariance
        self.options = {name: curve.OPTIONS + place for place, name in enumerate(options)}
        self.usual, self.samples, self.noise = usual, samples, noise

    def moves(self, fan: Fan, value: float) -> Moves:  # noqa: ARG002 - the curve is in proportion
        caches, powers = self._options(fan.places)
        by, spread = curve.moves(
            self.theta, self.covariance, self.usual.relative(fan.at), caches, powers
        ).tolist()
        return by, spread

    def at(self, places: Sequence[Knobs]) -> Floats:
        """The latency that the curve itself has at these."""
        points = self.usual.relative(np.array([each[:4] for each in places]))
        slopes = np.empty((len(places), self.theta.size))
        high: Floats = curve.heights(self.theta, points, *self._options(places), slopes)
        return np.exp(high)

    def _options(self, places: Sequence[Knobs]) -> tuple[Indices, Indices]:
        place = self.options.get
        if not any(each.cache or each.power for each in places):
            none = np.full(len(places), -1)
            return none, none
        return (
            np.array([place(each.cache, -1) for each in places]),
            np.array([place(each.power, -1) for each in places]),
        )

    @classmethod
    def guess(cls, seen: Sample) -> Self:
        """What is thought of a service that was measured once."""
        at = seen.knobs
        load = 1.0 if isnan(at.load) else at.load
        busy_now = USUALLY_BUSY if seen.busy is None else seen.busy
        work = (1 - FIXED_SHARE) * (1 - busy_now) * at.cpu
        memory = at.memory if isfinite(at.memory) else 2.0**30
        theta = [
            log(seen.value * (FIXED_SHARE + work)),
            log(FIXED_SHARE / work),
            0.0,
            log(busy_now * at.cpu / load),
            0.0,
            log((seen.memory_used or memory / 2) * 1.1),
            log(2.0),
            *FASTER.values(),
        ]
        spreads = np.array([*_SPREADS, *[_SPREAD_OF_OPTION] * len(FASTER)])
        if seen.busy is not None:
            spreads[curve.DEMAND] = _SPREAD_OF_KNOWN_DEMAND
        return cls(
            np.array(theta),
            np.diag(spreads**2),
            options=tuple(FASTER),
            usual=Usual(load, at.replicas),
            samples=0,
            noise=NOISE,
        )

    @classmethod
    def learn(cls, seen: Sequence[Sample], *, now: float) -> Self:
        """What is thought after these events: guessed at the busiest of them, where most can be told, then fitted."""
        fullest = max(seen, key=_fullness)
        if isnan(fullest.knobs.load) and fullest.busy is None:
            fullest = replace(fullest, busy=BUSY_UNSEEN)
        prior = cls.guess(fullest)
        options = sorted(
            {*FASTER, *(name for each in seen for name in each.knobs[4:6] if name)}, key=_first_known
        )
        place = {"": -1, **{name: curve.OPTIONS + at for at, name in enumerate(options)}}
        theta = np.array([*prior.theta[: curve.OPTIONS], *(FASTER.get(name, 0.0) for name in options)])
        spreads = np.full(theta.size, _SPREAD_OF_OPTION)
        spreads[: curve.OPTIONS] = OPENNESS * np.sqrt(np.diag(prior.covariance))[: curve.OPTIONS]
        at = prior.usual.relative(np.array([each.knobs[:4] for each in seen]))
        caches = np.array([place[each.knobs.cache] for each in seen])
        powers = np.array([place[each.knobs.power] for each in seen])
        slopes = np.empty((len(seen), theta.size))

        def shape(theta: Floats) -> tuple[Floats, Floats]:
            return curve.heights(theta, at, caches, powers, slopes), slopes.copy()

        found = fit(
            shape,
            np.log([each.value for each in seen]),
            _weights(seen, at[:, 3], now),
            prior=theta,
            spread=spreads,
        )
        return cls(
            found.theta,
            found.covariance,
            options=options,
            usual=Usual(float(np.median(at[:, 3])), prior.usual.replicas),
            samples=len(seen),
            noise=found.noise,
        )

    def data(self) -> dict[str, Any]:
        names = (*_PARAMETERS, *self.options)
        return {
            "model": KIND,
            "version": 1,
            "parameters": dict(zip(names, self.theta.tolist(), strict=True)),
            "covariance": self.covariance.tolist(),
            "usualLoad": self.usual.load,
            "usualReplicas": self.usual.replicas,
            "samples": self.samples,
            "noise": self.noise,
        }

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Self:
        try:
            stored = msgspec.convert(data, _Stored)
        except msgspec.ValidationError as error:
            raise TrimtabError(f"an effect of model {KIND!r} cannot be read: {error}") from None
        names = tuple(stored.parameters)
        theta, covariance = np.array(list(stored.parameters.values())), np.array(stored.covariance)
        if names[: curve.OPTIONS] != _PARAMETERS or covariance.shape != (theta.size, theta.size):
            raise TrimtabError(
                f"an effect of model {KIND!r} cannot be read: its parameters are not {_PARAMETERS}"
            )
        if not (np.isfinite(theta).all() and np.isfinite(covariance).all()):
            raise TrimtabError(
                f"an effect of model {KIND!r} cannot be read: its parameters are not all numbers"
            )
        return cls(
            theta,
            covariance,
            options=names[curve.OPTIONS :],
            usual=Usual(stored.usual_load, stored.usual_replicas),
            samples=stored.samples,
            noise=stored.noise,
        )


class _Stored(msgspec.Struct, rename="camel"):
    parameters: dict[str, float]
    covariance: list[list[float]]
    usual_load: float
    usual_replicas: float = 1.0
    samples: int = 0
    noise: float = NOISE


def _first_known(name: str) -> tuple[int, str]:
    """Options that are known beforehand come first, so that parameters keep their place."""
    return (list(FASTER).index(name) if name in FASTER else len(FASTER), name)


def _weights(seen: Sequence[Sample], load: Floats, now: float) -> Floats:
    """What is old counts less, and so does a percentile of few requests."""
    age = np.array([max(0.0, now - each.at) for each in seen])
    return np.asarray(0.5 ** (age / HALF_LIFE) * np.minimum(1.0, load / np.median(load)))


def _fullness(sample: Sample) -> float:
    at = sample.knobs
    return 0.0 if isnan(at.load) else at.load / (at.replicas * at.cpu)

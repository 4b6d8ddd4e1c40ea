"""Service: what moves a latency: the curve, with parameters that are guessed first and learned from events.

Guessed: of a service of which one measurement is known, 30 % of the latency is what no resource makes faster, and it
is as busy as its CPU usage tells, or 40 % when that is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, isnan, log, nan
from typing import Annotated, Any, NamedTuple, Self

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from trimtab.errors import TrimtabError
from trimtab.intents.effects import latency_curve
from trimtab.intents.effects.inputs import Fan, Knobs
from trimtab.intents.effects.model import Moves
from trimtab.intents.effects.robust_fit import NOISE, Fit, Floats, Points, fit
from trimtab.intents.effects.samples import Sample, under_ceilings

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
BUSY_UNSEEN = 0.1
"""How busy it is thought to have been where neither load nor use was recorded: little that one could learn from."""
WIDE, MANY = 3.0, 3
"""An edge is only told from a bend where sizes this far apart were seen, and so many: a few that are alike would seem to
tell for certain that nothing helps."""
CLEARLY = 1.02
"""By which factor the longer of the two must be nearer to events than the sum: a queue is a sum."""
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
        found: Floats = latency_curve.relative(at, self.replicas, self.load)
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
        edge: float = latency_curve.ADDED,
    ) -> None:
        self.theta, self.covariance, self.edge = theta, covariance, edge
        self.options = {name: latency_curve.OPTIONS + place for place, name in enumerate(options)}
        self.usual, self.samples, self.noise = usual, samples, noise

    def moves(self, fan: Fan, value: float) -> Moves:  # noqa: ARG002 - the curve is in proportion
        caches, powers = self._options(fan.places)
        by, spread = latency_curve.moves(
            self.theta, self.edge, self.covariance, self.usual.relative(fan.at), caches, powers
        ).tolist()
        return by, spread

    def at(self, places: Sequence[Knobs]) -> Floats:
        """The latency that the curve itself has at these."""
        points = self.usual.relative(np.array([each[:4] for each in places]))
        slopes = np.empty((len(places), self.theta.size))
        high: Floats = latency_curve.heights(self.theta, self.edge, points, *self._options(places), slopes)
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
        work = (1 - FIXED_SHARE) / float(latency_curve.queue(busy_now)) * at.cpu
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
            spreads[latency_curve.DEMAND] = _SPREAD_OF_KNOWN_DEMAND
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
        """What is thought after these events: guessed at the busiest of them, where most can be told, then fitted.

        Two shapes are fitted, with what is fixed added to the work and with the longer of the two; both have the same
        parameters and the same guess, so the one that is nearer to the events is the likelier.
        """
        seen = under_ceilings(seen)
        prior = cls.guess(_fullest(seen))
        options = sorted(
            {*FASTER, *(name for each in seen for name in each.knobs[4:6] if name)}, key=_first_known
        )
        place = {"": -1, **{name: latency_curve.OPTIONS + at for at, name in enumerate(options)}}
        theta = np.array(
            [*prior.theta[: latency_curve.OPTIONS], *(FASTER.get(name, 0.0) for name in options)]
        )
        at = prior.usual.relative(np.array([each.knobs[:4] for each in seen]))
        caches = np.array([place[each.knobs.cache] for each in seen])
        powers = np.array([place[each.knobs.power] for each in seen])
        slopes = np.empty((len(seen), theta.size))
        points = Points(
            np.log([each.value for each in seen]),
            _weights(seen, at[:, 3], now),
            np.array([each.at_least for each in seen]),
        )

        def fitted(edge: float) -> Fit:
            def shape(theta: Floats) -> tuple[Floats, Floats]:
                return latency_curve.heights(theta, edge, at, caches, powers, slopes), slopes.copy()

            return fit(shape, points, prior=theta, spread=_open(prior, seen, theta.size))

        fits = {edge: fitted(edge) for edge in _edges(seen)}
        edge = min(fits, key=lambda edge: fits[edge].far * (CLEARLY if edge != latency_curve.ADDED else 1.0))
        return cls(
            fits[edge].theta,
            fits[edge].covariance,
            edge=edge,
            options=options,
            usual=Usual(float(np.median(at[:, 3])), prior.usual.replicas),
            samples=len(seen),
            noise=fits[edge].noise,
        )

    def data(self) -> dict[str, Any]:
        names = (*_PARAMETERS, *self.options)
        return {
            "model": KIND,
            "version": 1,
            "parameters": dict(zip(names, self.theta.tolist(), strict=True)),
            "order": list(names),
            "covariance": self.covariance.tolist(),
            "edge": self.edge,
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
        names = tuple(stored.order or stored.parameters)
        theta = np.array([stored.parameters.get(name, nan) for name in names])
        covariance = np.array(stored.covariance)
        if names[: latency_curve.OPTIONS] != _PARAMETERS or covariance.shape != (theta.size, theta.size):
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
            options=names[latency_curve.OPTIONS :],
            usual=Usual(stored.usual_load, stored.usual_replicas),
            samples=stored.samples,
            noise=stored.noise,
            edge=stored.edge,
        )


class _Stored(msgspec.Struct, rename="camel"):
    parameters: dict[str, float]
    covariance: list[list[float]]
    usual_load: float
    order: list[str] = []
    """Of the parameters in the covariance: on its way to a plugin, a map forgets its own."""
    usual_replicas: float = 1.0
    samples: int = 0
    noise: float = NOISE
    edge: Annotated[float, msgspec.Meta(ge=1.0, le=64.0)] = latency_curve.ADDED


def _first_known(name: str) -> tuple[int, str]:
    """Options that are known beforehand come first, so that parameters keep their place."""
    return (list(FASTER).index(name) if name in FASTER else len(FASTER), name)


def _weights(seen: Sequence[Sample], load: Floats, now: float) -> Floats:
    """What is old counts less, and so does a percentile of few requests."""
    age = np.array([max(0.0, now - each.at) for each in seen])
    return np.asarray(0.5 ** (age / HALF_LIFE) * np.minimum(1.0, load / np.median(load)))


def _open(prior: Service, seen: Sequence[Sample], size: int) -> Floats:
    """How far parameters may lie from the guess. Of pods whose load was never told and whose number never changed,
    waiting cannot be told from work, and is not made up.
    """
    spreads = np.full(size, _SPREAD_OF_OPTION)
    spreads[: latency_curve.OPTIONS] = OPENNESS * np.sqrt(np.diag(prior.covariance))[: latency_curve.OPTIONS]
    if all(isnan(each.knobs.load) for each in seen) and len({each.knobs.replicas for each in seen}) == 1:
        spreads[latency_curve.DEMAND] = _SPREAD_OF_KNOWN_DEMAND
    return spreads


def _edges(seen: Sequence[Sample]) -> tuple[float, ...]:
    """The shapes that these events can tell apart."""
    sizes = {each.knobs.cpu for each in seen if not each.at_least}
    told = len(sizes) >= MANY and max(sizes) >= WIDE * min(sizes)
    return (latency_curve.ADDED, latency_curve.LONGER) if told else (latency_curve.ADDED,)


def _fullest(seen: Sequence[Sample]) -> Sample:
    """The busiest of which the latency is known, as far as can be told; else the largest that was not enough."""
    known = [each for each in seen if not each.at_least]
    if not known:
        return max(seen, key=lambda each: each.knobs.replicas * each.knobs.cpu)
    told = [each for each in known if not isnan(each.knobs.load)]
    fullest = max(
        told or known,
        key=lambda each: (each.knobs.load if told else 1.0) / (each.knobs.replicas * each.knobs.cpu),
    )
    return fullest if told or fullest.busy is not None else replace(fullest, busy=BUSY_UNSEEN)

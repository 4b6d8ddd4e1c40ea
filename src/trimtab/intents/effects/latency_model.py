"""The model of a latency: the latency curve, with parameters from a prior first and then learned from events.

The prior assumes that 30 % of the latency is fixed, and derives the utilization from the CPU usage, or assumes 40
% if that is unknown.
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
from trimtab.intents.effects.inputs import InputBatch, ModelInputs
from trimtab.intents.effects.model import PredictedChanges
from trimtab.intents.effects.robust_fit import NOISE, FitPoints, FitResult, Floats, fit
from trimtab.intents.effects.samples import EffectSample, mark_censored

Indices = npt.NDArray[np.int64]

KIND = "service"
OPTION_PRIORS = {
    "cache:guaranteed": -0.10,
    "cache:burstable": -0.06,
    "cache:besteffort": 0.05,
    "power:performance": -0.15,
    "power:balance-performance": -0.08,
    "power:balance-power": 0.05,
    "power:power": 0.15,
}
"""The prior changes of a latency's logarithm by each option."""
FIXED_SHARE = 0.3
DEFAULT_UTILIZATION = 0.4
UNRECORDED_UTILIZATION = 0.1
"""The assumed utilization where neither load nor usage was recorded, low enough that little is learned from it."""
MIN_SIZE_RATIO, MIN_SIZES = 3.0, 3
"""The ratio of sizes, and the number of sizes, from which the fit can separate an edge from a bend. Fewer similar sizes
would seem to prove that nothing helps."""
EDGE_PENALTY = 1.02
"""The factor by which the maximum shape must fit better than the sum, because a queue is a sum."""
PRIOR_WIDENING = 2.0
"""The factor by which the prior is widened once there are events."""
_PARAMETERS = ("level", "share", "speed", "demand", "scaling", "need", "knee")
_PRIOR_SPREADS = (1.5, 0.7, 0.25, 0.5, 0.6, 0.4, 0.3)
_KNOWN_DEMAND_SPREAD = 0.15
_OPTION_SPREAD = 0.10
HALF_LIFE = 14 * 86400.0
"""The seconds after which an event has half its weight, because services change."""


class ReferencePoint(NamedTuple):
    """The reference point of the curve."""

    load: float
    """The load that is assumed where it is unknown."""
    replicas: float
    """The replicas that others are relative to, so that uncertainty about scaling does not affect the existing
    pods."""

    def normalize(self, at: Floats) -> Floats:
        """Return the inputs as the curve expects them."""
        found: Floats = latency_curve.normalize_inputs(at, self.replicas, self.load)
        return found


class LatencyModel:
    """A model of one latency."""

    def __init__(
        self,
        theta: Floats,
        covariance: Floats,
        *,
        options: Sequence[str],
        usual: ReferencePoint,
        samples: int,
        noise: float,
        edge: float = latency_curve.SUM_EDGE,
    ) -> None:
        self.theta, self.covariance, self.edge = theta, covariance, edge
        self.options = {name: latency_curve.OPTIONS + place for place, name in enumerate(options)}
        self.reference, self.samples, self.noise = usual, samples, noise

    def predict_changes(self, batch: InputBatch, value: float) -> PredictedChanges:  # noqa: ARG002 - the curve is in proportion
        caches, powers = self._option_indices(batch.inputs)
        by, spread = latency_curve.predict_log_changes(
            self.theta, self.edge, self.covariance, self.reference.normalize(batch.matrix), caches, powers
        ).tolist()
        return by, spread

    def predict_latency(self, places: Sequence[ModelInputs]) -> Floats:
        """Return the absolute latency of the curve at the inputs."""
        points = self.reference.normalize(np.array([each[:4] for each in places]))
        slopes = np.empty((len(places), self.theta.size))
        high: Floats = latency_curve.log_latencies(
            self.theta, self.edge, points, *self._option_indices(places), slopes
        )
        return np.exp(high)

    def _option_indices(self, places: Sequence[ModelInputs]) -> tuple[Indices, Indices]:
        place = self.options.get
        if not any(each.cache or each.power for each in places):
            none = np.full(len(places), -1)
            return none, none
        return (
            np.array([place(each.cache, -1) for each in places]),
            np.array([place(each.power, -1) for each in places]),
        )

    @classmethod
    def from_prior(cls, sample: EffectSample) -> Self:
        """Return the prior model of a service with one measurement."""
        at = sample.inputs
        load = 1.0 if isnan(at.load) else at.load
        busy_now = DEFAULT_UTILIZATION if sample.cpu_utilization is None else sample.cpu_utilization
        work = (1 - FIXED_SHARE) / float(latency_curve.queueing_factor(busy_now)) * at.cpu
        memory = at.memory if isfinite(at.memory) else 2.0**30
        theta = [
            log(sample.value * (FIXED_SHARE + work)),
            log(FIXED_SHARE / work),
            0.0,
            log(busy_now * at.cpu / load),
            0.0,
            log((sample.memory_used or memory / 2) * 1.1),
            log(2.0),
            *OPTION_PRIORS.values(),
        ]
        spreads = np.array([*_PRIOR_SPREADS, *[_OPTION_SPREAD] * len(OPTION_PRIORS)])
        if sample.cpu_utilization is not None:
            spreads[latency_curve.DEMAND] = _KNOWN_DEMAND_SPREAD
        return cls(
            np.array(theta),
            np.diag(spreads**2),
            options=tuple(OPTION_PRIORS),
            usual=ReferencePoint(load, at.replicas),
            samples=0,
            noise=NOISE,
        )

    @classmethod
    def fit_samples(cls, samples: Sequence[EffectSample], *, now: float) -> Self:
        """Fit the model, with a prior from the busiest sample, which is the most informative one.

        Two shapes are fitted: the sum of fixed time and work, and the larger of the two. Both have the same
        parameters and prior, so the better fit is the more probable one.
        """
        samples = mark_censored(samples)
        prior = cls.from_prior(_busiest_sample(samples))
        options = sorted(
            {*OPTION_PRIORS, *(name for each in samples for name in each.inputs[4:6] if name)},
            key=_option_order,
        )
        place = {"": -1, **{name: latency_curve.OPTIONS + at for at, name in enumerate(options)}}
        theta = np.array(
            [*prior.theta[: latency_curve.OPTIONS], *(OPTION_PRIORS.get(name, 0.0) for name in options)]
        )
        at = prior.reference.normalize(np.array([each.inputs[:4] for each in samples]))
        caches = np.array([place[each.inputs.cache] for each in samples])
        powers = np.array([place[each.inputs.power] for each in samples])
        slopes = np.empty((len(samples), theta.size))
        points = FitPoints(
            np.log([each.value for each in samples]),
            _sample_weights(samples, at[:, 3], now),
            np.array([each.is_censored for each in samples]),
        )

        def fit_edge(edge: float) -> FitResult:
            def shape(theta: Floats) -> tuple[Floats, Floats]:
                return latency_curve.log_latencies(theta, edge, at, caches, powers, slopes), slopes.copy()

            return fit(shape, points, prior=theta, spread=_prior_spread(prior, samples, theta.size))

        fits = {edge: fit_edge(edge) for edge in _candidate_edges(samples)}
        edge = min(
            fits, key=lambda edge: fits[edge].loss * (EDGE_PENALTY if edge != latency_curve.SUM_EDGE else 1.0)
        )
        return cls(
            fits[edge].theta,
            fits[edge].covariance,
            edge=edge,
            options=options,
            usual=ReferencePoint(float(np.median(at[:, 3])), prior.reference.replicas),
            samples=len(samples),
            noise=fits[edge].noise,
        )

    def encode(self) -> dict[str, Any]:
        names = (*_PARAMETERS, *self.options)
        return {
            "model": KIND,
            "version": 1,
            "parameters": dict(zip(names, self.theta.tolist(), strict=True)),
            "order": list(names),
            "covariance": self.covariance.tolist(),
            "edge": self.edge,
            "usualLoad": self.reference.load,
            "usualReplicas": self.reference.replicas,
            "samples": self.samples,
            "noise": self.noise,
        }

    @classmethod
    def decode(cls, data: Mapping[str, Any]) -> Self:
        try:
            stored = msgspec.convert(data, _StoredLatencyModel)
        except msgspec.ValidationError as error:
            raise TrimtabError(f"an effect of model {KIND!r} cannot be read: {error}") from None
        names = tuple(stored.order or stored.parameters)
        theta = np.array([stored.parameters.get(name, nan) for name in names])
        covariance = np.array(stored.covariance)
        if names[: latency_curve.OPTIONS] != _PARAMETERS or covariance.shape != (theta.size, theta.size):
            raise TrimtabError(
                f"an effect of model {KIND!r} cannot be read: its parameters are not {_PARAMETERS}"
            )
        # A plugin may send NaN: every prediction would be NaN, and every comparison with it false.
        if not (np.isfinite(theta).all() and np.isfinite(covariance).all()):
            raise TrimtabError(
                f"an effect of model {KIND!r} cannot be read: its parameters are not all numbers"
            )
        return cls(
            theta,
            covariance,
            options=names[latency_curve.OPTIONS :],
            usual=ReferencePoint(stored.usual_load, stored.usual_replicas),
            samples=stored.samples,
            noise=stored.noise,
            edge=stored.edge,
        )


class _StoredLatencyModel(msgspec.Struct, rename="camel"):
    parameters: dict[str, float]
    covariance: list[list[float]]
    usual_load: float
    order: list[str] = []
    """The order of the parameters in the covariance, because a map in a plugin message has no order."""
    usual_replicas: float = 1.0
    samples: int = 0
    noise: float = NOISE
    edge: Annotated[float, msgspec.Meta(ge=1.0, le=64.0)] = latency_curve.SUM_EDGE


def _option_order(name: str) -> tuple[int, str]:
    """Sort options with a prior first, so that parameters keep their position."""
    return (list(OPTION_PRIORS).index(name) if name in OPTION_PRIORS else len(OPTION_PRIORS), name)


def _sample_weights(samples: Sequence[EffectSample], load: Floats, now: float) -> Floats:
    """Weight samples by age, and percentiles of few requests less."""
    age = np.array([max(0.0, now - each.at) for each in samples])
    return np.asarray(0.5 ** (age / HALF_LIFE) * np.minimum(1.0, load / np.median(load)))


def _prior_spread(prior: LatencyModel, samples: Sequence[EffectSample], size: int) -> Floats:
    """Return the standard deviations of the prior. Without load data and with a constant number of pods, waiting
    cannot be separated from work, so its prior stays narrow.
    """
    spreads = np.full(size, _OPTION_SPREAD)
    spreads[: latency_curve.OPTIONS] = (
        PRIOR_WIDENING * np.sqrt(np.diag(prior.covariance))[: latency_curve.OPTIONS]
    )
    if (
        all(isnan(each.inputs.load) for each in samples)
        and len({each.inputs.replicas for each in samples}) == 1
    ):
        spreads[latency_curve.DEMAND] = _KNOWN_DEMAND_SPREAD
    return spreads


def _candidate_edges(samples: Sequence[EffectSample]) -> tuple[float, ...]:
    """Return the shapes that the samples can distinguish."""
    sizes = {each.inputs.cpu for each in samples if not each.is_censored}
    has_enough_sizes = len(sizes) >= MIN_SIZES and max(sizes) >= MIN_SIZE_RATIO * min(sizes)
    return (latency_curve.SUM_EDGE, latency_curve.MAX_EDGE) if has_enough_sizes else (latency_curve.SUM_EDGE,)


def _busiest_sample(samples: Sequence[EffectSample]) -> EffectSample:
    """Return the busiest sample with a known latency; otherwise the largest saturated one."""
    known = [each for each in samples if not each.is_censored]
    if not known:
        return max(samples, key=lambda each: each.inputs.replicas * each.inputs.cpu)
    with_load = [each for each in known if not isnan(each.inputs.load)]
    fullest = max(
        with_load or known,
        key=lambda each: (each.inputs.load if with_load else 1.0) / (each.inputs.replicas * each.inputs.cpu),
    )
    return (
        fullest
        if with_load or fullest.cpu_utilization is not None
        else replace(fullest, cpu_utilization=UNRECORDED_UTILIZATION)
    )

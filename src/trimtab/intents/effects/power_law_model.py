"""The model of throughput, power and custom objectives: a power law of each input, learned from events.

As a prior, throughput follows CPU only while pods are saturated, and power follows replicas and CPU. A custom
objective has no prior: no action counts on improving it before events show an effect, and a release assumes that
any reduction may worsen it proportionally.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan, log, nan
from typing import Any, Self

import msgspec
import numpy as np

from trimtab.api.kpiprofile import KPIType
from trimtab.errors import TrimtabError
from trimtab.intents.effects.inputs import InputBatch, ModelInputs
from trimtab.intents.effects.latency_model import HALF_LIFE, OPTION_PRIORS
from trimtab.intents.effects.model import PredictedChanges
from trimtab.intents.effects.robust_fit import FitPoints, Floats, fit
from trimtab.intents.effects.samples import EffectSample
from trimtab.kernel import kernel

KIND = "elastic"
_INPUTS = ("replicas", "cpu", "memory", "load")
_SATURATED = 0.85
"""The utilization above which pods are assumed to reject requests."""
_SPREAD = 0.1
_CUSTOM_SPREAD = 1.0
_POWER_PRIORS = {
    "power:performance": 0.15,
    "power:balance-performance": 0.05,
    "power:balance-power": -0.1,
    "power:power": -0.2,
}


class PowerLawModel:
    """A model of one objective."""

    def __init__(self, powers: Mapping[str, float], covariance: Floats, *, samples: int) -> None:
        self.exponents, self.samples = dict(powers), samples
        self.covariance = np.ascontiguousarray(covariance)  # as the kernels are compiled for
        self._theta = np.array(list(powers.values()))
        self._options = [name for name in powers if name not in _INPUTS]

    def predict_changes(self, batch: InputBatch, value: float) -> PredictedChanges:  # noqa: ARG002 - a power law is in proportion
        by, spread = _predict_log_changes(
            self._theta, self.covariance, batch.matrix, _option_indicators(batch.inputs, self._options)
        ).tolist()
        return by, spread

    @classmethod
    def from_prior(cls, kind: KPIType, sample: EffectSample) -> Self:
        """Return the prior model of an objective with one measurement."""
        options = _POWER_PRIORS if kind is KPIType.POWER else dict.fromkeys(OPTION_PRIORS, 0.0)
        powers = {**_prior_exponents(kind, sample), **options}
        return cls(powers, np.diag(np.full(len(powers), _prior_spread(kind, _SPREAD) ** 2)), samples=0)

    @classmethod
    def fit_samples(cls, kind: KPIType, samples: Sequence[EffectSample], *, now: float) -> Self:
        prior = cls.from_prior(kind, samples[-1]).exponents
        for sample in samples:
            prior.update({name: 0.0 for name in sample.inputs[4:6] if name and name not in prior})
        names = list(prior)
        places = [sample.inputs for sample in samples]
        chosen = _option_indicators(places, [name for name in names if name not in _INPUTS])
        features = np.empty((len(samples), len(names)))
        _fill_features(np.array([each[:4] for each in places]), chosen, features)
        start = np.array([float(np.mean([log(sample.value) for sample in samples])), *prior.values()])
        # The level is relative to the mean of the points, so that it can be separated from the exponents.
        rows = np.column_stack([np.ones(len(samples)), features - features.mean(axis=0)])
        found = fit(
            lambda theta: (rows @ theta, rows),
            FitPoints(
                np.log([sample.value for sample in samples]),
                0.5 ** (np.array([max(0.0, now - sample.at) for sample in samples]) / HALF_LIFE),
                np.zeros(len(samples), dtype=np.bool_),
            ),
            prior=start,
            spread=np.array([10.0, *[_prior_spread(kind, 3 * _SPREAD)] * len(names)]),
        )
        powers = dict(zip(names, found.theta[1:].tolist(), strict=True))
        return cls(powers, found.covariance[1:, 1:], samples=len(samples))

    def encode(self) -> dict[str, Any]:
        return {
            "model": KIND,
            "version": 1,
            "powers": self.exponents,
            "order": list(self.exponents),
            "covariance": self.covariance.tolist(),
            "samples": self.samples,
        }

    @classmethod
    def decode(cls, data: Mapping[str, Any]) -> Self:
        try:
            stored = msgspec.convert(data, _StoredPowerLaw)
        except msgspec.ValidationError as error:
            raise TrimtabError(f"an effect of model {KIND!r} cannot be read: {error}") from None
        names, covariance = tuple(stored.order or stored.powers), np.array(stored.covariance)
        powers = {name: stored.powers.get(name, nan) for name in names}
        if covariance.shape != (len(powers), len(powers)):
            raise TrimtabError(
                f"an effect of model {KIND!r} cannot be read: its covariance matrix does not match its powers"
            )
        if names[: len(_INPUTS)] != _INPUTS or any(map(isnan, powers.values())):
            raise TrimtabError(f"an effect of model {KIND!r} cannot be read: its powers are not {_INPUTS}")
        return cls(powers, covariance, samples=stored.samples)


class _StoredPowerLaw(msgspec.Struct):
    powers: dict[str, float]
    covariance: list[list[float]]
    order: list[str] = []
    """The order of the exponents in the covariance, because a map in a plugin message has no order."""
    samples: int = 0


def _prior_spread(kind: KPIType, usual: float) -> float:
    return _CUSTOM_SPREAD if kind is KPIType.CUSTOM else usual


def _prior_exponents(kind: KPIType, seen: EffectSample) -> dict[str, float]:
    if kind is KPIType.THROUGHPUT:
        full = 1.0 if (seen.cpu_utilization or 0.0) > _SATURATED else 0.0
        return {"replicas": full, "cpu": full, "memory": 0.0, "load": 1.0 - full}
    if kind is KPIType.POWER:
        return {"replicas": 0.8, "cpu": 0.4, "memory": 0.0, "load": 0.2}
    return dict.fromkeys(_INPUTS, 0.0)


def _option_indicators(places: Sequence[ModelInputs], options: Sequence[str]) -> Floats:
    """Return an indicator matrix: 1 where an option is set."""
    chosen = np.zeros((len(places), len(options)))
    if not any(each.cache or each.power for each in places):
        return chosen
    for column, name in enumerate(options):
        for row, each in enumerate(places):
            if name in {each.cache, each.power}:
                chosen[row, column] = 1.0
    return chosen


@kernel(error_model="numpy")
def _fill_features(at: Floats, chosen: Floats, into: Floats) -> None:
    """Fill in the logarithms of the inputs, 0 for unknown ones, and the option indicators."""
    for row in range(at.shape[0]):
        for knob in range(4):
            into[row, knob] = np.log(at[row, knob]) if np.isfinite(at[row, knob]) else 0.0
        into[row, 4:] = chosen[row]


@kernel(error_model="numpy")
def _predict_log_changes(powers: Floats, covariance: Floats, at: Floats, chosen: Floats) -> Any:
    """Return the change of the logarithm from the first state to the others, and its standard deviation, as two
    rows.
    """
    features = np.empty((at.shape[0], powers.size))
    _fill_features(at, chosen, features)
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

"""Robust fitting of parameters to samples, with a prior.

The result is the most probable set of parameters: outliers have a reduced weight (soft L1), and the prior is a
normal distribution. A censored point, whose true value is at least the measured one, pulls upwards only. Any
number of points is sufficient, and the covariance shows the information in them. With a handful of parameters,
this Levenberg-Marquardt step takes microseconds where a general solver takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
ModelFunction = Callable[[Floats], tuple[Floats, Floats]]
"""A function from parameters to the predictions of all points and their derivatives, one row per point."""

NOISE = 0.15
"""The prior standard deviation of a measured latency's logarithm."""
MIN_NOISE = 0.02
_MAX_STEPS = 60
_CONVERGENCE = 1e-9


class FitResult(NamedTuple):
    theta: Floats
    covariance: Floats
    noise: float
    """The typical residual of the points, without outliers."""
    loss: float
    """The total loss of residuals and prior, by which shapes of one kind are compared."""


class FitPoints(NamedTuple):
    """The points to fit."""

    values: Floats
    weights: Floats
    is_censored: Flags
    """True where the true value is at least the measured one."""

    def residuals(self, predictions: Floats) -> Floats:
        """Return the residuals; a censored point does not contradict a larger prediction."""
        return np.where(self.is_censored & (predictions >= self.values), 0.0, self.values - predictions)

    def robust_weights(self, predictions: Floats, noise: float) -> Floats:
        """Return the weight of each point by its residual; a censored point below the prediction has none."""
        held = np.where(self.is_censored & (predictions >= self.values), 0.0, self.weights / noise**2)
        return np.asarray(held / np.sqrt(1.0 + (self.residuals(predictions) / noise) ** 2))

    def robust_loss(self, predictions: Floats, noise: float) -> float:
        return float(self.weights @ (2 * (np.sqrt(1 + (self.residuals(predictions) / noise) ** 2) - 1)))


def fit(shape: ModelFunction, points: FitPoints, *, prior: Floats, spread: Floats) -> FitResult:
    """Find the most probable parameters; `spread` is the prior's standard deviation of each."""
    noise, precision = NOISE, spread**-2.0
    theta = prior.copy()
    for _ in range(3):
        theta = _minimize(shape, points, theta, prior=prior, precision=precision, noise=noise)
        noise = _estimate_noise(points.residuals(shape(theta)[0])[~points.is_censored])
    predicted, slopes = shape(theta)
    information = (slopes.T * points.robust_weights(predicted, noise)) @ slopes + np.diag(precision)
    far = points.robust_loss(predicted, NOISE) + float(precision @ (theta - prior) ** 2)
    covariance = np.asarray(np.linalg.inv(information), dtype=np.float64)
    if not (np.isfinite(theta).all() and np.isfinite(covariance).all()):
        raise ArithmeticError("the values of the events are too far apart to fit a model")
    return FitResult(theta, covariance, noise, far)


def _minimize(
    shape: ModelFunction, points: FitPoints, theta: Floats, *, prior: Floats, precision: Floats, noise: float
) -> Floats:
    def cost(theta: Floats, predicted: Floats) -> float:
        return points.robust_loss(predicted, noise) + float(precision @ (theta - prior) ** 2)

    predicted, slopes = shape(theta)
    now, damping = cost(theta, predicted), 1e-3
    for _ in range(_MAX_STEPS):
        pull = points.robust_weights(predicted, noise)
        force = slopes.T @ (pull * points.residuals(predicted)) + precision * (prior - theta)
        stiffness = (slopes.T * pull) @ slopes + np.diag(precision)
        step = np.linalg.solve(stiffness + damping * np.diag(np.diag(stiffness)), force)
        tried_predicted, tried_slopes = shape(theta + step)
        then = cost(theta + step, tried_predicted)
        if then < now:
            done = now - then < _CONVERGENCE * now
            theta, predicted, slopes, now, damping = (
                theta + step,
                tried_predicted,
                tried_slopes,
                then,
                damping / 5,
            )
            if done:
                break
        elif damping > 1e8:
            break
        else:
            damping *= 5
    return theta


def _estimate_noise(off: Floats) -> float:
    """Estimate the typical residual; the prior counts as five points."""
    usual = float(np.median(np.abs(off))) * 1.4826 if off.size else NOISE
    return max(MIN_NOISE, (usual * off.size + NOISE * 5) / (off.size + 5))

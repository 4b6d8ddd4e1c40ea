"""Fitting: parameters between what is thought beforehand and what was seen, robust to what is far off.

The most probable parameters: points pull with their residual, but one that is far off pulls with a root's force
only (soft L1), and what was thought beforehand pulls as a normal distribution. A point of which only is known that it
is no less (censored) pulls upwards, never down. So no number of points is too few, and the covariance tells how much
they said. A handful of parameters and points: a Levenberg-Marquardt step of our
own takes microseconds, where a general solver takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
ModelFunction = Callable[[Floats], tuple[Floats, Floats]]
"""From parameters to what they say of each point, and the derivatives of that (a row a point)."""

NOISE = 0.15
"""What a measured latency is off by, as a logarithm, before anything is known."""
MIN_NOISE = 0.02
_MAX_STEPS = 60
_CONVERGENCE = 1e-9


class FitResult(NamedTuple):
    theta: Floats
    covariance: Floats
    noise: float
    """What points are off by, outliers left aside."""
    loss: float
    """How far off points are in all, and parameters from what was thought: by it, shapes of one kind are compared."""


class FitPoints(NamedTuple):
    """What was seen."""

    values: Floats
    weights: Floats
    is_censored: Flags
    """Where the truth is no less than what was seen, and maybe more."""

    def residuals(self, predictions: Floats) -> Floats:
        """How far what was seen is from what is said; what may be more is not contradicted by more."""
        return np.where(self.is_censored & (predictions >= self.values), 0.0, self.values - predictions)

    def robust_weights(self, predictions: Floats, noise: float) -> Floats:
        """With what force each point pulls, for what it is off by; one that is not contradicted does not hold back."""
        held = np.where(self.is_censored & (predictions >= self.values), 0.0, self.weights / noise**2)
        return np.asarray(held / np.sqrt(1.0 + (self.residuals(predictions) / noise) ** 2))

    def robust_loss(self, predictions: Floats, noise: float) -> float:
        return float(self.weights @ (2 * (np.sqrt(1 + (self.residuals(predictions) / noise) ** 2) - 1)))


def fit(shape: ModelFunction, points: FitPoints, *, prior: Floats, spread: Floats) -> FitResult:
    """The most probable parameters; `spread` is the prior's standard deviation of each."""
    noise, precision = NOISE, spread**-2.0
    theta = prior.copy()
    for _ in range(3):
        theta = _minimize(shape, points, theta, prior=prior, precision=precision, noise=noise)
        noise = _estimate_noise(points.residuals(shape(theta)[0])[~points.is_censored])
    says, slopes = shape(theta)
    information = (slopes.T * points.robust_weights(says, noise)) @ slopes + np.diag(precision)
    far = points.robust_loss(says, NOISE) + float(precision @ (theta - prior) ** 2)
    covariance = np.asarray(np.linalg.inv(information), dtype=np.float64)
    if not (np.isfinite(theta).all() and np.isfinite(covariance).all()):
        raise ArithmeticError("the events are further apart than anything can be")
    return FitResult(theta, covariance, noise, far)


def _minimize(
    shape: ModelFunction, points: FitPoints, theta: Floats, *, prior: Floats, precision: Floats, noise: float
) -> Floats:
    def cost(theta: Floats, says: Floats) -> float:
        return points.robust_loss(says, noise) + float(precision @ (theta - prior) ** 2)

    says, slopes = shape(theta)
    now, damping = cost(theta, says), 1e-3
    for _ in range(_MAX_STEPS):
        pull = points.robust_weights(says, noise)
        force = slopes.T @ (pull * points.residuals(says)) + precision * (prior - theta)
        stiffness = (slopes.T * pull) @ slopes + np.diag(precision)
        step = np.linalg.solve(stiffness + damping * np.diag(np.diag(stiffness)), force)
        tried_says, tried_slopes = shape(theta + step)
        then = cost(theta + step, tried_says)
        if then < now:
            done = now - then < _CONVERGENCE * now
            theta, says, slopes, now, damping = theta + step, tried_says, tried_slopes, then, damping / 5
            if done:
                break
        elif damping > 1e8:
            break
        else:
            damping *= 5
    return theta


def _estimate_noise(off: Floats) -> float:
    """The usual size of residuals: of few, what was thought beforehand counts as if it were five points."""
    usual = float(np.median(np.abs(off))) * 1.4826 if off.size else NOISE
    return max(MIN_NOISE, (usual * off.size + NOISE * 5) / (off.size + 5))

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
Shape = Callable[[Floats], tuple[Floats, Floats]]
"""From parameters to what they say of each point, and the derivatives of that (a row a point)."""

NOISE = 0.15
"""What a measured latency is off by, as a logarithm, before anything is known."""
LEAST_NOISE = 0.02
_STEPS = 60
_ENOUGH = 1e-9


class Fit(NamedTuple):
    theta: Floats
    covariance: Floats
    noise: float
    """What points are off by, outliers left aside."""
    far: float
    """How far off points are in all, and parameters from what was thought: by it, shapes of one kind are compared."""


class Points(NamedTuple):
    """What was seen."""

    seen: Floats
    weights: Floats
    at_least: Flags
    """Where the truth is no less than what was seen, and maybe more."""

    def off(self, says: Floats) -> Floats:
        """How far what was seen is from what is said; what may be more is not contradicted by more."""
        return np.where(self.at_least & (says >= self.seen), 0.0, self.seen - says)

    def pull(self, says: Floats, noise: float) -> Floats:
        """With what force each point pulls, for what it is off by; one that is not contradicted does not hold back."""
        held = np.where(self.at_least & (says >= self.seen), 0.0, self.weights / noise**2)
        return np.asarray(held / np.sqrt(1.0 + (self.off(says) / noise) ** 2))

    def far(self, says: Floats, noise: float) -> float:
        return float(self.weights @ (2 * (np.sqrt(1 + (self.off(says) / noise) ** 2) - 1)))


def fit(shape: Shape, points: Points, *, prior: Floats, spread: Floats) -> Fit:
    """The most probable parameters; `spread` is the prior's standard deviation of each."""
    noise, precision = NOISE, spread**-2.0
    theta = prior.copy()
    for _ in range(3):
        theta = _climb(shape, points, theta, prior=prior, precision=precision, noise=noise)
        noise = _noise(points.off(shape(theta)[0])[~points.at_least])
    says, slopes = shape(theta)
    information = (slopes.T * points.pull(says, noise)) @ slopes + np.diag(precision)
    far = points.far(says, NOISE) + float(precision @ (theta - prior) ** 2)
    covariance = np.asarray(np.linalg.inv(information), dtype=np.float64)
    if not (np.isfinite(theta).all() and np.isfinite(covariance).all()):
        raise ArithmeticError("the events are further apart than anything can be")
    return Fit(theta, covariance, noise, far)


def _climb(
    shape: Shape, points: Points, theta: Floats, *, prior: Floats, precision: Floats, noise: float
) -> Floats:
    def cost(theta: Floats, says: Floats) -> float:
        return points.far(says, noise) + float(precision @ (theta - prior) ** 2)

    says, slopes = shape(theta)
    now, damping = cost(theta, says), 1e-3
    for _ in range(_STEPS):
        pull = points.pull(says, noise)
        force = slopes.T @ (pull * points.off(says)) + precision * (prior - theta)
        stiffness = (slopes.T * pull) @ slopes + np.diag(precision)
        step = np.linalg.solve(stiffness + damping * np.diag(np.diag(stiffness)), force)
        tried_says, tried_slopes = shape(theta + step)
        then = cost(theta + step, tried_says)
        if then < now:
            done = now - then < _ENOUGH * now
            theta, says, slopes, now, damping = theta + step, tried_says, tried_slopes, then, damping / 5
            if done:
                break
        elif damping > 1e8:
            break
        else:
            damping *= 5
    return theta


def _noise(off: Floats) -> float:
    """The usual size of residuals: of few, what was thought beforehand counts as if it were five points."""
    usual = float(np.median(np.abs(off))) * 1.4826 if off.size else NOISE
    return max(LEAST_NOISE, (usual * off.size + NOISE * 5) / (off.size + 5))

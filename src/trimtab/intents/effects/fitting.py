"""Fitting: parameters between what is thought beforehand and what was seen, robust to what is far off.

The most probable parameters: points pull with their residual, but one that is far off pulls with a root's force
only (soft L1), and what was thought beforehand pulls as a normal distribution. So no number of points is too few,
and the covariance tells how much they said. A handful of parameters and points: a Levenberg-Marquardt step of our
own takes microseconds, where a general solver takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
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


def fit(shape: Shape, seen: Floats, weights: Floats, *, prior: Floats, spread: Floats) -> Fit:
    """The most probable parameters; `spread` is the prior's standard deviation of each."""
    noise = NOISE
    theta = prior.copy()
    for _ in range(3):
        theta = _climb(
            shape, seen, weights / noise**2, theta, prior=prior, precision=spread**-2.0, noise=noise
        )
        noise = _noise(seen - shape(theta)[0])
    says, slopes = shape(theta)
    pull = weights / noise**2 * _pull(seen - says, noise)
    information = (slopes.T * pull) @ slopes + np.diag(spread**-2.0)
    return Fit(theta, np.asarray(np.linalg.inv(information), dtype=np.float64), noise)


def _climb(
    shape: Shape,
    seen: Floats,
    weights: Floats,
    theta: Floats,
    *,
    prior: Floats,
    precision: Floats,
    noise: float,
) -> Floats:
    def cost(theta: Floats, off: Floats) -> float:
        robust = 2 * noise**2 * (np.sqrt(1 + (off / noise) ** 2) - 1)
        return float(weights @ robust + precision @ (theta - prior) ** 2)

    says, slopes = shape(theta)
    now, damping = cost(theta, seen - says), 1e-3
    for _ in range(_STEPS):
        pull = weights * _pull(seen - says, noise)
        force = slopes.T @ (pull * (seen - says)) + precision * (prior - theta)
        stiffness = (slopes.T * pull) @ slopes + np.diag(precision)
        step = np.linalg.solve(stiffness + damping * np.diag(np.diag(stiffness)), force)
        tried_says, tried_slopes = shape(theta + step)
        then = cost(theta + step, seen - tried_says)
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


def _pull(off: Floats, noise: float) -> Floats:
    """How much of its weight a point keeps."""
    return np.asarray(1.0 / np.sqrt(1.0 + (off / noise) ** 2))


def _noise(off: Floats) -> float:
    """The usual size of residuals: of few, what was thought beforehand counts as if it were five points."""
    usual = float(np.median(np.abs(off))) * 1.4826 if off.size else NOISE
    return max(LEAST_NOISE, (usual * off.size + NOISE * 5) / (off.size + 5))

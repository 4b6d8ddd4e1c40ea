"""The curve of latency against replicas, CPU, memory and load: queueing-shaped, so that few points are enough.

    latency = e^level · (share^edge + work^edge)^(1/edge) · max(1, need / memory)^knee · e^option
    work    = (1 - share) · cpu^-speed · queue(busy)
    busy    = load · demand / (replicas^scaling · cpu)
    queue   = 1 / (1 - busy), and from busy = 0.8 on its power law, which never ends

`share` is what no resource makes faster; `scaling` is 1 where pods share nothing, less where they wait for the same.
`edge` is not fitted but chosen: 1 where what is fixed and the work add up, 8 where the longer of the two counts, as
where a request has so many threads and no use for more cores. More of any resource never makes it slower, whatever
the parameters are. One compiled formula with its derivatives serves fitting (many points) and planning (a few steps, a
thousand times).
"""

from __future__ import annotations

from math import exp, log, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from trimtab.kernel import kernel

Floats = npt.NDArray[np.float64]

LEVEL, SHARE, SPEED, DEMAND, SCALING, NEED, KNEE, OPTIONS = range(8)
"""The indexes of the parameters: share is a logit, all others are logarithms; options follow, one per name."""
SUM_EDGE, MAX_EDGE = 1.0, 8.0
"""The exponents for a sum of fixed time and work, and for the larger of the two."""
SATURATION = 0.8
MODEL_ERROR = 0.1
"""The relative error of a predicted change, however many samples were fitted, because no curve is exact."""


@kernel(error_model="numpy")
def queueing_factor(busy: float) -> Any:
    """Return the ratio of a request's duration to its work."""
    if busy < SATURATION:
        return 1.0 / (1.0 - busy)
    return (busy / SATURATION) ** (SATURATION / (1.0 - SATURATION)) / (1.0 - SATURATION)


@kernel(error_model="numpy")
def log_latency(theta: Floats, edge: float, at: Floats, cache: int, power: int, slope: Floats) -> Any:
    """Return the logarithm of latency at (relative replicas, cpu, memory, load) and store its derivatives in
    `slope`.
    """
    share = 1.0 / (1.0 + exp(-theta[SHARE]))
    speed, demand, scaling = exp(theta[SPEED]), exp(theta[DEMAND]), exp(theta[SCALING])
    busy = at[3] * demand / (at[0] ** scaling * at[1])
    steep = min(busy, SATURATION) / (1.0 - min(busy, SATURATION))
    work = (1.0 - share) * at[1] ** -speed * queueing_factor(busy)
    fixed, moving = (share, work) if edge == 1.0 else (share**edge, work**edge)
    part = moving / (fixed + moving)
    slope[:] = 0.0
    slope[LEVEL] = 1.0
    slope[SHARE] = (1.0 - part) * (1.0 - share) - part * share
    slope[SPEED] = -speed * log(at[1]) * part
    slope[DEMAND] = steep * part
    slope[SCALING] = -slope[DEMAND] * scaling * log(at[0])
    high = theta[LEVEL] + log(fixed + moving) / edge
    need, knee = exp(theta[NEED]), exp(theta[KNEE])
    if need > at[2]:
        short = log(need / at[2])
        high += knee * short
        slope[NEED] = knee
        slope[KNEE] = knee * short
    if cache >= 0:
        high += theta[cache]
        slope[cache] += 1.0
    if power >= 0:
        high += theta[power]
        slope[power] += 1.0
    return high


@kernel(error_model="numpy")
def normalize_inputs(at: Floats, replicas: float, load: float) -> Any:
    """Return the inputs with replicas relative to the reference, and with the reference load where it is unknown."""
    found = at.copy()
    for row in range(at.shape[0]):
        found[row, 0] /= replicas
        if np.isnan(found[row, 3]):
            found[row, 3] = load
    return found


@kernel(error_model="numpy")
def log_latencies(theta: Floats, edge: float, at: Floats, cache: Any, power: Any, slopes: Floats) -> Any:
    """Return `log_latency` at many points."""
    found = np.empty(at.shape[0])
    for row in range(at.shape[0]):
        found[row] = log_latency(theta, edge, at[row], cache[row], power[row], slopes[row])
    return found


@kernel(error_model="numpy")
def predict_log_changes(
    theta: Floats, edge: float, spread: Floats, at: Floats, cache: Any, power: Any
) -> Any:
    """Return the change of the logarithm from the first point to each other one, and its standard deviation, as two
    rows.

    The uncertainty that both points share does not count: only the difference of the slopes does.
    """
    start, end = np.empty(theta.size), np.empty(theta.size)
    current = log_latency(theta, edge, at[0], cache[0], power[0], start)
    found = np.empty((2, at.shape[0] - 1))
    for row in range(1, at.shape[0]):
        found[0, row - 1] = log_latency(theta, edge, at[row], cache[row], power[row], end) - current
        variance = (MODEL_ERROR * found[0, row - 1]) ** 2
        for i in range(theta.size):
            end[i] -= start[i]
        for i in range(theta.size):
            if end[i] != 0.0:
                for j in range(theta.size):
                    variance += end[i] * spread[i, j] * end[j]
        found[1, row - 1] = sqrt(max(0.0, variance))
    return found

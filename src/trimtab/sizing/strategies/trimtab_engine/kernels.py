"""Forecast each container, measure the forecast errors and choose the forecast that costs least: the compiled
loops.

Time is divided into epochs, one per update. For each container five plain forecasters name a level for the
next epoch: the usage at the end of the last one, the slow mean, the mean at this hour on earlier days, the
higher of the first and the third, and the fading peak. Each has a histogram of its own errors: usage divided
by the level, in fine logarithmic buckets that are the same for the smallest container and the largest. From
it follows the size with the least expected cost, where cost is the request plus a penalty for what is not
covered. Forecasters are judged by the cost that their sizes would really have had; the best so far sets the
size.

With a stabilization window longer than an epoch (`DecayFactors.kept_hours`), levels cover that window: the
mean of as many hours replaces the end of the last epoch, and the busiest of the hours to come replaces the
next one.

For a container with little history, the errors and costs of the fleet count, above all of containers that are
as unsteady as it is, which its first hours already show. The sums over the fleet are of integers, so that the
order of containers changes nothing, not even a last bit. Everything else is a ratio to the container's own
usage: ten times the usage gives ten times the size.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from trimtab.sizing.strategy import Floats

LAST, SLOW, HOURLY, HIGHER, PEAK = range(5)
FORECASTERS = 5
SEEN, TOTAL, HIGHEST, OVER_SIZE, MASS, RECENT = range(6)
"""The columns of a container's present epoch: the observed part of it, usage, peak, the part above the held
size, the weight of all errors, and recent usage.
"""
EPOCH_FIELDS = 6
MEAN, WEIGHT, UNREST, KEPT_MEAN = range(4)
RECENT_HALF_LIFE = 0.15
"""The part of an epoch in which recent usage loses half its weight."""
YOUNG_ERROR_WEIGHT = 0.1
"""The share of its errors that counts while a container is young."""
UNREST_BOUNDARIES = (0.1, 0.25, 0.5, 1.0)
"""The logarithm of an epoch's peak over its mean at which a container belongs to the next unrest class."""
FLEET_WEIGHT = 3.0
"""The number of containers of its own class that the rest of the fleet counts for."""
HOURS = 24
FIXED_POINT_UNIT = 2.0**32
"""The integer that stands for 1 in sums over the fleet."""
MIN_LEVEL = 1e-9
MAX_COST = 1e4
SEARCH_FACTOR = 2.0
"""The factor above the highest allowed size up to which the best size is searched: if it is there, the
highest is used.
"""

Singles = npt.NDArray[np.float32]


class ErrorBuckets(NamedTuple):
    """The buckets of errors: usage divided by forecast, from exp(low), each wider by exp(width)."""

    low: float
    width: float
    buckets: int

    def edges(self) -> Floats:
        edges: Floats = np.exp(self.low + self.width * np.arange(self.buckets + 1))
        return edges

    def prior_weights(self, spread: float) -> Floats:
        """Return the log-normal distribution of errors before any was seen."""
        middle = self.low + self.width * (np.arange(self.buckets) + 0.5)
        weights: Floats = np.exp(-0.5 * (middle / spread) ** 2)
        weights /= weights.sum()
        return weights


class DecayFactors(NamedTuple):
    """The share of each value that is left after an epoch, and the weight of the fleet in epochs of a
    container.
    """

    errors: float
    costs: float
    slow_mean: float
    fading_peak: float
    highest_peak: float
    hourly_mean: float
    used_share: float
    expected_savings: float
    changes: float
    fleet_error_epochs: float
    fleet_cost_epochs: float
    kept_mean: float
    """The share of the mean over the stabilization window; 0 if the window is the epoch."""
    kept_hours: int
    """The number of hours of the stabilization window."""
    mature_weight: float
    """The weight of the slow mean from which errors count in full: before that, no level covers all of these
    hours.
    """


class CostModel(NamedTuple):
    """The cost of harm, in units of a container's mean usage, and the conditions to keep a size."""

    overuse_penalty: float
    """The cost of an epoch above the request."""
    unserved_penalty: float
    """The cost of each unit of usage above the request."""
    tolerated_overuse: float
    """The share of time above the request at which a container is treated with more care."""
    leniency: float
    """The discount of a request of which little is used: 1 by the used share, 0 none."""
    peak_floor: float
    """The least multiple of its fading peak that a container gets."""
    headroom: float
    """The highest multiple of its highest peak that a container gets."""
    change_threshold: float
    """The excess cost that a size must have caused before it is changed."""
    frequent_changes: float
    """The number of recent changes above which the next one must save more."""


@dataclass(slots=True)
class EpochState:
    """The part of the state that the end of an epoch writes: small enough to be copied for a preview."""

    base: Floats
    """The logarithm of each forecaster's level."""
    bid: Floats
    """The size that each forecaster would have requested in this epoch."""
    over: Floats
    """The share of the epoch above the bid of each forecaster."""
    lack: Floats
    """The usage that the bid of each forecaster would have left unserved."""
    cost: Floats
    tries: Floats
    hourly: Floats
    level: Floats
    """The slow mean, its weight, the slow mean of peak over mean, and the mean over the stabilization window.
    """
    peak: Floats
    """The fading peak, and one that hardly fades and bounds every bid."""
    served: Floats
    """The sums of used and of requested resources."""
    care: Floats
    """The factor by which harm costs more for this container, because it had too much of it."""
    owed: Floats
    """The expected savings of another size since the last change: small savings add up, noise fades."""
    moves: Floats
    """The number of recent changes of the size."""
    held: Floats

    @classmethod
    def new(cls, containers: int) -> EpochState:
        shape = (containers, FORECASTERS)
        return cls(
            base=np.full(shape, np.nan),
            bid=np.full(shape, np.nan),
            over=np.zeros(shape),
            lack=np.zeros(shape),
            cost=np.zeros(shape),
            tries=np.zeros(containers),
            hourly=np.full((containers, HOURS), np.nan),
            level=np.zeros((containers, 4)),
            peak=np.zeros((containers, 2)),
            served=np.zeros((containers, 2)),
            care=np.ones(containers),
            owed=np.zeros(containers),
            moves=np.zeros(containers),
            held=np.full(containers, np.nan),
        )

    def arrays(self) -> tuple[Floats, ...]:
        return tuple(getattr(self, field.name) for field in fields(self))


@njit(cache=True)
def _find_bucket(value: float, base: float, grid: ErrorBuckets) -> int:
    if value <= 0:
        return 0
    return int(min(max((np.log(value) - base - grid.low) / grid.width, 0.0), grid.buckets - 1.0))


@njit(cache=True)
def observe_samples(
    usage: Floats,
    most: float,
    weights: Floats,
    grid: ErrorBuckets,
    epoch: Floats,
    errors: Singles,
    base: Floats,
    bid: Floats,
    over: Floats,
    lack: Floats,
    held: Floats,
    level: Floats,
    mature_weight: float,
) -> None:
    """Learn several samples of each container (one row per time, each with its weight), all of which count."""
    left = np.empty(len(weights))
    for row in range(len(weights)):
        left[row] = 0.5 ** (weights[row] / RECENT_HALF_LIFE)
    for i in range(usage.shape[1]):
        trust = 1.0 if level[i, WEIGHT] >= mature_weight else YOUNG_ERROR_WEIGHT
        for row in range(len(weights)):
            use, weight = usage[row, i], weights[row]
            if not 0.0 <= use <= most:
                continue
            epoch[i, SEEN] += weight
            epoch[i, TOTAL] += weight * use
            epoch[i, HIGHEST] = max(epoch[i, HIGHEST], use)
            epoch[i, OVER_SIZE] += weight if use > held[i] else 0.0
            epoch[i, MASS] += weight * trust
            if np.isnan(base[i, 0]):
                base[i, :] = np.log(max(use, MIN_LEVEL))
                epoch[i, RECENT] = use
            epoch[i, RECENT] = epoch[i, RECENT] * left[row] + use * (1.0 - left[row])
            logarithm = np.log(use) - grid.low if use > 0 else -1e9
            for k in range(FORECASTERS):
                place = int(min(max((logarithm - base[i, k]) / grid.width, 0.0), grid.buckets - 1.0))
                errors[i, k, place] += weight * trust
                if use > bid[i, k]:
                    over[i, k] += weight
                    lack[i, k] += weight * (use - bid[i, k])


@njit(cache=True)
def observe_peaks(
    usage: Floats,
    most: float,
    weights: Floats,
    grid: ErrorBuckets,
    epoch: Floats,
    errors: Singles,
    base: Floats,
    bid: Floats,
    over: Floats,
    lack: Floats,
    held: Floats,
    level: Floats,
    mature_weight: float,
) -> None:
    """Learn several samples of each container, of which only the peak of the epoch counts: a higher one
    replaces it.
    """
    for i in range(usage.shape[1]):
        trust = 1.0 if level[i, WEIGHT] >= mature_weight else YOUNG_ERROR_WEIGHT
        for row in range(len(weights)):
            use, weight = usage[row, i], weights[row]
            if not 0.0 <= use <= most:
                continue
            first = epoch[i, SEEN] == 0.0
            epoch[i, SEEN] += weight
            epoch[i, TOTAL] += weight * use
            if not first and use <= epoch[i, HIGHEST]:
                continue
            epoch[i, OVER_SIZE] = 1.0 if use > held[i] else 0.0
            epoch[i, MASS] += trust if first else 0.0
            if np.isnan(base[i, 0]):
                base[i, :] = np.log(max(use, MIN_LEVEL))
            for k in range(FORECASTERS):
                if not first:
                    errors[i, k, _find_bucket(epoch[i, HIGHEST], base[i, k], grid)] -= trust
                errors[i, k, _find_bucket(use, base[i, k], grid)] += trust
                if use > bid[i, k]:
                    over[i, k] = 1.0
                    lack[i, k] = use - bid[i, k]
            epoch[i, HIGHEST] = use


@njit(cache=True)
def close_epoch(
    hour: int,
    hour_ahead: int,
    peaks: bool,  # noqa: FBT001 - compiled code takes no keywords
    decay: DecayFactors,
    cost_model: CostModel,
    epoch: Floats,
    state: tuple[Floats, ...],
) -> None:
    """End an epoch: compute the cost of each forecaster's bid, and its level for the next epoch."""
    base, bid, over, lack, cost, tries, hourly, level, peak, served, care, _, _, held = state
    for i in range(len(epoch)):
        if epoch[i, SEEN] == 0.0:
            continue
        seen = 1.0 if peaks else epoch[i, SEEN]
        mean = max(epoch[i, HIGHEST] if peaks else epoch[i, TOTAL] / seen, MIN_LEVEL)
        usual = level[i, MEAN] if level[i, WEIGHT] > 0 else mean
        if not np.isnan(bid[i, 0]):
            share = _used_share(served[i], usual) ** cost_model.leniency
            for k in range(FORECASTERS):
                paid = share * bid[i, k] / usual + cost_model.overuse_penalty * care[i] * over[i, k] / seen
                paid += (share + cost_model.unserved_penalty * care[i]) * lack[i, k] / (seen * usual)
                cost[i, k] = cost[i, k] * decay.costs + min(paid, MAX_COST)
            tries[i] = tries[i] * decay.costs + 1.0
            served[i, 0] = served[i, 0] * decay.used_share + min(mean, held[i])
            served[i, 1] = served[i, 1] * decay.used_share + held[i]
            harmed = epoch[i, OVER_SIZE] / seen
            care[i] = min(
                max(care[i] * np.exp(0.05 * min(harmed / cost_model.tolerated_overuse - 1.0, 20.0)), 1.0),
                20.0,
            )
        for k in range(FORECASTERS):
            over[i, k] = 0.0
            lack[i, k] = 0.0
        before = level[i, WEIGHT] * decay.slow_mean
        level[i, MEAN] = (level[i, MEAN] * before + mean) / (before + 1.0)
        rise = np.log(max(epoch[i, HIGHEST], MIN_LEVEL) / mean)
        level[i, UNREST] = (level[i, UNREST] * before + rise) / (before + 1.0)
        level[i, WEIGHT] = before + 1.0
        lasting = decay.kept_mean if level[i, KEPT_MEAN] > 0.0 else 0.0
        level[i, KEPT_MEAN] = level[i, KEPT_MEAN] * lasting + mean * (1.0 - lasting)
        peak[i, 0] = max(epoch[i, HIGHEST], peak[i, 0] * decay.fading_peak, MIN_LEVEL)
        peak[i, 1] = max(epoch[i, HIGHEST], peak[i, 1] * decay.highest_peak, MIN_LEVEL)
        now = np.log(mean)
        known = hourly[i, hour]
        hourly[i, hour] = (
            now if np.isnan(known) else known * decay.hourly_mean + now * (1.0 - decay.hourly_mean)
        )
        ahead = hourly[i, hour_ahead]
        for later in range(1, decay.kept_hours):
            ahead = np.fmax(ahead, hourly[i, (hour_ahead + later) % HOURS])
        late = now if peaks else np.log(max(epoch[i, RECENT], MIN_LEVEL))
        base[i, LAST] = np.log(level[i, KEPT_MEAN]) if decay.kept_mean > 0.0 else late
        base[i, SLOW] = np.log(level[i, MEAN])
        base[i, HOURLY] = base[i, SLOW] if np.isnan(ahead) else ahead
        base[i, HIGHER] = max(base[i, HOURLY], late)
        base[i, PEAK] = np.log(peak[i, 0])


@njit(cache=True)
def _used_share(served: Floats, usual: float) -> float:
    """Return the share of the request that is used; half at first."""
    return float(min(max((served[0] + 2.5 * usual) / (served[1] + 5.0 * usual), 0.02), 1.0))


@njit(cache=True)
def _unrest_class(level: Floats) -> int:
    """Return the unrest class of a container."""
    kind = 0
    for least in UNREST_BOUNDARIES:
        kind += 1 if level[UNREST] > least else 0
    return kind


@njit(cache=True)
def average_fleet_costs(state: tuple[Floats, ...]) -> Floats:
    """Return the mean cost of each forecaster by unrest class; the whole fleet counts too."""
    cost, tries, level = state[4], state[5], state[7]
    kinds = len(UNREST_BOUNDARIES) + 1
    total, count = np.zeros((kinds, FORECASTERS), np.int64), np.zeros(kinds, np.int64)
    for i in range(len(tries)):
        if tries[i] > 0:
            kind = _unrest_class(level[i])
            count[kind] += 1
            for k in range(FORECASTERS):
                total[kind, k] += np.int64(cost[i, k] / tries[i] * 2.0**20)
    means = np.empty((kinds, FORECASTERS))
    # Sums and copies are written element by element, here and below: compiling numpy's own would take as long
    # as all else.
    for k in range(FORECASTERS):
        costs, tried = 0, 0
        for kind in range(kinds):
            costs += total[kind, k]
            tried += count[kind]
        whole = costs / max(tried, 1)
        for kind in range(kinds):
            means[kind, k] = (total[kind, k] + FLEET_WEIGHT * whole) / (
                (count[kind] + FLEET_WEIGHT) * 2.0**20
            )
    return means


@njit(cache=True)
def average_fleet_errors(epoch: Floats, errors: Singles, prior: Floats, level: Floats) -> Floats:
    """Return the mean distribution of each forecaster's errors by unrest class; the whole fleet counts too.

    Containers with more history count more, up to one each.
    """
    containers, _, buckets = errors.shape
    kinds = len(UNREST_BOUNDARIES) + 1
    total = np.zeros((kinds, FORECASTERS, buckets), np.int64)
    for i in range(containers):
        kind = _unrest_class(level[i])
        for k in range(FORECASTERS):
            scale = FIXED_POINT_UNIT / (epoch[i, MASS] + 1.0)
            for b in range(buckets):
                total[kind, k, b] += np.int64(errors[i, k, b] * scale)
    shape = np.empty((kinds, FORECASTERS, buckets))
    fleet = np.empty(buckets)
    for k in range(FORECASTERS):
        whole = 0.0
        for b in range(buckets):
            fleet[b] = prior[b]
            for kind in range(kinds):
                fleet[b] += total[kind, k, b] / FIXED_POINT_UNIT
            whole += fleet[b]
        scale = FLEET_WEIGHT / whole
        for kind in range(kinds):
            whole = 0.0
            for b in range(buckets):
                shape[kind, k, b] = fleet[b] * scale + total[kind, k, b] / FIXED_POINT_UNIT
                whole += shape[kind, k, b]
            for b in range(buckets):
                shape[kind, k, b] /= whole
    return shape


@njit(cache=True)
def _find_cheapest_edge(
    top: int,
    errors: Singles,
    shape: Floats,
    edges: Floats,
    fleet: float,
    price: float,
    jump: float,
    missed: float,
    costs: Floats,
) -> int:
    """Return the edge with the least expected cost, up to the top one, and store the cost of each edge.

    Compiled without fastmath: its result would differ in the last bits from one compilation to the next.
    """
    above, load = 0.0, 0.0
    for b in range(len(errors) - 1, -1, -1):
        edge = edges[b + 1]
        costs[b + 1] = edge * price + above * (jump - missed * edge) + missed * load
        weight = errors[b] + fleet * shape[b]
        above += weight
        load += weight * edge
    place, least = top + 1, costs[top + 1]
    for b in range(top, 0, -1):
        if costs[b] < least:
            place, least = b, costs[b]
    return place


@njit(cache=True)
def choose_sizes(
    decay: DecayFactors,
    cost_model: CostModel,
    buckets: ErrorBuckets,
    edges: Floats,
    epoch: Floats,
    errors: Singles,
    shape: Floats,
    fleet: Floats,
    state: tuple[Floats, ...],
) -> None:
    """Compute the sizes of the next epoch: each forecaster's bid, and the size that is held.

    A margin fits one level only, so each is computed again: where the level is low, covering a spike costs
    little.
    """
    base, bid, _, _, cost, _, _, level, peak, served, care, owed, moves, held = state
    costs = np.empty(buckets.buckets + 1)
    for i in range(len(epoch)):
        if epoch[i, SEEN] == 0.0:
            continue
        usual, kind = level[i, MEAN], _unrest_class(level[i])
        share = _used_share(served[i], usual) ** cost_model.leniency
        mass = epoch[i, MASS] + decay.fleet_error_epochs
        jump, missed = (
            cost_model.overuse_penalty * care[i] / mass,
            (share + cost_model.unserved_penalty * care[i]) / (usual * mass),
        )
        chosen = 0
        for k in range(1, FORECASTERS):
            judged = cost[i, k] + decay.fleet_cost_epochs * fleet[kind, k]
            if judged < cost[i, chosen] + decay.fleet_cost_epochs * fleet[kind, chosen]:
                chosen = k
        saved, highest = 0.0, peak[i, 1] * cost_model.headroom
        reach = np.log(highest * SEARCH_FACTOR) - buckets.low
        for k in range(FORECASTERS):
            forecast = np.exp(base[i, k])
            top = int(min(max((reach - base[i, k]) / buckets.width, 0.0), buckets.buckets - 1.0))
            place = _find_cheapest_edge(
                top,
                errors[i, k],
                shape[kind, k],
                edges,
                decay.fleet_error_epochs,
                share / usual * forecast,
                jump,
                missed * forecast,
                costs,
            )
            bid[i, k] = min(max(forecast * edges[place], peak[i, 0] * cost_model.peak_floor), highest)
            if k == chosen and held[i] > 0:
                saved = costs[_find_bucket(held[i], base[i, k], buckets) + 1] - costs[place]
        owed[i] = owed[i] * decay.expected_savings + max(saved, 0.0) / share
        moves[i] *= decay.changes
        due = owed[i] > cost_model.change_threshold * max(1.0, moves[i] / cost_model.frequent_changes) ** 4
        # Slow growth uses up the margin before a change pays.
        if np.isnan(held[i]) or due or held[i] < peak[i, 0] * cost_model.peak_floor:
            owed[i] = 0.0
            moves[i] += 1.0
            held[i] = bid[i, chosen]

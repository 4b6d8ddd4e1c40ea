"""The compiled loops of the default strategy, one kernel for each step of the decision.

Time is divided into epochs, one per update. For each container five plain forecasters name a level for the
next epoch. Each has a histogram of its own errors: usage divided by the level, in fine logarithmic buckets
that are the same for the smallest container and the largest. The steps:

1. `record_samples` (for memory `record_peaks`): add samples to the epoch and to the errors of each forecaster.
2. `charge_forecasts`: at the end of the epoch, charge each forecaster the cost that its size really had.
3. `update_levels`: learn from the epoch, and name each forecaster's level for the next.
4. `price_margin`: find the size with the least expected cost above each level.
5. `choose_forecast`: take the forecaster that has cost least so far.
6. `should_change`: change the held size only once the expected savings are worth it.

The docstring of `trimtab.sizing.strategies.trimtab` has the formulas, `tests/sizing/strategies/reference.py` the same
in plain Python. Everything is a ratio to the container's own usage: ten times the usage gives ten times the size. No
container sees another one, so that a size does not depend on which containers are sized together.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trimtab.kernel import kernel
from trimtab.sizing.state import Floats

LAST, SLOW, HOURLY, HIGHER, PEAK = range(5)
"""The forecasters: usage at the end of the last epoch, the slow mean, the mean at this hour on former days, the
higher of the first and the third, and the fading peak.

With a stabilization window longer than an epoch, levels cover that window: its mean replaces the end of the last
epoch, and the busiest of the hours to come replaces the next one.
"""
FORECASTERS = 5
SEEN, TOTAL, HIGHEST, OVER_SIZE, MASS, RECENT = range(6)
"""The columns of a container's present epoch: the observed part of it, usage, peak, the part above the held
size, the weight of all errors, and recent usage.
"""
EPOCH_FIELDS = 6
MEAN, WEIGHT, _FORMER, KEPT_MEAN = range(4)
"""The columns of `EpochState.level`; one is kept only because stored state has it."""
FADING, HIGHEST_EVER = range(2)
"""The columns of `EpochState.peak`."""
USED, REQUESTED = range(2)
"""The columns of `EpochState.served`."""
RECENT_HALF_LIFE_EPOCHS = 0.15
"""The part of an epoch in which recent usage loses half its weight."""
YOUNG_ERROR_WEIGHT = 0.1
"""The share of its errors that counts while a container is young."""
HOURS = 24
MIN_LEVEL = 1e-9
MAX_COST_EPOCH = 1e4
"""The most that one epoch is charged: a spike over nearly no usage would outweigh all other epochs."""
CARE_RATE, MAX_CARE, MAX_EXCESS_HARM = 0.05, 20.0, 20.0
"""The growth of care for each multiple of the tolerated harm, its largest factor, and the largest multiple."""
ASSUMED_USED_SHARE, ASSUMED_EPOCHS, MIN_USED_SHARE = 0.5, 5.0, 0.02
"""The share of a request that is used before it is known, the epochs that this counts for, and the least share."""
FREQUENT_CHANGE_EXPONENT = 4
"""The power with which frequent changes raise the savings that the next one needs."""
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

    def prior_weights(self, parts: Iterable[tuple[float, float]]) -> Floats:
        """Return the assumed distribution of errors before any was seen: log-normal parts, each with its share and spread."""
        middle = self.low + self.width * (np.arange(self.buckets) + 0.5)
        weights: Floats = np.zeros(self.buckets)
        for share, spread in parts:
            part = np.exp(-0.5 * (middle / spread) ** 2)
            weights += share * part / part.sum()
        return weights


class DecayFactors(NamedTuple):
    """The share of each value that is left after an epoch, and the weight of the prior in epochs."""

    errors: float
    costs: float
    slow_mean: float
    fading_peak: float
    highest_peak: float
    hourly_mean: float
    used_share: float
    expected_savings: float
    changes: float
    prior_epochs: float
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


class EpochUsage(NamedTuple):
    """The samples of the present epoch, and the errors of all epochs."""

    sums: Floats
    """A row for each container: `SEEN`, `TOTAL`, `HIGHEST`, `OVER_SIZE`, `MASS`, `RECENT`."""
    errors: Singles
    """The histogram of each forecaster's errors, for each container."""


class EpochState(NamedTuple):
    """The part of the state that the end of an epoch writes: small enough to be copied for a preview."""

    log_level: Floats
    """The logarithm of each forecaster's level."""
    bid: Floats
    """The size that each forecaster would have requested in this epoch."""
    over_bid: Floats
    """The share of the epoch above the bid of each forecaster."""
    unserved: Floats
    """The usage that the bid of each forecaster would have left unserved."""
    cost: Floats
    """The decayed sum of the costs that each forecaster's bids had."""
    charged_epochs: Floats
    """The decayed number of epochs that were charged."""
    hourly: Floats
    """The logarithm of the mean at each hour of the day; NaN where it was never seen."""
    level: Floats
    """The slow mean, its weight, and the mean over the stabilization window."""
    peak: Floats
    """The fading peak, and one that hardly fades and bounds every bid."""
    served: Floats
    """The decayed sums of used and of requested resources."""
    care: Floats
    """The factor by which harm costs more for this container, because it had too much of it."""
    expected_savings: Floats
    """The expected savings of another size since the last change: small savings add up, noise fades."""
    recent_changes: Floats
    """The decayed number of changes of the size."""
    held: Floats
    """The size of the present epoch; NaN if there is none yet."""

    @classmethod
    def create(cls, containers: int) -> EpochState:
        """Return the state of containers without any sample."""
        shape = (containers, FORECASTERS)
        return cls(
            log_level=np.full(shape, np.nan),
            bid=np.full(shape, np.nan),
            over_bid=np.zeros(shape),
            unserved=np.zeros(shape),
            cost=np.zeros(shape),
            charged_epochs=np.zeros(containers),
            hourly=np.full((containers, HOURS), np.nan),
            level=np.zeros((containers, 4)),
            peak=np.zeros((containers, 2)),
            served=np.zeros((containers, 2)),
            care=np.ones(containers),
            expected_savings=np.zeros(containers),
            recent_changes=np.zeros(containers),
            held=np.full(containers, np.nan),
        )

    def copy(self) -> EpochState:
        return EpochState(*(array.copy() for array in self))


STORED_FIELDS = (
    *("base", "bid", "over", "lack", "cost", "tries", "hourly"),
    *("level", "peak", "served", "care", "owed", "moves", "held"),
)
"""The names of `EpochState`'s fields in stored state, in their order: state of earlier versions is still read."""


# Step 1: samples


@kernel()
def find_bucket(value: float, log_level: float, buckets: ErrorBuckets) -> int:
    if value <= 0:
        return 0
    return int(
        min(max((np.log(value) - log_level - buckets.low) / buckets.width, 0.0), buckets.buckets - 1.0)
    )


@kernel()
def record_samples(
    usage: Floats,
    weights: Floats,
    most: float,
    mature_weight: float,
    buckets: ErrorBuckets,
    epoch: EpochUsage,
    state: EpochState,
) -> None:
    """Add several samples of each container (one row per time, each with its weight) to its epoch and errors."""
    # Every kernel takes the arrays out of their records once, here: a field read in a loop counts a reference
    # each time, which made this loop six times as slow.
    sums, errors, log_level, bid = epoch.sums, epoch.errors, state.log_level, state.bid
    over_bid, unserved, level, held = state.over_bid, state.unserved, state.level, state.held
    left = np.empty(len(weights))
    for row in range(len(weights)):
        left[row] = 0.5 ** (weights[row] / RECENT_HALF_LIFE_EPOCHS)
    for i in range(usage.shape[1]):
        # The levels of a young container do not cover all hours yet: its errors are larger than they will be.
        trust = 1.0 if level[i, WEIGHT] >= mature_weight else YOUNG_ERROR_WEIGHT
        for row in range(len(weights)):
            use, weight = usage[row, i], weights[row]
            if not 0.0 <= use <= most:  # NaN, which is no sample, too
                continue
            sums[i, SEEN] += weight
            sums[i, TOTAL] += weight * use
            sums[i, HIGHEST] = max(sums[i, HIGHEST], use)
            sums[i, OVER_SIZE] += weight if use > held[i] else 0.0
            sums[i, MASS] += weight * trust
            if np.isnan(log_level[i, 0]):  # The very first sample is the level of every forecaster.
                log_level[i, :] = np.log(max(use, MIN_LEVEL))
                sums[i, RECENT] = use
            sums[i, RECENT] = sums[i, RECENT] * left[row] + use * (1.0 - left[row])
            # One logarithm for all forecasters: it is most of the time that a sample takes.
            logarithm = np.log(use) - buckets.low if use > 0 else -1e9
            for k in range(FORECASTERS):
                bucket = int(
                    min(max((logarithm - log_level[i, k]) / buckets.width, 0.0), buckets.buckets - 1.0)
                )
                errors[i, k, bucket] += weight * trust
                if use > bid[i, k]:
                    over_bid[i, k] += weight
                    unserved[i, k] += weight * (use - bid[i, k])


@kernel()
def record_peaks(
    usage: Floats,
    weights: Floats,
    most: float,
    mature_weight: float,
    buckets: ErrorBuckets,
    epoch: EpochUsage,
    state: EpochState,
) -> None:
    """Add several samples of each container, of which only the epoch's peak counts: a higher one replaces it."""
    sums, errors, log_level, bid = epoch.sums, epoch.errors, state.log_level, state.bid
    over_bid, unserved, level, held = state.over_bid, state.unserved, state.level, state.held
    for i in range(usage.shape[1]):
        trust = 1.0 if level[i, WEIGHT] >= mature_weight else YOUNG_ERROR_WEIGHT
        for row in range(len(weights)):
            use, weight = usage[row, i], weights[row]
            if not 0.0 <= use <= most:
                continue
            first = sums[i, SEEN] == 0.0
            sums[i, SEEN] += weight
            sums[i, TOTAL] += weight * use
            if not first and use <= sums[i, HIGHEST]:
                continue
            sums[i, OVER_SIZE] = 1.0 if use > held[i] else 0.0
            sums[i, MASS] += trust if first else 0.0
            if np.isnan(log_level[i, 0]):
                log_level[i, :] = np.log(max(use, MIN_LEVEL))
            for k in range(FORECASTERS):
                if not first:
                    errors[i, k, find_bucket(sums[i, HIGHEST], log_level[i, k], buckets)] -= trust
                errors[i, k, find_bucket(use, log_level[i, k], buckets)] += trust
                if use > bid[i, k]:
                    over_bid[i, k] = 1.0
                    unserved[i, k] = use - bid[i, k]
            sums[i, HIGHEST] = use


# Steps 2 and 3: the end of an epoch. One without a sample teaches nothing: levels, costs and sizes stay.


@kernel()
def charge_forecasts(
    peaks: bool,  # noqa: FBT001 - compiled code takes no keywords
    decay: DecayFactors,
    cost_model: CostModel,
    epoch: EpochUsage,
    state: EpochState,
) -> None:
    """Charge each forecaster what its bid really cost, and take more care of containers that had much harm."""
    sums, bid, cost, served = epoch.sums, state.bid, state.cost, state.served
    over_bid, unserved, level, held = state.over_bid, state.unserved, state.level, state.held
    charged_epochs, care = state.charged_epochs, state.care
    for i in range(len(sums)):
        if sums[i, SEEN] == 0.0:
            continue
        seen, mean = _observed_mean(sums[i], peaks)
        if not np.isnan(bid[i, 0]):  # There are no bids before the first epoch has ended.
            usual = level[i, MEAN] if level[i, WEIGHT] > 0 else mean
            share = used_share(served[i], usual) ** cost_model.leniency
            for k in range(FORECASTERS):
                paid = (
                    share * bid[i, k] / usual + cost_model.overuse_penalty * care[i] * over_bid[i, k] / seen
                )
                paid += (share + cost_model.unserved_penalty * care[i]) * unserved[i, k] / (seen * usual)
                cost[i, k] = cost[i, k] * decay.costs + min(paid, MAX_COST_EPOCH)
            charged_epochs[i] = charged_epochs[i] * decay.costs + 1.0
            served[i, USED] = served[i, USED] * decay.used_share + min(mean, held[i])
            served[i, REQUESTED] = served[i, REQUESTED] * decay.used_share + held[i]
            harmed = sums[i, OVER_SIZE] / seen
            excess = min(harmed / cost_model.tolerated_overuse - 1.0, MAX_EXCESS_HARM)
            care[i] = min(max(care[i] * np.exp(CARE_RATE * excess), 1.0), MAX_CARE)
        for k in range(FORECASTERS):
            over_bid[i, k] = 0.0
            unserved[i, k] = 0.0


@kernel()
def update_levels(
    hour: int,
    hour_ahead: int,
    peaks: bool,  # noqa: FBT001 - compiled code takes no keywords
    decay: DecayFactors,
    epoch: EpochUsage,
    state: EpochState,
) -> None:
    """Learn the means and peaks of the epoch, and name each forecaster's level for the next."""
    sums, log_level, hourly = epoch.sums, state.log_level, state.hourly
    level, peak = state.level, state.peak
    for i in range(len(sums)):
        if sums[i, SEEN] == 0.0:
            continue
        _, mean = _observed_mean(sums[i], peaks)
        before = level[i, WEIGHT] * decay.slow_mean
        level[i, MEAN] = (level[i, MEAN] * before + mean) / (before + 1.0)
        level[i, WEIGHT] = before + 1.0
        lasting = decay.kept_mean if level[i, KEPT_MEAN] > 0.0 else 0.0
        level[i, KEPT_MEAN] = level[i, KEPT_MEAN] * lasting + mean * (1.0 - lasting)
        peak[i, FADING] = max(sums[i, HIGHEST], peak[i, FADING] * decay.fading_peak, MIN_LEVEL)
        peak[i, HIGHEST_EVER] = max(sums[i, HIGHEST], peak[i, HIGHEST_EVER] * decay.highest_peak, MIN_LEVEL)
        now = np.log(mean)
        known = hourly[i, hour]
        hourly[i, hour] = (
            now if np.isnan(known) else known * decay.hourly_mean + now * (1.0 - decay.hourly_mean)
        )
        ahead = hourly[i, hour_ahead]
        for later in range(1, decay.kept_hours):  # the busiest hour for which the size will be kept
            ahead = np.fmax(ahead, hourly[i, (hour_ahead + later) % HOURS])
        # The end of an hour tells more of the next one than its beginning.
        late = now if peaks else np.log(max(sums[i, RECENT], MIN_LEVEL))
        log_level[i, LAST] = np.log(level[i, KEPT_MEAN]) if decay.kept_mean > 0.0 else late
        log_level[i, SLOW] = np.log(level[i, MEAN])
        log_level[i, HOURLY] = log_level[i, SLOW] if np.isnan(ahead) else ahead
        log_level[i, HIGHER] = max(log_level[i, HOURLY], late)
        log_level[i, PEAK] = np.log(peak[i, FADING])


@kernel()
def _observed_mean(sums: Floats, peaks: bool) -> tuple[float, float]:  # noqa: FBT001 - compiled code takes no keywords
    """Return the observed part of the epoch and the mean of its usage; with peaks, the peak is all of it."""
    seen = 1.0 if peaks else sums[SEEN]
    return seen, max(sums[HIGHEST] if peaks else sums[TOTAL] / seen, MIN_LEVEL)


@kernel()
def used_share(served: Floats, usual: float) -> float:
    """Return the share of the request that is used."""
    used = served[USED] + ASSUMED_USED_SHARE * ASSUMED_EPOCHS * usual
    return float(min(max(used / (served[REQUESTED] + ASSUMED_EPOCHS * usual), MIN_USED_SHARE), 1.0))


# Steps 4 to 6: the sizes of the next epoch


class ErrorPrices(NamedTuple):
    """The parts of a size's expected cost, for one container and one forecaster."""

    request: float
    """The cost of a request as large as the level."""
    overuse: float
    """The cost of each unit of error weight above the size."""
    unserved: float
    """The cost of each unit of error weight times usage above the size, both as multiples of the level."""


@kernel()
def price_margin(
    top: int,
    errors: Singles,
    prior: Floats,
    prior_epochs: float,
    edges: Floats,
    prices: ErrorPrices,
    costs: Floats,
) -> int:
    """Return the edge of the margin with the least expected cost, up to the top one, and store the cost of each.

    The expectation is over the container's own errors, and those assumed before for some more epochs. Compiled
    without fastmath: its result would differ in the last bits from one compilation to the next.
    """
    above, load = 0.0, 0.0
    for b in range(len(errors) - 1, -1, -1):
        edge = edges[b + 1]
        costs[b + 1] = (
            edge * prices.request + above * (prices.overuse - prices.unserved * edge) + prices.unserved * load
        )
        weight = errors[b] + prior_epochs * prior[b]
        above += weight
        load += weight * edge
    bucket, least = top + 1, costs[top + 1]
    for b in range(top, 0, -1):
        if costs[b] < least:
            bucket, least = b, costs[b]
    return bucket


@kernel()
def choose_forecast(costs: Floats) -> int:
    """Return the forecaster that has cost least."""
    chosen = 0
    for k in range(1, FORECASTERS):
        if costs[k] < costs[chosen]:
            chosen = k
    return chosen


@kernel()
def required_savings(cost_model: CostModel, recent_changes: float) -> float:
    """Return the savings from which a change is worth it; after frequent changes, they must be larger."""
    often = max(1.0, recent_changes / cost_model.frequent_changes)
    return float(cost_model.change_threshold * often**FREQUENT_CHANGE_EXPONENT)


@kernel()
def should_change(
    held: float, least: float, expected_savings: float, recent_changes: float, cost_model: CostModel
) -> bool:
    """Return whether the savings that another size promised since the last change are worth one by now."""
    # Slow growth uses up the margin above the peak before a change pays: the container would be killed.
    is_due = expected_savings > required_savings(cost_model, recent_changes)
    return bool(np.isnan(held) or is_due or held < least)


@kernel()
def choose_sizes(
    decay: DecayFactors,
    cost_model: CostModel,
    buckets: ErrorBuckets,
    edges: Floats,
    epoch: EpochUsage,
    prior: Floats,
    state: EpochState,
) -> None:
    """Compute the sizes of the next epoch: each forecaster's bid, and the size that is held.

    A margin fits one level only, so each is computed again: where the level is low, covering a spike costs
    little.
    """
    sums, errors = epoch.sums, epoch.errors
    log_level, level, peak, served = state.log_level, state.level, state.peak, state.served
    bid, cost, care, held = state.bid, state.cost, state.care, state.held
    expected_savings, recent_changes = state.expected_savings, state.recent_changes
    costs = np.empty(buckets.buckets + 1)
    for i in range(len(sums)):
        if sums[i, SEEN] == 0.0:
            continue
        usual = level[i, MEAN]
        share = used_share(served[i], usual) ** cost_model.leniency
        mass = sums[i, MASS] + decay.prior_epochs
        overuse = cost_model.overuse_penalty * care[i] / mass
        missed = (share + cost_model.unserved_penalty * care[i]) / (usual * mass)
        chosen = choose_forecast(cost[i])
        least, highest = peak[i, FADING] * cost_model.peak_floor, peak[i, HIGHEST_EVER] * cost_model.headroom
        reach = np.log(highest * SEARCH_FACTOR) - buckets.low
        saved = 0.0
        for k in range(FORECASTERS):
            forecast = np.exp(log_level[i, k])
            top = int(min(max((reach - log_level[i, k]) / buckets.width, 0.0), buckets.buckets - 1.0))
            bucket = price_margin(
                top,
                errors[i, k],
                prior,
                decay.prior_epochs,
                edges,
                ErrorPrices(share / usual * forecast, overuse, missed * forecast),
                costs,
            )
            bid[i, k] = min(max(forecast * edges[bucket], least), highest)
            if k == chosen and held[i] > 0:
                saved = costs[find_bucket(held[i], log_level[i, k], buckets) + 1] - costs[bucket]
        expected_savings[i] = expected_savings[i] * decay.expected_savings + max(saved, 0.0) / share
        recent_changes[i] *= decay.changes
        if should_change(held[i], least, expected_savings[i], recent_changes[i], cost_model):
            expected_savings[i] = 0.0
            recent_changes[i] += 1.0
            held[i] = bid[i, chosen]

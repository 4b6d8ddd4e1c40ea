"""The default strategy in plain Python: one resource of one container.

`docs/reference/strategies.md` explains the formulas; the compiled kernels must give the same sizes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp, isnan, log, nan

import numpy as np

from trimtab.sizing.state import Floats
from trimtab.sizing.strategies.trimtab_engine.kernels import (
    CostModel,
    DecayFactors,
    Singles,
    find_bucket,
)
from trimtab.sizing.strategies.trimtab_engine.state import FADE_INTERVAL, ResourceTuning


@dataclass
class Reference:
    tuning: ResourceTuning
    decay: DecayFactors
    price: CostModel
    errors: Singles
    seen = total = highest = over_size = mass = recent = 0.0
    mean = weight = kept_mean = fading = highest_ever = used = requested = 0.0
    care, savings, changes, held, epochs = 1.0, 0.0, 0.0, nan, 0
    levels: list[float] = field(default_factory=lambda: [nan] * 5)
    bids: list[float] = field(default_factory=lambda: [nan] * 5)
    over: list[float] = field(default_factory=lambda: [0.0] * 5)
    unserved: list[float] = field(default_factory=lambda: [0.0] * 5)
    costs: list[float] = field(default_factory=lambda: [0.0] * 5)
    hours: list[float] = field(default_factory=lambda: [nan] * 24)

    def record(self, use: float, weight: float) -> None:
        """Add one sample. Of memory only the peak of an epoch counts: a higher one replaces it."""
        peaks, first, young = self.tuning.only_peaks, self.seen == 0, self.weight < self.decay.mature_weight
        trust = 0.1 if young else 1.0
        self.seen, self.total = self.seen + weight, self.total + weight * use
        if peaks and not first and use <= self.highest:
            return
        if isnan(self.levels[0]):
            self.levels, self.recent = [log(max(use, 1e-9))] * 5, use
        left = 0.5 ** (weight / 0.15)
        self.recent = self.recent * left + use * (1 - left)
        part = 1.0 if peaks else weight
        for k in range(5):
            if peaks and not first:
                self._add_error(k, self.highest, -trust)
            self._add_error(k, use, part * trust)
            if use > self.bids[k]:
                self.over[k] = part + (0 if peaks else self.over[k])
                self.unserved[k] = part * (use - self.bids[k]) + (0 if peaks else self.unserved[k])
        self.over_size = part * (use > self.held) + (0 if peaks else self.over_size)
        self.mass += trust * (first if peaks else weight)
        self.highest = max(self.highest, use)

    def close(self, hour: int, ahead: int, prior: Floats) -> None:
        """End the epoch: charge the bids, name the levels, price the margins, choose, and change if it pays."""
        d, p, self.epochs = self.decay, self.price, self.epochs + 1
        if self.seen:
            seen = 1.0 if self.tuning.only_peaks else self.seen
            mean = max(self.highest if self.tuning.only_peaks else self.total / seen, 1e-9)
            if not isnan(self.bids[0]):
                u = self.mean if self.weight else mean
                s = self._used_share(u)
                for k in range(5):
                    cost = s * self.bids[k] / u + p.overuse_penalty * self.care * self.over[k] / seen
                    cost += (s + p.unserved_penalty * self.care) * self.unserved[k] / (seen * u)
                    self.costs[k] = self.costs[k] * d.costs + min(cost, 1e4)
                self.used = self.used * d.used_share + min(mean, self.held)
                self.requested = self.requested * d.used_share + self.held
                excess = min(self.over_size / seen / p.tolerated_overuse - 1, 20)
                self.care = min(max(self.care * exp(0.05 * excess), 1), 20)
            self._update_levels(hour, ahead, mean)
            chosen = min(range(5), key=lambda k: self.costs[k])
            saved = [self._price(k, prior) for k in range(5)][chosen]
            self.savings = self.savings * d.expected_savings + max(saved, 0) / self._used_share(self.mean)
            self.changes *= d.changes
            due = self.savings > p.change_threshold * max(1, self.changes / p.frequent_changes) ** 4
            if isnan(self.held) or due or self.held < self.fading * p.peak_floor:
                self.savings, self.changes, self.held = 0.0, self.changes + 1, self.bids[chosen]
        self.seen = self.total = self.highest = self.over_size = 0.0
        self.over, self.unserved = [0.0] * 5, [0.0] * 5
        if self.epochs % FADE_INTERVAL == 0:
            self.errors *= np.float32(d.errors**FADE_INTERVAL)
            self.mass *= d.errors**FADE_INTERVAL

    def _update_levels(self, hour: int, ahead: int, mean: float) -> None:
        d, before, late = self.decay, self.weight * self.decay.slow_mean, log(max(self.recent, 1e-9))
        self.mean = (self.mean * before + mean) / (before + 1)
        self.weight = before + 1
        lasting = d.kept_mean if self.kept_mean else 0.0
        self.kept_mean = self.kept_mean * lasting + mean * (1 - lasting)
        self.fading = max(self.highest, self.fading * d.fading_peak, 1e-9)
        self.highest_ever = max(self.highest, self.highest_ever * d.highest_peak, 1e-9)
        known, now = self.hours[hour], log(mean)
        self.hours[hour] = now if isnan(known) else known * d.hourly_mean + now * (1 - d.hourly_mean)
        late = now if self.tuning.only_peaks else late
        coming = [self.hours[(ahead + later) % 24] for later in range(d.kept_hours)]
        slow = log(self.mean)
        hourly = max((each for each in coming if not isnan(each)), default=slow)
        last = log(self.kept_mean) if d.kept_mean else late
        self.levels = [last, slow, hourly, max(hourly, late), log(self.fading)]

    def _price(self, k: int, prior: Floats) -> float:
        """Set the bid of least expected cost for one forecaster; return what it saves beside the held size."""
        p, buckets, edges = self.price, self.tuning.buckets, self.tuning.buckets.edges()
        level, u, s = exp(self.levels[k]), self.mean, self._used_share(self.mean)
        weights = self.errors[k].astype(float) + self.decay.prior_epochs * prior
        mass = self.mass + self.decay.prior_epochs
        above = np.append(np.cumsum(weights[::-1])[::-1][1:], 0.0)
        load = np.append(np.cumsum((weights * edges[1:])[::-1])[::-1][1:], 0.0)
        cost = s * level * edges[1:] / u + p.overuse_penalty * self.care * above / mass
        excess = load - above * edges[1:]  # the sum of weight * (error - edge) of all errors above an edge
        cost += (s + p.unserved_penalty * self.care) * level * excess / (u * mass)
        highest = self.highest_ever * p.headroom
        top = int(
            min(max((log(2 * highest) - buckets.low - self.levels[k]) / buckets.width, 0), len(cost) - 1)
        )
        best = max(range(top + 1), key=lambda b: (-cost[b], b))
        self.bids[k] = min(max(level * edges[best + 1], self.fading * p.peak_floor), highest)
        return float(cost[self._bucket(self.held, k)] - cost[best]) if self.held > 0 else 0.0

    def _used_share(self, u: float) -> float:
        share = min(max((self.used + 2.5 * u) / (self.requested + 5 * u), 0.02), 1.0)
        return float(share**self.price.leniency)

    def _bucket(self, use: float, k: int) -> int:
        # The kernel's own: a held size often lies exactly on an edge, where a bit of a logarithm decides.
        return int(find_bucket(use, self.levels[k], self.tuning.buckets))

    def _add_error(self, k: int, use: float, weight: float) -> None:
        place = self._bucket(use, k)
        self.errors[k, place] = float(self.errors[k, place]) + weight

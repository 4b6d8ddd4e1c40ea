"""The state of one resource of all containers, in flat arrays, its transitions, and its choice of a size in words: which
forecast, which margin, which expected cost.

`trimtab.sizing.strategies.trimtab` knows when to take the transitions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trimtab.api.quantity import ResourceName, format_step
from trimtab.sizing.state import Array, Floats, Indices
from trimtab.sizing.strategies.trimtab_engine import kernels
from trimtab.sizing.strategies.trimtab_engine.kernels import (
    EPOCH_FIELDS,
    FORECASTERS,
    HIGHER,
    HOURLY,
    LAST,
    MASS,
    MEAN,
    PEAK,
    SLOW,
    STORED_FIELDS,
    CostModel,
    DecayFactors,
    EpochState,
    EpochUsage,
    ErrorBuckets,
)

KEPT_TOLERANCE = 0.005
"""The relative difference from which a size counts as kept from an earlier hour."""


class SizeExplanation(NamedTuple):
    """The choice of one size of one container: forecast, costs and savings, in cores or bytes."""

    forecaster: int
    level: float
    """The usage that the forecaster expects."""
    bid: float
    """The size of least expected cost above it."""
    held: float
    """The size in effect: that of an earlier hour until a change pays."""
    over: float
    """The share of time in which usage is expected above the bid."""
    request_cost: float
    """The expected cost of the request, in units of mean usage."""
    harm_cost: float
    """The expected cost of usage above the request, in units of mean usage."""
    savings: float
    """The savings of a change that were expected since the last one, as a fraction of usage in an update."""
    required_savings: float
    """The savings from which a change is made."""


def describe_choice(resource: ResourceName, choice: SizeExplanation, *, window_hours: float) -> str:
    """Describe a choice; `window_hours` is the stabilization window that the forecast covers, or 0."""

    def text(amount: float) -> str:
        return format_step(resource, round(amount * 1000 if resource == "cpu" else amount))

    name = _name_forecaster(resource, choice.forecaster, window_hours)
    cost = choice.request_cost + choice.harm_cost
    found = (
        f"{text(choice.bid)} has the lowest expected cost: {choice.bid / choice.level:.2f} times the forecast of "
        f"{text(choice.level)} ({name}); usage is above it in {choice.over:.1%} of "
        f"{'time' if resource == 'cpu' else 'hours'}; cost {cost:.2f} times the mean usage ({choice.request_cost:.2f} "
        f"for the request, {choice.harm_cost:.2f} for usage above it)"
    )
    if abs(choice.held - choice.bid) <= KEPT_TOLERANCE * choice.held:
        return found
    return (
        f"{found}; the request stays at {text(choice.held)} until a change would have saved "
        f"{choice.required_savings:.2f} times the mean usage ({choice.savings:.2f} so far)"
    )


def _name_forecaster(resource: ResourceName, forecaster: int, window_hours: float) -> str:
    latest = "latest usage" if resource == "cpu" else "latest peak"
    hourly = "busiest hour of former days" if window_hours else "same hour on former days"
    return {
        LAST: f"mean of the last {window_hours:g} h" if window_hours else latest,
        SLOW: "slow mean" if resource == "cpu" else "slow mean of peaks",
        HOURLY: hourly,
        HIGHER: f"higher of {latest} and {hourly}",
        PEAK: "fading peak",
    }[forecaster]


FADE_INTERVAL = 6
"""Epochs between two decays of errors."""
BATCH_SAMPLES = 12
"""Samples of each container that are processed together, so that its state is loaded into the processor once.
"""
EDGE_TOLERANCE = 1e-9
"""The share by which a size may miss the edge of a bucket that it was chosen from."""
EVENT_WEIGHT = 1e-9
"""The share of an epoch that an event without a duration stands for."""


class ResourceTuning(NamedTuple):
    """The constants of one resource, chosen by back-tests on recorded usage (`docs/research/backtest.md`)."""

    buckets: ErrorBuckets
    prior: tuple[tuple[float, float], ...]
    """The errors that are assumed before any was seen: the share and the spread of each part."""
    error_half_lives: float
    """The half-life of errors, as a multiple of the setting `half_life`."""
    peak_half_life_hours: float
    """The hours in which a peak fades by half; 0: only the last epoch's peak counts."""
    peak_floor: float
    """The least multiple of its fading peak that a container gets: what it once needed it may need again."""
    headroom: float
    """The highest multiple of its highest peak that a container gets."""
    prior_epochs: float
    """The number of a container's own epochs that these count for."""
    tolerance_share: float
    """The share of the setting `tolerance` that holds; memory moves less."""
    most: float
    """The most plausible usage; a sample above it is ignored."""
    only_peaks: bool
    """True if only the peak of an epoch counts, as one moment without memory kills."""


class ResourceState:
    """Learns from samples, ends epochs, and holds the sizes of the present one."""

    def __init__(
        self, containers: int, tuning: ResourceTuning, decay: DecayFactors, cost_model: CostModel
    ) -> None:
        self._tuning, self._decay, self._cost_model = tuning, decay, cost_model
        buckets = tuning.buckets
        self._edges = buckets.edges()
        self._prior = buckets.prior_weights(tuning.prior)
        self._epoch_state = EpochState.create(containers)
        # The preview is released as soon as it is outdated: it takes 10 MiB for 20,000 containers.
        self._preview: EpochState | None = None
        self._preview_hours = (-1, -1)
        self._epoch = EpochUsage(
            sums=np.zeros((containers, EPOCH_FIELDS)),
            errors=np.zeros((containers, FORECASTERS, buckets.buckets), np.float32),
        )
        self._epochs = np.zeros(1, np.int64)
        self._pending_usage, self._pending_weights, self._pending_count = (
            np.empty((BATCH_SAMPLES, containers)),
            np.empty(BATCH_SAMPLES),
            0,
        )

    @property
    def current(self) -> EpochState:
        """The state of this epoch; its held sizes are NaN for a container that has none yet."""
        return self._epoch_state

    @property
    def has_sizes(self) -> bool:
        return bool(self._epochs[0] > 0)

    def observe(self, usage: Floats, weight: float) -> None:
        """Learn one sample of each container, which stands for this share of an epoch."""
        self.clear_preview()
        self._pending_usage[self._pending_count], self._pending_weights[self._pending_count] = usage, weight
        self._pending_count += 1
        if self._pending_count == BATCH_SAMPLES:
            self._flush_samples()

    def raise_to(self, containers: Indices, sizes: Floats, peaks: Floats) -> None:
        """Raise these containers to at least these sizes now, and learn from these peaks."""
        self._flush_samples()
        # `fmax`, so that a container that was killed before it had a size gets one.
        self._epoch_state.held[containers] = np.fmax(self._epoch_state.held[containers], sizes)
        usage = np.full(len(self._epoch.sums), np.nan)
        usage[containers] = peaks
        self.observe(usage, EVENT_WEIGHT)

    def close_epoch(self, hour: int, hour_ahead: int) -> None:
        """End the epoch and compute the sizes of the next."""
        self._epoch_state = self._compute_next_epoch(hour, hour_ahead)
        self.clear_preview()
        self._epoch.sums[:, :MASS] = 0.0
        self._epochs += 1
        if self._epochs[0] % FADE_INTERVAL == 0:
            # Errors fade several epochs at once: they are most of the state, and each pass reads all of it.
            faded = self._decay.errors**FADE_INTERVAL
            np.multiply(self._epoch.errors, np.float32(faded), out=self._epoch.errors)
            self._epoch.sums[:, MASS] *= faded

    def preview(self, hour: int, hour_ahead: int) -> EpochState:
        """Return the state that `close_epoch` would compute now, beside the present one."""
        return self._compute_next_epoch(hour, hour_ahead)

    def explain(self, state: EpochState, row: int) -> SizeExplanation | None:
        """Return how the size of one container was chosen; None if it has none yet."""
        if np.isnan(state.held[row]) or np.isnan(state.bid[row, 0]):
            return None
        model = self._cost_model
        chosen = kernels.choose_forecast(state.cost[row])
        level, bid = float(np.exp(state.log_level[row, chosen])), float(state.bid[row, chosen])
        weights = self._epoch.errors[row, chosen] + self._decay.prior_epochs * self._prior
        excess = np.maximum(level * self._edges[1:] - bid * (1 + EDGE_TOLERANCE), 0.0)
        mass, usual, care = float(weights.sum()), float(state.level[row, MEAN]), float(state.care[row])
        over = float(weights[excess > 0].sum()) / mass
        unserved = float((weights * excess).sum()) / (mass * usual)
        share = kernels.used_share(state.served[row], usual) ** model.leniency
        return SizeExplanation(
            forecaster=chosen,
            level=level,
            bid=bid,
            held=float(state.held[row]),
            over=over,
            request_cost=share * bid / usual,
            harm_cost=model.overuse_penalty * care * over
            + (share + model.unserved_penalty * care) * unserved,
            savings=float(state.expected_savings[row]),
            required_savings=kernels.required_savings(model, state.recent_changes[row]),
        )

    def clear_preview(self) -> None:
        """Drop the preview, which no longer follows from the state."""
        self._preview = None

    def arrays(self) -> dict[str, Array]:
        """Return the whole state by name."""
        self._flush_samples()
        return {
            **dict(zip(STORED_FIELDS, self._epoch_state, strict=True)),
            "epoch": self._epoch.sums,
            "errors": self._epoch.errors,
            "epochs": self._epochs,
        }

    def _compute_next_epoch(self, hour: int, hour_ahead: int) -> EpochState:
        """Return the state after the epoch, beside the present one: usually first for a preview, then for the
        end itself.
        """
        if self._preview is not None and self._preview_hours == (hour, hour_ahead):
            return self._preview
        self._flush_samples()
        ahead = self._epoch_state.copy()
        kernels.charge_forecasts(self._tuning.only_peaks, self._decay, self._cost_model, self._epoch, ahead)
        kernels.update_levels(hour, hour_ahead, self._tuning.only_peaks, self._decay, self._epoch, ahead)
        kernels.choose_sizes(
            self._decay, self._cost_model, self._tuning.buckets, self._edges, self._epoch, self._prior, ahead
        )
        self._preview, self._preview_hours = ahead, (hour, hour_ahead)
        return ahead

    def _flush_samples(self) -> None:
        """Learn from the pending samples."""
        rows, self._pending_count = self._pending_count, 0
        kernel = kernels.record_peaks if self._tuning.only_peaks else kernels.record_samples
        kernel(
            self._pending_usage[:rows],
            self._pending_weights[:rows],
            self._tuning.most,
            self._decay.mature_weight,
            self._tuning.buckets,
            self._epoch,
            self._epoch_state,
        )

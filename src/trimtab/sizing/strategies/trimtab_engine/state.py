"""The state of one resource of all containers, in flat arrays, and its transitions.

`trimtab.sizing.strategies.trimtab` knows when to take them.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from trimtab.sizing.state.serialization import Array
from trimtab.sizing.strategies.trimtab_engine import kernels
from trimtab.sizing.strategies.trimtab_engine.kernels import (
    EPOCH_FIELDS,
    FORECASTERS,
    MASS,
    UNREST_BOUNDARIES,
    CostModel,
    DecayFactors,
    EpochState,
    ErrorBuckets,
)
from trimtab.sizing.strategy import Floats, Indices

FLEET_INTERVAL = 6
"""Epochs between two decays of errors and sums over the fleet; the first epochs are summed each time."""
BATCH_SAMPLES = 12
"""Samples of each container that are processed together, so that its state is loaded into the processor once.
"""
EVENT_WEIGHT = 1e-9
"""The share of an epoch that an event without a duration stands for."""


class ResourceState:
    """Learns from samples, ends epochs, and holds the sizes of the present one."""

    def __init__(
        self,
        containers: int,
        *,
        buckets: ErrorBuckets,
        spread: float,
        decay: DecayFactors,
        cost_model: CostModel,
        most: float,
        peaks: bool,
    ) -> None:
        self._buckets, self._decay, self._cost_model, self._most, self._peaks = (
            buckets,
            decay,
            cost_model,
            most,
            peaks,
        )
        self._edges, self._prior = buckets.edges(), buckets.prior_weights(spread)
        self._epoch_state = EpochState.new(containers)
        # The preview is released as soon as it is outdated: it takes 10 MiB for 20,000 containers.
        self._preview: EpochState | None = None
        self._preview_hours = (-1, -1)
        self._epoch = np.zeros((containers, EPOCH_FIELDS))
        self._errors = np.zeros((containers, FORECASTERS, buckets.buckets), np.float32)
        self._shape = np.tile(self._prior, (len(UNREST_BOUNDARIES) + 1, FORECASTERS, 1))
        self._fleet = np.zeros((len(UNREST_BOUNDARIES) + 1, FORECASTERS))
        self._epochs = np.zeros(1, np.int64)
        self._pending_usage, self._pending_weights, self._pending_count = (
            np.empty((BATCH_SAMPLES, containers)),
            np.empty(BATCH_SAMPLES),
            0,
        )

    @property
    def current_sizes(self) -> Floats:
        """The sizes of this epoch; NaN for a container that has none yet."""
        return self._epoch_state.held

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
        self._epoch_state.held[containers] = np.fmax(self._epoch_state.held[containers], sizes)
        usage = np.full(len(self._epoch), np.nan)
        usage[containers] = peaks
        self.observe(usage, EVENT_WEIGHT)

    def close_epoch(self, hour: int, hour_ahead: int) -> None:
        """End the epoch and compute the sizes of the next."""
        self._epoch_state = self._compute_next_epoch(hour, hour_ahead)
        self.clear_preview()
        self._fleet[...] = kernels.average_fleet_costs(self._epoch_state.arrays())
        self._epoch[:, :MASS] = 0.0
        self._epochs += 1
        due = self._epochs[0] % FLEET_INTERVAL == 0
        if due or self._epochs[0] < FLEET_INTERVAL:
            self._shape[...] = kernels.average_fleet_errors(
                self._epoch, self._errors, self._prior, self._epoch_state.level
            )
        if due:
            self._errors *= np.float32(self._decay.errors**FLEET_INTERVAL)
            self._epoch[:, MASS] *= self._decay.errors**FLEET_INTERVAL

    def preview_sizes(self, hour: int, hour_ahead: int) -> Floats:
        """Return the sizes that `close_epoch` would compute now, without a change of state."""
        return self._compute_next_epoch(hour, hour_ahead).held

    def clear_preview(self) -> None:
        """Drop the preview, which no longer follows from the state."""
        self._preview = None

    def arrays(self) -> dict[str, Array]:
        """Return the whole state by name."""
        self._flush_samples()
        small = {field.name: getattr(self._epoch_state, field.name) for field in fields(self._epoch_state)}
        return {
            **small,
            "epoch": self._epoch,
            "errors": self._errors,
            "shape": self._shape,
            "fleet": self._fleet,
            "epochs": self._epochs,
        }

    def _compute_next_epoch(self, hour: int, hour_ahead: int) -> EpochState:
        """Return the state after the epoch, beside the present one: usually first for a preview, then for the
        end itself.
        """
        if self._preview is not None and self._preview_hours == (hour, hour_ahead):
            return self._preview
        self._flush_samples()
        ahead = EpochState(*(array.copy() for array in self._epoch_state.arrays()))
        arrays = ahead.arrays()
        kernels.close_epoch(hour, hour_ahead, self._peaks, self._decay, self._cost_model, self._epoch, arrays)
        kernels.choose_sizes(
            self._decay,
            self._cost_model,
            self._buckets,
            self._edges,
            self._epoch,
            self._errors,
            self._shape,
            self._fleet,
            arrays,
        )
        self._preview, self._preview_hours = ahead, (hour, hour_ahead)
        return ahead

    def _flush_samples(self) -> None:
        """Learn from the pending samples."""
        rows, self._pending_count = self._pending_count, 0
        small, kernel = self._epoch_state, kernels.observe_peaks if self._peaks else kernels.observe_samples
        kernel(
            self._pending_usage[:rows],
            self._most,
            self._pending_weights[:rows],
            self._buckets,
            self._epoch,
            self._errors,
            small.base,
            small.bid,
            small.over,
            small.lack,
            small.held,
            small.level,
            self._decay.mature_weight,
        )

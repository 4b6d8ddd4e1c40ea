"""One resource of all containers: what was learned of it, kept in flat arrays, and the steps that move it.

Left out is when to take these steps: `trimtab.sizing.strategies.trimtab` knows the time.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from trimtab.sizing.state.serialization import Array
from trimtab.sizing.strategies.trimtab_engine import kernels
from trimtab.sizing.strategies.trimtab_engine.kernels import (
    EPOCH,
    FORECASTERS,
    KINDS,
    MASS,
    Grid,
    Pace,
    Small,
    Stake,
)
from trimtab.sizing.strategy import Floats, Indices

FLEET_EVERY = 6
"""Epochs after which errors fade and the fleet's are summed anew; in the first ones they are summed each time."""
AT_ONCE = 12
"""Samples of each container that are taken in together: what is known of a container then comes to the processor once."""
A_MOMENT = 1e-9
"""The part of an epoch that an event stands for which has no length."""


class Learner:
    """Takes in samples, ends epochs, and holds the sizes of the present one."""

    def __init__(
        self,
        containers: int,
        *,
        grid: Grid,
        spread: float,
        pace: Pace,
        stake: Stake,
        most: float,
        peaks: bool,
    ) -> None:
        self._grid, self._pace, self._stake, self._most, self._peaks = grid, pace, stake, most, peaks
        self._edges, self._prior = grid.edges(), grid.prior(spread)
        self._small = Small.new(containers)
        # Held only while there is somebody to read it: of 20,000 containers it is 10 MiB.
        self._ahead: Small | None = None
        self._seen_ahead = (-1, -1)
        self._epoch = np.zeros((containers, EPOCH))
        self._errors = np.zeros((containers, FORECASTERS, grid.buckets), np.float32)
        self._shape = np.tile(self._prior, (len(KINDS) + 1, FORECASTERS, 1))
        self._fleet = np.zeros((len(KINDS) + 1, FORECASTERS))
        self._epochs = np.zeros(1, np.int64)
        self._waiting, self._weights, self._rows = np.empty((AT_ONCE, containers)), np.empty(AT_ONCE), 0

    @property
    def held(self) -> Floats:
        """The sizes of this epoch; NaN for a container that none was named for yet."""
        return self._small.held

    @property
    def has_named(self) -> bool:
        return bool(self._epochs[0] > 0)

    def note(self, usage: Floats, weight: float) -> None:
        """Take in one sample of each container, which stands for so much of an epoch."""
        self.forget_ahead()
        self._waiting[self._rows], self._weights[self._rows] = usage, weight
        self._rows += 1
        if self._rows == AT_ONCE:
            self._take_in()

    def raise_to(self, containers: Indices, sizes: Floats, peaks: Floats) -> None:
        """Give these containers at least such sizes now, and learn from such peaks."""
        self._take_in()
        self._small.held[containers] = np.fmax(self._small.held[containers], sizes)
        usage = np.full(len(self._epoch), np.nan)
        usage[containers] = peaks
        self.note(usage, A_MOMENT)

    def close(self, hour: int, hour_ahead: int) -> None:
        """End the epoch and name the sizes of the next."""
        self._small = self._look_ahead(hour, hour_ahead)
        self.forget_ahead()
        self._fleet[...] = kernels.fleet_costs(self._small.arrays())
        self._epoch[:, :MASS] = 0.0
        self._epochs += 1
        due = self._epochs[0] % FLEET_EVERY == 0
        if due or self._epochs[0] < FLEET_EVERY:
            self._shape[...] = kernels.fleet_errors(self._epoch, self._errors, self._prior, self._small.level)
        if due:
            self._errors *= np.float32(self._pace.errors**FLEET_EVERY)
            self._epoch[:, MASS] *= self._pace.errors**FLEET_EVERY

    def preview(self, hour: int, hour_ahead: int) -> Floats:
        """The sizes that `close` would name now. Changes nothing."""
        return self._look_ahead(hour, hour_ahead).held

    def forget_ahead(self) -> None:
        """What was seen ahead no longer follows from what is known."""
        self._ahead = None

    def arrays(self) -> dict[str, Array]:
        """All of the state, by name."""
        self._take_in()
        small = {field.name: getattr(self._small, field.name) for field in fields(self._small)}
        return {
            **small,
            "epoch": self._epoch,
            "errors": self._errors,
            "shape": self._shape,
            "fleet": self._fleet,
            "epochs": self._epochs,
        }

    def _look_ahead(self, hour: int, hour_ahead: int) -> Small:
        """What the epoch's end would write, beside what is: mostly first for a question, and then for the end itself."""
        if self._ahead is not None and self._seen_ahead == (hour, hour_ahead):
            return self._ahead
        self._take_in()
        ahead = Small(*(array.copy() for array in self._small.arrays()))
        arrays = ahead.arrays()
        kernels.settle(hour, hour_ahead, self._peaks, self._pace, self._stake, self._epoch, arrays)
        kernels.decide(
            self._pace,
            self._stake,
            self._grid,
            self._edges,
            self._epoch,
            self._errors,
            self._shape,
            self._fleet,
            arrays,
        )
        self._ahead, self._seen_ahead = ahead, (hour, hour_ahead)
        return ahead

    def _take_in(self) -> None:
        """Learn from the samples that wait."""
        rows, self._rows = self._rows, 0
        small, kernel = self._small, kernels.note_peaks if self._peaks else kernels.note_samples
        kernel(
            self._waiting[:rows],
            self._most,
            self._weights[:rows],
            self._grid,
            self._epoch,
            self._errors,
            small.base,
            small.bid,
            small.over,
            small.lack,
            small.held,
            small.level,
            self._pace.grown,
        )

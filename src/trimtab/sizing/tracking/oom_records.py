"""OOM kills of each container, one record per size at which it was killed.

A list of the last kills forgets: replicas that are killed again and again at one size would displace the
kills at smaller sizes, and with them the fact that the container was raised and killed again. A record per
size stays as long as kills go on, however many there are and of however many replicas.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from trimtab.sizing.evidence import OomKills
from trimtab.sizing.state import Array, Floats, Indices

Booleans = npt.NDArray[np.bool_]

MAX_SIZES = 8
"""The number of sizes per container. The smallest is dropped first, because the largest shows the need."""
SIZE_BUCKET_WIDTH = math.log(1.05)
"""The distance of the logarithms below which sizes count as one: a raise is clearly more than 5 %."""
QUIET_PERIOD = 30 * 86400.0
"""Seconds without a kill after which earlier ones are forgotten: a later kill has another cause."""
EXACT, CORRECTED, ESTIMATED = 0, 1, 2
"""The origins of a size, the better ones lower: reported by a pod; a kill from a usage source with the size
of its container; only samples.
"""
SAME_KILL_WINDOW = 7200.0
"""Seconds by which a usage source may report a kill later than the pod: a step of the history, and a window.
"""
_STORED_NAMES = {"last_reported": "told"}
"""The names of arrays in stored states, where they differ from the attributes."""


class KillRecords:
    """The records of all containers, in arrays with one row each; a size of 0 is a free place."""

    def __init__(self, rows: int) -> None:
        self.size = np.zeros((rows, MAX_SIZES))
        self.count = np.zeros((rows, MAX_SIZES), np.int32)
        self.first = np.zeros((rows, MAX_SIZES))
        self.last = np.zeros((rows, MAX_SIZES))
        self.origin = np.zeros((rows, MAX_SIZES), np.int8)
        """The origin of the size: `EXACT`, `CORRECTED` or `ESTIMATED`."""
        self.last_reported = np.full(rows, -np.inf)
        """The time of the last kill that a pod reported: pods report the same kill again and again."""

    def add(
        self, t: Floats, rows: Indices, memory: Floats, *, plausible: Booleans, estimated: bool
    ) -> Booleans:
        """Count kills; return which of them are new."""
        new = np.zeros(t.size, np.bool_)
        for slot in np.flatnonzero(plausible):
            # A container without limit, request or sample has no size: one byte stands for that.
            size = max(float(memory[slot]), 1.0)
            new[slot] = self._add(int(rows[slot]), float(t[slot]), size, estimated=estimated)
        return new

    def correct(self, rows: Indices, memory: Floats) -> None:
        """Raise the estimated size of kills to what their container has, because they hit its limit.

        This is done once per kill: later sizes may be a reaction to it.
        """
        due = (self.origin[rows] == ESTIMATED).any(axis=1)
        for row, having in zip(rows[due].tolist(), memory[due].tolist(), strict=True):
            for slot in np.flatnonzero(self.origin[row] == ESTIMATED).tolist():
                kills = self._pop(row, slot)
                self._merge(row, max(kills.memory, int(having)), kills, CORRECTED)

    def forget(self, rows: Indices) -> None:
        """Drop all kills of these containers."""
        for array in self._record_arrays():
            array[rows] = 0

    def list_kills(self, t: float, row: int) -> tuple[OomKills, ...]:
        """Return the records of a container in the order of their first kills; none after a quiet month."""
        if not self.size[row].any():
            return ()  # Nearly every container has none.
        held = np.flatnonzero(self.size[row])
        if t - self.last[row, held].max() > QUIET_PERIOD:
            return ()
        return tuple(sorted((self._read(row, slot) for slot in held.tolist()), key=lambda each: each.first))

    def arrays(self, prefix: str) -> dict[str, Array]:
        return {prefix + _STORED_NAMES.get(name, name): array for name, array in vars(self).items()}

    def load_arrays(self, prefix: str, arrays: Mapping[str, Array]) -> None:
        for name in vars(self):
            setattr(self, name, arrays[prefix + _STORED_NAMES.get(name, name)])

    def _record_arrays(self) -> tuple[Array, ...]:
        return self.size, self.count, self.first, self.last, self.origin

    def _add(self, row: int, t: float, size: float, *, estimated: bool) -> bool:
        if not estimated:
            # The container status shows the last kill until the next one: counted each time, one kill would
            # become many.
            if t <= self.last_reported[row]:
                return False
            self.last_reported[row] = t
        held = np.flatnonzero(self.size[row])
        if held.size:
            latest = float(self.last[row, held].max())
            if latest - t > QUIET_PERIOD:
                return False  # Pods remember a kill for as long as they live.
            if t - latest > QUIET_PERIOD:
                self.forget(np.array([row], np.intp))
            elif self._is_known(row, t, int(size), estimated=estimated):
                return False
        return self._merge(row, int(size), OomKills(int(size), 1, t, t), ESTIMATED if estimated else EXACT)

    def _is_known(self, row: int, t: float, size: int, *, estimated: bool) -> bool:
        """Return whether a pod and a usage source reported the same kill: the pod's report then counts."""
        for slot in np.flatnonzero(self.size[row]).tolist():
            # A pod and a usage source report the same kill at different times: counted twice, one kill would look like two.
            if estimated == (self.origin[row, slot] != EXACT):
                continue  # Neither reports the same kill twice.
            if self.first[row, slot] - SAME_KILL_WINDOW <= t <= self.last[row, slot] + SAME_KILL_WINDOW:
                if not estimated:
                    self._merge(row, size, self._pop(row, slot), EXACT)
                return True
        return False

    def _merge(self, row: int, size: int, kills: OomKills, origin: int) -> bool:
        """Merge kills into the record of their size; return False if there is no place for so small a size."""
        sizes = self.size[row]
        held = np.flatnonzero(sizes)
        count, first, last = kills.count, kills.first, kills.last
        same = [slot for slot in held.tolist() if _size_bucket(sizes[slot]) == _size_bucket(size)]
        if same:
            # Merged by bucket, so that slightly different sizes of one limit do not fill the few places of a
            # container.
            (slot,) = same
            origin = min(origin, int(self.origin[row, slot]))
            known = self._pop(row, slot)
            size, count = max(size, known.memory), count + known.count
            first, last = min(first, known.first), max(last, known.last)
        elif held.size < MAX_SIZES:
            slot = int(np.flatnonzero(sizes == 0)[0])
        else:
            slot = int(sizes.argmin())
            # The largest sizes show the need: a kill at a smaller one adds nothing to it.
            if size < sizes[slot]:
                return False
        self.size[row, slot], self.count[row, slot] = size, count
        self.first[row, slot], self.last[row, slot] = first, last
        self.origin[row, slot] = origin
        return True

    def _pop(self, row: int, slot: int) -> OomKills:
        """Remove a record and return it."""
        kills = self._read(row, slot)
        for array in self._record_arrays():
            array[row, slot] = 0
        return kills

    def _read(self, row: int, slot: int) -> OomKills:
        return OomKills(
            int(self.size[row, slot]),
            int(self.count[row, slot]),
            float(self.first[row, slot]),
            float(self.last[row, slot]),
        )


def _size_bucket(size: float) -> int:
    return math.floor(math.log(max(size, 1.0)) / SIZE_BUCKET_WIDTH)

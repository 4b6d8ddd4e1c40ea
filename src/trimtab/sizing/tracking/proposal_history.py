"""What a strategy proposed lately for each container: the highest of every hour of a day.

Who follows the day gives back at night what the morning needs; by then it may be gone, with the node that had it. So a
container is made smaller only to the highest of what was proposed in a time that the policy says
(`floors.stabilization`). It is kept beside the strategy, as a witness is, so that this holds for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from trimtab.plugins import Settings
from trimtab.sizing.state.array_state import ArrayState
from trimtab.sizing.state.serialization import Array
from trimtab.sizing.stats.plausibility import MAX_PLAUSIBLE_CPU, MAX_PLAUSIBLE_MEMORY
from trimtab.sizing.stats.window import RollingMaxima
from trimtab.sizing.strategy import Targets

HOUR = 3600.0
HOURS_KEPT = 25
"""The present one, and those that a day before it has a part in."""


class ProposalHistorySettings(Settings):
    """There are none."""


class RecentTargets(NamedTuple):
    """The highest targets for one container by the hour of the clock, this hour's first; 0 where there was none."""

    cpu: tuple[float, ...] = ()
    """Cores."""
    memory: tuple[float, ...] = ()


class ProposalHistory(ArrayState[ProposalHistorySettings]):
    """The highest targets of each hour, in a ring."""

    name = "proposed"

    def __init__(self, containers: int, settings: ProposalHistorySettings) -> None:
        super().__init__(containers, settings)
        self._cpu = RollingMaxima(containers, seconds=HOURS_KEPT * HOUR, slices=HOURS_KEPT)
        self._memory = RollingMaxima(containers, seconds=HOURS_KEPT * HOUR, slices=HOURS_KEPT)

    def record(self, t: float, targets: Targets) -> None:
        """Take in what is proposed at `t` seconds."""
        self._cpu.add(t, targets.cpu.target, MAX_PLAUSIBLE_CPU)
        self._memory.add(t, targets.memory.target, MAX_PLAUSIBLE_MEMORY)

    def is_due(self, t: float, *, until: float) -> bool:
        """Whether nothing was taken in yet in the hour of `t`, and what is will still be remembered at `until`."""
        return until // HOUR - t // HOUR < HOURS_KEPT and not self._cpu.has_begun(t)

    def recent_targets(self, t: float, container: int) -> RecentTargets:
        """What was proposed for this container up to `t`."""
        return RecentTargets(self._cpu.peaks_by_age(t, container), self._memory.peaks_by_age(t, container))

    def arrays(self) -> dict[str, Array]:
        return self._cpu.arrays("cpu.") | self._memory.arrays("memory.")

    def load_arrays(self, arrays: Mapping[str, Array]) -> None:
        self._cpu.load_arrays("cpu.", arrays)
        self._memory.load_arrays("memory.", arrays)

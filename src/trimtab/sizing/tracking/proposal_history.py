"""The recent proposals of a strategy for each container: the highest of every hour of a day.

Following the daily cycle releases capacity at night that may not be there in the morning. So a container is
made smaller only to the highest proposal of a window that the policy sets (`floors.check_stabilization`). The
history is kept beside the strategy, so that this holds for all strategies.
"""

from __future__ import annotations

from collections.abc import Mapping

from trimtab.plugins import Settings
from trimtab.sizing.arrays import Array
from trimtab.sizing.proposal import RecentTargets
from trimtab.sizing.state.array_state import ArrayState
from trimtab.sizing.stats.plausibility import MAX_PLAUSIBLE_CPU, MAX_PLAUSIBLE_MEMORY
from trimtab.sizing.stats.window import RollingMaxima
from trimtab.sizing.strategy import Targets

HOUR = 3600.0
HOURS_KEPT = 25
"""The number of hours: the present one, and those of which the day before has a part."""


class ProposalHistorySettings(Settings):
    """The settings of a proposal history; there are none."""


class ProposalHistory(ArrayState[ProposalHistorySettings]):
    """The highest targets of each hour, in a ring."""

    name = "proposed"

    def __init__(self, containers: int, settings: ProposalHistorySettings) -> None:
        super().__init__(containers, settings)
        self._cpu = RollingMaxima(containers, seconds=HOURS_KEPT * HOUR, slices=HOURS_KEPT)
        self._memory = RollingMaxima(containers, seconds=HOURS_KEPT * HOUR, slices=HOURS_KEPT)

    def record(self, t: float, targets: Targets) -> None:
        """Record the targets of `t` seconds."""
        self._cpu.add(t, targets.cpu.target, MAX_PLAUSIBLE_CPU)
        self._memory.add(t, targets.memory.target, MAX_PLAUSIBLE_MEMORY)

    def is_due(self, t: float, *, until: float) -> bool:
        """Return whether the hour of `t` has no proposal yet and will still be remembered at `until`."""
        return until // HOUR - t // HOUR < HOURS_KEPT and not self._cpu.has_begun(t)

    def recent_targets(self, t: float, container: int) -> RecentTargets:
        """Return the targets that were proposed for this container up to `t`."""
        return RecentTargets(self._cpu.peaks_by_age(t, container), self._memory.peaks_by_age(t, container))

    def arrays(self) -> dict[str, Array]:
        return self._cpu.arrays("cpu.") | self._memory.arrays("memory.")

    def load_arrays(self, arrays: Mapping[str, Array]) -> None:
        self._cpu.load_arrays("cpu.", arrays)
        self._memory.load_arrays("memory.", arrays)

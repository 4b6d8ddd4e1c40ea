"""What a strategy proposed lately for each container: the highest of every hour of a day.

Who follows the day gives back at night what the morning needs; by then it may be gone, with the node that had it. So a
container is made smaller only to the highest of what was proposed in a time that the policy says
(`floors.stabilization`). It is kept beside the strategy, as a witness is, so that this holds for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from trimtab.plugins import Settings
from trimtab.sizing.state.array_state import Rowed
from trimtab.sizing.state.serialization import Array
from trimtab.sizing.stats.plausibility import CPU_MOST, MEMORY_MOST
from trimtab.sizing.stats.window import Maxima
from trimtab.sizing.strategy import Sizes

HOUR = 3600.0
HOURS = 25
"""The present one, and those that a day before it has a part in."""


class ProposedSettings(Settings):
    """There are none."""


class Lately(NamedTuple):
    """The highest targets for one container by the hour of the clock, this hour's first; 0 where there was none."""

    cpu: tuple[float, ...] = ()
    """Cores."""
    memory: tuple[float, ...] = ()


class Proposed(Rowed[ProposedSettings]):
    """The highest targets of each hour, in a ring."""

    name = "proposed"

    def __init__(self, containers: int, settings: ProposedSettings) -> None:
        super().__init__(containers, settings)
        self._cpu = Maxima(containers, seconds=HOURS * HOUR, slices=HOURS)
        self._memory = Maxima(containers, seconds=HOURS * HOUR, slices=HOURS)

    def note(self, t: float, sizes: Sizes) -> None:
        """Take in what is proposed at `t` seconds."""
        self._cpu.add(t, sizes.cpu.target, CPU_MOST)
        self._memory.add(t, sizes.memory.target, MEMORY_MOST)

    def is_due(self, t: float, *, until: float) -> bool:
        """Whether nothing was taken in yet in the hour of `t`, and what is will still be remembered at `until`."""
        return until // HOUR - t // HOUR < HOURS and not self._cpu.has_begun(t)

    def lately(self, t: float, container: int) -> Lately:
        """What was proposed for this container up to `t`."""
        return Lately(self._cpu.by_age(t, container), self._memory.by_age(t, container))

    def arrays(self) -> dict[str, Array]:
        return self._cpu.arrays("cpu.") | self._memory.arrays("memory.")

    def take_over(self, arrays: Mapping[str, Array]) -> None:
        self._cpu.take_over("cpu.", arrays)
        self._memory.take_over("memory.", arrays)

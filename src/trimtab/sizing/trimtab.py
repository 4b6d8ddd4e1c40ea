"""Our own strategy, and the default: the least size that keeps to the risk asked, learned for each container.

CPU is sized so that little time is spent over the request and little use is left unserved, memory so that the peak of
an hour is hardly ever over it. How it learns is in `trimtab.sizing.learner`; here is what it is asked for, and when.

Sizes are named once an update (an hour) and stay until the next. A question in the second half of an hour is answered
as if the hour were over.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from trimtab.sizing import snapshot
from trimtab.sizing.forecast import Grid, Pace, Stake
from trimtab.sizing.learner import Learner
from trimtab.sizing.sample import CPU_MOST, MEMORY_MOST
from trimtab.sizing.strategy import Bounds, Floats, Indices, Settings, Sizes, Strategy

HOUR, DAY, MONTH = 3600.0, 86400.0, 30 * 86400.0

CPU_GRID, CPU_SPREAD = Grid(low=-1.5, width=0.065, buckets=96), 0.35
MEMORY_GRID, MEMORY_SPREAD = Grid(low=-0.3, width=0.02, buckets=80), 0.05
"""The buckets of errors, and how far errors spread before any was seen."""
CARE = 6.0
"""How many times the risk asked a container may bear before it is treated with more care."""
CPU_HEADROOM, MEMORY_HEADROOM = 1.1, 1.5
"""How many times its highest peak a container is given at most."""
MILDNESS = 1.0
FLEET_ERRORS, FLEET_COSTS, COSTS = 6.0, 24.0, 72.0
CPU_PRICE = 0.04
"""A container's time over its request costs this much of its mean use, divided by the risk asked:"""
OOM_PRICE = 0.05
"""so does an OOM. Both were set so that the risk asked is about the risk that the traces show."""
CPU_PEAK, MEMORY_PEAK = 0.0, 48.0
"""Hours in which a peak fades by half; 0: only the last epoch's counts."""
FIRST_WEIGHT = 1 / 60
"""The part of an update that the very first sample stands for."""
ENOUGH = 0.5
"""The part of an update after which its data say enough to name sizes anew."""


class TrimtabSettings(Settings):
    """What is asked for. The defaults suit a cluster that nobody has looked at."""

    cpu_risk: float = Field(default=0.02, gt=0, lt=1)
    """The share of time that a container may need more CPU than it asks for: less risk, more cost."""
    memory_risk: float = Field(default=0.1, gt=0)
    """OOMs a container and month that are worth the memory saved: less risk, more cost."""
    unserved: float = Field(default=0.3, ge=0)
    """How much CPU left unserved counts beside time over the request: more covers the spikes better."""
    update: float = Field(default=HOUR, gt=0)
    """Seconds that a size stays until the next is asked for."""
    memory: float = Field(default=96.0, gt=0)
    """Hours in which an error of a forecast loses half its weight."""
    tolerance: float = Field(default=0.15, ge=0, lt=1)
    """What a change of size must save to be made, as a fraction of the container's mean use."""
    oom_bump: float = Field(default=1.25, gt=1)
    """A killed container gets this many times what it had."""
    min_cpu: float = Field(default=0.001, ge=0)
    """The least cores asked for."""
    min_memory: float = Field(default=0.0, ge=0)
    """The least bytes asked for."""


class Trimtab(Strategy[TrimtabSettings]):
    """Sizes by the forecast that pays, with the margin that its own errors ask for."""

    name: ClassVar[str] = "trimtab"
    settings_type: ClassVar[type[Settings]] = TrimtabSettings

    def __init__(self, containers: int, settings: TrimtabSettings) -> None:
        super().__init__(containers, settings)
        hours = settings.update / HOUR
        oom_risk = settings.memory_risk * settings.update / MONTH
        self._cpu = Learner(
            containers,
            grid=CPU_GRID,
            spread=CPU_SPREAD,
            pace=_pace(hours, errors=settings.memory, peak=CPU_PEAK),
            stake=Stake(
                under=CPU_PRICE / settings.cpu_risk,
                unserved=settings.unserved * CPU_PRICE / settings.cpu_risk,
                risk=CARE * settings.cpu_risk,
                headroom=CPU_HEADROOM,
                mildness=MILDNESS,
                change=settings.tolerance,
            ),
            most=CPU_MOST,
            peaks=False,
        )
        self._memory = Learner(
            containers,
            grid=MEMORY_GRID,
            spread=MEMORY_SPREAD,
            pace=_pace(hours, errors=2 * settings.memory, peak=MEMORY_PEAK),
            stake=Stake(
                under=OOM_PRICE / oom_risk,
                unserved=0.0,
                risk=CARE * oom_risk,
                headroom=MEMORY_HEADROOM,
                mildness=MILDNESS,
                change=settings.tolerance,
            ),
            most=MEMORY_MOST,
            peaks=True,
        )
        self._clock = np.array([np.nan])

    def observe(self, t: float, cpu: Floats, memory: Floats) -> None:
        before = float(self._clock[0])
        self._clock[0] = t
        weight = FIRST_WEIGHT if np.isnan(before) else min((t - before) / self.settings.update, 1.0)
        for resource, usage in ((self._cpu, cpu), (self._memory, memory)):
            if not np.isnan(before) and self._epoch(t) != self._epoch(before):
                resource.close(self._hour(before), self._hour(t))
            resource.note(usage, weight)

    def observe_oom(self, t: float, containers: Indices, memory: Floats) -> None:  # noqa: ARG002 - it counts for the present epoch
        self._memory.raise_to(containers, memory * self.settings.oom_bump)

    def recommend(self, t: float) -> Sizes:
        cpu, memory = (self._ahead(resource, t) for resource in (self._cpu, self._memory))
        return Sizes(
            cpu=self._bounds(cpu, self.settings.min_cpu),
            memory=self._bounds(memory, self.settings.min_memory),
        )

    def state(self) -> bytes:
        return snapshot.pack(self, self._arrays())

    def restore(self, state: bytes) -> None:
        for name, array in snapshot.unpack(self, state, self._arrays()).items():
            self._arrays()[name][...] = array

    def _arrays(self) -> dict[str, snapshot.Array]:
        return {
            "clock": self._clock,
            **{f"cpu.{name}": array for name, array in self._cpu.arrays().items()},
            **{f"memory.{name}": array for name, array in self._memory.arrays().items()},
        }

    def _ahead(self, resource: Learner, t: float) -> Floats:
        """The sizes for the time from `t` on, as if the epoch ended now; but not soon after one has begun."""
        last = float(self._clock[0])
        if np.isnan(last):
            return resource.held
        late = t / self.settings.update - self._epoch(last)
        if late < ENOUGH and resource.has_named:
            return resource.held
        return resource.preview(self._hour(last), self._hour(t))

    def _epoch(self, t: float) -> float:
        return t // self.settings.update

    def _hour(self, t: float) -> int:
        return int(self._epoch(t) * self.settings.update % DAY // HOUR)

    def _bounds(self, held: Floats, least: float) -> Bounds:
        target = np.maximum(held, least)
        return Bounds(
            target=target,
            lower=target * (1 - self.settings.tolerance),
            upper=target * (1 + self.settings.tolerance),
        )


def _pace(hours: float, *, errors: float, peak: float) -> Pace:
    """The half-lives, in hours, as what is left after an update."""

    def left(half_life: float) -> float:
        return float(0.5 ** (hours / half_life)) if half_life else 0.0

    return Pace(
        errors=left(errors),
        costs=left(COSTS),
        slow=left(96.0),
        peak=left(peak),
        top=left(720.0),
        hourly=0.5,
        yields=left(336.0),
        fleet_errors=FLEET_ERRORS,
        fleet_costs=FLEET_COSTS,
    )

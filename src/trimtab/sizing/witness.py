"""What was seen of each container besides what its strategy makes of it: the evidence that guards ask for.

Like a strategy it is shown every sample once, in the order of time, and keeps arrays with one row a container.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from pydantic import Field

from trimtab.plugins import Settings
from trimtab.sizing.evidence import Evidence, Kill
from trimtab.sizing.rowed import Rowed
from trimtab.sizing.sample import CPU_MOST, MEMORY_MOST
from trimtab.sizing.snapshot import Array
from trimtab.sizing.strategy import Floats, Indices
from trimtab.sizing.window import Maxima

Booleans = npt.NDArray[np.bool_]

KILLS = 8
"""Kills that are remembered of each container."""
THROTTLED_RISES, THROTTLED_FADES = 3600.0, 86400.0
"""Seconds in which what was seen of throttling before loses half its weight, where there is more now and where there is
less: whoever is held back by day must not be made smaller by night."""


class WitnessSettings(Settings):
    """How far back is looked."""

    window: float = Field(default=86400.0, ge=1)
    """Seconds in which the peaks are the highest."""


class Witness(Rowed[WitnessSettings]):
    """How much is known of each container, its peaks, its kills, and how often its limit stopped it."""

    name = "witness"

    def __init__(self, containers: int, settings: WitnessSettings) -> None:
        super().__init__(containers, settings)
        self._cpu = Maxima(containers, seconds=settings.window, slices=12)
        self._memory = Maxima(containers, seconds=settings.window, slices=12)
        self._arrays: dict[str, Array] = {
            "samples": np.zeros(containers, np.int64),
            "due": np.zeros(containers, np.int64),
            "ran": np.zeros(containers),
            "first": np.full(containers, np.nan),
            "last": np.full(containers, np.nan),
            "throttled": np.full(containers, np.nan),
            "throttled_at": np.full(containers, np.nan),
            "killed_at": np.full((containers, KILLS), -np.inf),
            "killed_with": np.zeros((containers, KILLS)),
        }

    def observe(
        self,
        t: float,
        cpu: Floats,
        memory: Floats,
        *,
        throttled: Floats | None = None,
        running: Booleans | None = None,
        lasts: float = 0.0,
    ) -> None:
        """Take in one sample of each container; `running` says of which there should have been one.

        Each stands for `lasts` seconds; for none where a replica of the same time was shown before.
        """
        own = self._arrays
        seen = ((cpu >= 0) & (cpu <= CPU_MOST)) | ((memory >= 0) & (memory <= MEMORY_MOST))
        self._cpu.add(t, cpu, CPU_MOST)
        self._memory.add(t, memory, MEMORY_MOST)
        own["samples"] += seen
        own["due"] += seen if running is None else seen | running
        own["ran"] += seen * lasts
        own["first"][seen & np.isnan(own["first"])] = t
        own["last"][seen] = t
        if throttled is not None:
            self._observe_throttling(t, throttled)

    def observe_oom(self, t: Floats, containers: Indices, memory: Floats) -> Booleans:
        """Take in kills, each with its time; the answer says which of them were not known before."""
        own = self._arrays
        known = own["killed_at"][containers]
        new = (t > known.max(axis=1, initial=-np.inf)) & (memory >= 0) & (memory <= MEMORY_MOST)
        for row, at, having in zip(containers[new], t[new], memory[new], strict=True):
            for name, value in (("killed_at", at), ("killed_with", having)):
                own[name][row, :-1] = own[name][row, 1:]
                own[name][row, -1] = value
        fresh: Booleans = new
        return fresh

    def evidence(self, t: float, containers: Indices, *, runs_on: Sequence[bool]) -> list[Evidence]:
        """What is known of these containers; `runs_on` where they run all the time, as a Job's do not."""
        own = {name: array[containers].tolist() for name, array in self._arrays.items()}
        cpu_peaks = self._cpu.peak(t, containers).tolist()
        memory_peaks = self._memory.peak(t, containers).tolist()
        return [
            Evidence(
                samples=own["samples"][place],
                ran=own["ran"][place],
                first=_or_zero(own["first"][place]),
                last=_or_zero(own["last"][place]),
                coverage=own["samples"][place] / max(own["due"][place], 1) if runs_on[place] else 1.0,
                runs_on=runs_on[place],
                cpu_peak=_whole(cpu_peaks[place] * 1000),
                memory_peak=_whole(memory_peaks[place]),
                throttled=None if math.isnan(own["throttled"][place]) else own["throttled"][place],
                kills=tuple(
                    Kill(at, int(memory))
                    for at, memory in zip(own["killed_at"][place], own["killed_with"][place], strict=True)
                    if at > -math.inf
                ),
            )
            for place in range(containers.size)
        ]

    def arrays(self) -> dict[str, Array]:
        return self._arrays | self._cpu.arrays("cpu.") | self._memory.arrays("memory.")

    def take_over(self, arrays: Mapping[str, Array]) -> None:
        self._arrays = {name: arrays[name] for name in self._arrays}
        self._cpu.take_over("cpu.", arrays)
        self._memory.take_over("memory.", arrays)

    def _observe_throttling(self, t: float, throttled: Floats) -> None:
        """The recent share, in which an hour ago counts half."""
        own = self._arrays
        known = (throttled >= 0) & (throttled <= 1)
        with np.errstate(invalid="ignore"):
            before = np.nan_to_num(own["throttled"])
            half_life = np.where(throttled > before, THROTTLED_RISES, THROTTLED_FADES)
            left = 0.5 ** np.maximum((t - own["throttled_at"]) / half_life, 0.0)
        left[np.isnan(left)] = 0.0
        own["throttled"][known] = (before * left + throttled * (1 - left))[known]
        own["throttled_at"][known] = t


def _or_zero(moment: float) -> float:
    return 0.0 if math.isnan(moment) else moment


def _whole(amount: float) -> int | None:
    return None if math.isnan(amount) else math.ceil(amount)

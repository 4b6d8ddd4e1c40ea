"""An agent that learned to size in the lab's environments, by reward alone: PPO's, SAC's, or one of your own.

Each hour the agent sees of a container what it saw in `trimtab/SizingVector-v0`, and chooses a place for CPU and for
memory (`learned_choice`). As there, a small change is not carried out, and a container that was killed gets more memory at once. What harm and change are
worth was settled by the reward when it was trained, so there is no risk to set here: train another one for that.

The agents that ship are for research, not for clusters. On families of workloads that they were not trained on (jvm,
flash_crowd, arabesque) a request that is left as it is after its first day earns more by their own reward than they do: -1.29
an hour beside -1.33 (SAC) and -1.38 (PPO). Docs: how-to/train.md.

Sizes are named once an hour, counted from the first sample, and stay until the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from pydantic import Field

from trimtab.lab.neural.actions import CHOICES, SEEN, cpu_span, memory_span, seen
from trimtab.lab.neural.features import HOUR, Hours, Record
from trimtab.lab.neural.network import network, outputs, read
from trimtab.plugins import Settings
from trimtab.sizing.state.serialization import Array
from trimtab.sizing.stats.plausibility import CPU_MOST, MEMORY_MOST, kills
from trimtab.sizing.strategy import Bounds, Floats, Indices, Sizes, Strategy

NEED = 0.5
"""Where between what a killed container had and what it gets its need is taken to be."""


class LearnedSettings(Settings):
    """Which agent."""

    weights: str = "ppo"
    """The agent: ppo or sac, which ship with Trimtab and lose to unchanged requests on workloads of other kinds than they
    were trained on, or the path of an .npz file that `trimtab train` has written."""
    minimum_change: float = Field(default=0.1, ge=0, lt=1)
    """The least relative change of a size that is carried out; agents were trained with a tenth."""
    oom_bump: float = Field(default=1.25, gt=1)
    """A killed container gets this many times what it had."""


class Learned(Strategy[LearnedSettings]):
    """Sizes as an agent chooses."""

    name: ClassVar[str] = "learned"
    settings_type: ClassVar[type[Settings]] = LearnedSettings
    counts_samples = False  # hours count, not samples

    def __init__(self, containers: int, settings: LearnedSettings) -> None:
        super().__init__(containers, settings)
        self._agent = network(read(settings.weights), "agent.", inputs=SEEN, source=settings.weights)
        self._cpu, self._memory = Record(containers, most=CPU_MOST), Record(containers, most=MEMORY_MOST)
        self._held = np.full((2, containers), np.nan)
        self._killed = np.full(containers, -np.inf)
        """When each was last killed."""
        self._hours = Hours()

    def observe(self, t: float, cpu: Floats, memory: Floats) -> None:
        turned = self._hours.turn(t)
        if turned is not None:
            over, now = turned
            self._held = self._named(over, self._hours.start(now))
            self._cpu.close(over, now)
            self._memory.close(over, now)
        self._cpu.add(cpu)
        self._memory.add(memory)

    def observe_oom(self, t: float, containers: Indices, memory: Floats) -> None:
        containers, memory = kills(self.containers, containers, memory)
        bumped = memory * self.settings.oom_bump
        self._held[1, containers] = np.fmax(self._held[1, containers], bumped)
        self._killed[containers] = t
        needs = np.full(self.containers, np.nan)
        needs[containers] = memory + NEED * (bumped - memory)
        self._memory.add(needs)

    def recommend(self, t: float) -> Sizes:
        held = self._held
        if self._hours.begun and self._hours.is_late(t):
            held = self._named(self._hours.number, self._hours.start(self._hours.number + 1))
        return Sizes(cpu=self._bounds(held[0]), memory=self._bounds(held[1]))

    def _named(self, now: int, ahead: float) -> Floats:
        """What is held from the next hour on. Changes nothing."""
        cpu, memory = self._cpu.show(now, ahead), self._memory.show(now, ahead)
        spans = cpu_span(cpu.levels, cpu.peaks), memory_span(memory.levels, memory.peaks)
        view = seen(
            cpu=cpu.features,
            memory=memory.features,
            spans=spans,
            requests=(self._held[0], self._held[1]),
            hours_since_oom=np.maximum(ahead - self._killed, 0.0) / HOUR,
        )
        places = 1.0 / (1.0 + np.exp(-outputs(self._agent, view)[:, :CHOICES]))
        wanted = np.stack([span.size(places[:, at]) for at, span in enumerate(spans)])
        stays = np.abs(wanted - self._held) <= self.settings.minimum_change * self._held
        return np.where(np.isnan(wanted) | stays, self._held, wanted)

    def _bounds(self, target: Floats) -> Bounds:
        near = self.settings.minimum_change
        return Bounds(target=target.copy(), lower=target * (1 - near), upper=target * (1 + near))

    def arrays(self) -> dict[str, Array]:
        records = self._cpu.arrays("cpu.") | self._memory.arrays("memory.")
        return records | {"held": self._held, "killed": self._killed, "clock": self._hours.clock}

    def take_over(self, arrays: Mapping[str, Array]) -> None:
        self._cpu.take_over("cpu.", arrays)
        self._memory.take_over("memory.", arrays)
        self._held, self._killed, self._hours.clock = arrays["held"], arrays["killed"], arrays["clock"]

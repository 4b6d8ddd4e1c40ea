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

from trimtab.lab.neural.actions import (
    ACTION_SIZE,
    OBSERVATION_SIZE,
    build_observation,
    cpu_action_range,
    memory_action_range,
)
from trimtab.lab.neural.features import HOUR, HourClock, HourlyUsage
from trimtab.lab.neural.network import build_network, load_weights, predict
from trimtab.plugins import Settings
from trimtab.sizing.state import (
    MAX_PLAUSIBLE_CPU,
    MAX_PLAUSIBLE_MEMORY,
    Array,
    Floats,
    Indices,
    deduplicate_kills,
    grow_after_kills,
)
from trimtab.sizing.strategy import Strategy, TargetRange, Targets, Traits


class AgentStrategySettings(Settings):
    """The name of the agent."""

    file_fields: ClassVar = ("weights",)
    usage_factors: ClassVar = {"oom_bump": 0.0}

    weights: str = "ppo"
    """The agent: ppo or sac, which ship with Trimtab and lose to unchanged requests on workloads of other kinds than they
    were trained on, or the path of an .npz file that `trimtab train` has written."""
    minimum_change: float = Field(default=0.1, ge=0, lt=1)
    """The least relative change of a size that is carried out; agents were trained with a tenth."""
    oom_bump: float = Field(default=1.25, gt=1)
    """A killed container gets this many times what it had."""


class AgentStrategy(Strategy[AgentStrategySettings]):
    """Sizes as an agent chooses."""

    name: ClassVar[str] = "learned"
    settings_type: ClassVar[type[Settings]] = AgentStrategySettings
    traits = Traits(counts_samples=False)  # Hours count, not samples.

    def __init__(self, containers: int, settings: AgentStrategySettings) -> None:
        super().__init__(containers, settings)
        self._agent = build_network(
            load_weights(settings.weights), "agent.", inputs=OBSERVATION_SIZE, source=settings.weights
        )
        self._cpu, self._memory = (
            HourlyUsage(containers, most=MAX_PLAUSIBLE_CPU),
            HourlyUsage(containers, most=MAX_PLAUSIBLE_MEMORY),
        )
        self._held = np.full((2, containers), np.nan)
        self._last_killed = np.full(containers, -np.inf)
        """The time of each container's last OOM kill."""
        self._clock = HourClock()

    def observe(self, t: float, cpu: Floats, memory: Floats) -> None:
        turned = self._clock.advance(t)
        if turned is not None:
            over, now = turned
            self._held = self._choose_sizes(over, self._clock.hour_start(now))
            self._cpu.close_hour(over, now)
            self._memory.close_hour(over, now)
        self._cpu.add(cpu)
        self._memory.add(memory)

    def observe_oom(self, t: float, containers: Indices, memory: Floats) -> None:
        containers, memory = deduplicate_kills(self.containers, containers, memory)
        bumped, needed = grow_after_kills(memory, self.settings.oom_bump)
        self._held[1, containers] = np.fmax(self._held[1, containers], bumped)
        self._last_killed[containers] = t
        needs = np.full(self.containers, np.nan)
        needs[containers] = needed
        self._memory.add(needs)

    def recommend(self, t: float) -> Targets:
        held = self._held
        if self._clock.has_started and self._clock.is_nearly_over(t):
            held = self._choose_sizes(
                self._clock.current_hour, self._clock.hour_start(self._clock.current_hour + 1)
            )
        return Targets(cpu=self._compute_range(held[0]), memory=self._compute_range(held[1]))

    def _choose_sizes(self, now: int, ahead: float) -> Floats:
        """Return the sizes from the next hour on; this changes no state."""
        cpu, memory = self._cpu.compute_features(now, ahead), self._memory.compute_features(now, ahead)
        spans = cpu_action_range(cpu.levels, cpu.peaks), memory_action_range(memory.levels, memory.peaks)
        view = build_observation(
            cpu=cpu.features,
            memory=memory.features,
            spans=spans,
            requests=(self._held[0], self._held[1]),
            hours_since_oom=np.maximum(ahead - self._last_killed, 0.0) / HOUR,
        )
        places = 1.0 / (1.0 + np.exp(-predict(self._agent, view)[:, :ACTION_SIZE]))
        wanted = np.stack([span.to_size(places[:, at]) for at, span in enumerate(spans)])
        stays = np.abs(wanted - self._held) <= self.settings.minimum_change * self._held
        return np.where(np.isnan(wanted) | stays, self._held, wanted)

    def _compute_range(self, target: Floats) -> TargetRange:
        near = self.settings.minimum_change
        return TargetRange(target=target.copy(), lower=target * (1 - near), upper=target * (1 + near))

    def arrays(self) -> dict[str, Array]:
        records = self._cpu.arrays("cpu.") | self._memory.arrays("memory.")
        return records | {"held": self._held, "killed": self._last_killed, "clock": self._clock.times}

    def load_arrays(self, arrays: Mapping[str, Array]) -> None:
        self._cpu.load_arrays("cpu.", arrays)
        self._memory.load_arrays("memory.", arrays)
        self._held, self._last_killed, self._clock.times = arrays["held"], arrays["killed"], arrays["clock"]

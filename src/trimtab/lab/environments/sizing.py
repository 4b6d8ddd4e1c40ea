"""One container as a Gymnasium environment: as the seed had it, and simpler.

`SizingEnv` speaks in cores and bytes, so that any recommender can be plugged in as it is. It sees what the container uses
and requests, the usage of the last hours, and the time; it answers as a VerticalPodAutoscaler does, with lower bound,
target, upper bound and uncapped target of each resource. The updater's rule decides: a request outside of its bounds
becomes the target. (The seed's text compares usage with the bounds; so does `SizingEnv` with `compare="usage"`.) The
uncapped target decides nothing, as in Kubernetes.

`SizingTarget` sees and chooses what the learned strategies do (`trimtab.lab.neural.actions`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Literal

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.error import ResetNeeded

from trimtab.lab.environments.config import EPISODE_OVER, NO_EPISODE, EnvironmentConfig, Episode
from trimtab.lab.environments.container_sim import ContainerSim
from trimtab.lab.environments.vector import Singles, SizingVector, build_action_space, build_observation_space

MAX_CORES, MAX_BYTES = 1024.0, 2.0**42
LOWER, TARGET, UPPER, UNCAPPED = range(4)
BOUNDS = 4
DAY, WEEK = 86400.0, 7 * 86400.0
CURRENT_FEATURES, CLOCK_FEATURES = 4, 4

Doubles = npt.NDArray[np.float64]


class SizingEnv(gymnasium.Env[Doubles, Doubles]):
    """The environment of the seed: one container, and a recommender's bounds and target as actions."""

    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own way

    def __init__(
        self, *, window: int = 24, compare: Literal["request", "usage"] = "request", **config: Any
    ) -> None:
        self._config, self._compare = EnvironmentConfig(**config), compare
        self._episode: Episode | None = None
        self._usage_history: deque[tuple[float, float]] = deque(maxlen=window)
        most = [MAX_CORES, MAX_BYTES]
        high = np.array([*most * 2, *most * window, *[1.0] * CLOCK_FEATURES])
        low = np.array([*[0.0] * (CURRENT_FEATURES + 2 * window), *[-1.0] * CLOCK_FEATURES])
        self._low, self._high = low, high
        self.observation_space = spaces.Box(low, high, dtype=np.float64)
        self.action_space = spaces.Box(0.0, np.repeat(most, BOUNDS), dtype=np.float64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Doubles, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._episode = self._config.start_episode(self.np_random, containers=1)
        fleet = self._episode.sim
        self._usage_history.clear()
        self._usage_history.extend([_read_usage(fleet)] * (self._usage_history.maxlen or 0))
        return self._observe(fleet), {"kind": self._episode.names[0]}

    def step(self, action: Doubles) -> tuple[Doubles, float, bool, bool, dict[str, Any]]:
        if self._episode is None:
            raise ResetNeeded(NO_EPISODE)
        bounds = np.asarray(action, np.float64).reshape(2, BOUNDS)
        fleet = self._episode.sim
        compared = [float(request[0]) for request in fleet.requests]
        if self._compare == "usage":
            compared = list(_read_usage(fleet))
        cpu, memory = (
            np.array([np.clip(value, least, None)])
            for value, least in zip(apply_updater_rule(bounds, compared), (1e-3, 2.0**20), strict=True)
        )
        rewards, details = self._episode.step(cpu, memory)
        self._usage_history.append(_read_usage(fleet))
        costs = {name: values[0].item() for name, values in details.items()}
        details = {"uncapped": bounds[:, UNCAPPED].copy(), **costs}
        return self._observe(fleet), float(rewards[0]), False, fleet.is_over, details

    def _observe(self, fleet: ContainerSim) -> Doubles:
        day, week = 2 * np.pi * (fleet.time % DAY) / DAY, 2 * np.pi * (fleet.time % WEEK) / WEEK
        requests = [float(request[0]) for request in fleet.requests]
        clock = [np.sin(day), np.cos(day), np.sin(week), np.cos(week)]
        past = [value for usage in self._usage_history for value in usage]
        seen = np.array([*_read_usage(fleet), *requests, *past, *clock])
        bounded: Doubles = np.clip(seen, self._low, self._high)
        return bounded


def _read_usage(fleet: ContainerSim) -> tuple[float, float]:
    cpu, memory = fleet.usage
    return float(cpu[0]), float(memory[0])


def apply_updater_rule(bounds: Doubles, compared: Sequence[float]) -> list[float]:
    """Apply the updater's rule to each resource: the target if the compared value is outside the bounds; NaN keeps the
    size.
    """
    return [
        float(bound[TARGET]) if not bound[LOWER] <= value <= bound[UPPER] else np.nan
        for bound, value in zip(bounds, compared, strict=True)
    ]


class SizingTarget(gymnasium.Env[Singles, Singles]):
    """One container of `SizingVector`."""

    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own way

    def __init__(self, **config: Any) -> None:
        self.observation_space, self.action_space = build_observation_space(), build_action_space()
        self._vector = SizingVector(1, **config)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Singles, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._vector.np_random = self.np_random
        seen, info = self._vector.reset()
        return seen[0], {"kind": str(info["kind"][0])}

    def step(self, action: Singles) -> tuple[Singles, float, bool, bool, dict[str, Any]]:
        if (
            self._vector.is_over
        ):  # the next step of many would begin the next episode, which one alone must not
            raise ResetNeeded(EPISODE_OVER)
        seen, rewards, _, truncated, info = self._vector.step(np.asarray(action)[None])
        details = {name: values[0].item() for name, values in info.items()}
        return seen[0], float(rewards[0]), False, bool(truncated[0]), details

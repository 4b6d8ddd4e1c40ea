"""Many containers at once as a Gymnasium `VectorEnv`: what agents are trained in.

All containers begin an episode together and end it together; the step after the last begins the next (Gymnasium's
next-step autoreset). Observation and action are those of `trimtab/SizingTarget-v0`, with a row a container.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from trimtab.lab.environments.config import NO_EPISODE, EnvironmentConfig
from trimtab.lab.neural.actions import ACTION_SIZE, OBSERVATION_SIZE, ActionRange

Singles = npt.NDArray[np.float32]


def build_observation_space() -> Any:
    """Build the space of the agent's observation; see `trimtab.lab.neural.actions`."""
    return spaces.Box(-100.0, 100.0, (OBSERVATION_SIZE,), np.float32)


def build_action_space() -> Any:
    """Build the space of actions: positions for CPU and memory."""
    return spaces.Box(0.0, 1.0, (ACTION_SIZE,), np.float32)


class SizingVector(VectorEnv[Singles, Singles, npt.NDArray[Any]]):
    """So many containers, each with its own reward."""

    metadata = {  # noqa: RUF012 - Gymnasium's own way
        "autoreset_mode": AutoresetMode.NEXT_STEP,
        "render_modes": [],
    }

    def __init__(self, num_envs: int = 64, **config: Any) -> None:
        self.num_envs = num_envs
        self.single_observation_space, self.single_action_space = (
            build_observation_space(),
            build_action_space(),
        )
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._config = EnvironmentConfig(**config)
        self._spans: tuple[ActionRange, ActionRange] | None = None
        self.is_over = False
        """True if the episode has ended, so that the next step starts another."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Singles, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._episode = self._config.start_episode(self.np_random, containers=self.num_envs)
        self.is_over = False
        return self._observe(), {"kind": np.array(self._episode.names)}

    def step(
        self, actions: Singles
    ) -> tuple[Singles, npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any], dict[str, Any]]:
        no, yes = np.zeros(self.num_envs, bool), np.ones(self.num_envs, bool)
        if self.is_over:
            seen, info = self.reset()
            return seen, np.zeros(self.num_envs), no, no.copy(), info
        if self._spans is None:
            raise ResetNeeded(NO_EPISODE)
        cpu, memory = (span.to_size(actions[:, at].astype(np.float64)) for at, span in enumerate(self._spans))
        rewards, costs = self._episode.step(cpu, memory)
        self.is_over = self._episode.sim.is_over
        return self._observe(), rewards, no, yes if self.is_over else no.copy(), costs

    def _observe(self) -> Singles:
        seen, self._spans = self._episode.sim.observe()
        return np.clip(seen, -100.0, 100.0).astype(np.float32)

"""The seed's environment on the real kernel: the state, actions, rules and costs of `environments.SizingEnv`, and a real pod.

A step is an hour of the demand, which takes as many periods on the wall as it has samples. What differs from the
simulated one is only what is real: usage is measured, resizes take their time and may be refused, and a pod that was
killed for memory waits for its kubelet.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from trimtab.kube.auth import Connection
from trimtab.kube.rest.client import Client
from trimtab.lab.emulator.emulation import Emulation, EmulationConfig
from trimtab.lab.emulator.load_profile import LoadProfile
from trimtab.lab.emulator.run_log import PeriodRecord
from trimtab.lab.environments.container_sim import RequestRules
from trimtab.lab.environments.reward import Weights, compute_costs
from trimtab.lab.environments.sizing import BOUNDS, UNCAPPED, SizingEnv, apply_updater_rule
from trimtab.lab.workloads import GeneratedWorkload
from trimtab.lazy import require_extra

with require_extra("lab", "trimtab.lab.emulator.environment"):
    import gymnasium

HOUR, DAY, WEEK = 3600.0, 86400.0, 7 * 86400.0
POD = "emulated"

Doubles = npt.NDArray[np.float64]


class EmulatedSizing(gymnasium.Env[Doubles, Doubles]):
    """One real pod; each episode follows another series of the workload. Close it, or the pod stays."""

    metadata = {"render_modes": []}  # noqa: RUF012 - Gymnasium's own way

    def __init__(
        self,
        *,
        connection: Connection,
        config: EmulationConfig,
        workload: GeneratedWorkload,
        hours: int = 24,
        window: int = 24,
        weights: Weights | None = None,
    ) -> None:
        self._connection, self._config, self._workload = connection, config, workload
        self._periods = max(1, round(HOUR / workload.step))
        self._hours = min(hours, workload.steps // self._periods)
        self._weights = np.array(weights or Weights())
        self._usage_history: deque[tuple[float, float]] = deque(maxlen=window)
        alike = SizingEnv(window=window)
        self.observation_space, self.action_space = alike.observation_space, alike.action_space
        self._runner = asyncio.Runner()
        self._client: Client | None = None
        self._emulation: Emulation | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Doubles, dict[str, Any]]:
        super().reset(seed=seed, options=options)
        self._runner.run(self._stop_episode())
        series = int(self.np_random.integers(self._workload.series))
        entries = self._runner.run(
            self._start_episode(LoadProfile.from_workload(self._workload, series=series))
        )
        self._hour = 1
        self._usage_history.clear()
        self._usage_history.extend([_mean_usage(entries)] * (self._usage_history.maxlen or 0))
        return self._observe(entries[-1]), {"kind": self._workload.names[series]}

    def step(self, action: Doubles) -> tuple[Doubles, float, bool, bool, dict[str, Any]]:
        assert self._emulation is not None, "reset first"
        bounds = np.asarray(action, np.float64).reshape(2, BOUNDS)
        entries = self._runner.run(self._run_hour(bounds))
        self._hour += 1
        self._usage_history.append(_mean_usage(entries))
        paid = compute_costs(_sum_hour(entries), np.array([self._changes]))[0]
        info = dict(zip(Weights._fields, paid.tolist(), strict=True)) | {
            "uncapped": bounds[:, UNCAPPED].copy()
        }
        return (
            self._observe(entries[-1]),
            -float(paid @ self._weights),
            False,
            self._hour >= self._hours,
            info,
        )

    def close(self) -> None:
        """Take the pod away, if there is one: who closes twice, as wrappers do, closes once."""
        if self._client is not None:
            self._runner.run(self._stop_episode())
        self._runner.close()

    async def _start_episode(self, profile: LoadProfile) -> list[PeriodRecord]:
        client = await Client(self._connection).__aenter__()
        self._client = client
        emulation = Emulation(client, {POD: profile}, self._config)
        self._emulation = await emulation.__aenter__()
        return [entry for _ in range(self._periods) for entry in await emulation.run_period()]

    async def _stop_episode(self) -> None:
        emulation, client = self._emulation, self._client
        self._emulation = self._client = None
        if emulation is not None:
            await emulation.__aexit__()
        if client is not None:
            await client.__aexit__()

    async def _run_hour(self, bounds: Doubles) -> list[PeriodRecord]:
        """Run one hour: the updater's rule decides at its beginning, and the actuator works in the course of it."""
        assert self._emulation is not None
        emulation = self._emulation
        size = emulation.sizes[POD]
        had = ((size.cpu_request or 0) / 1000, float(size.memory_request or 0))
        moved = ignore_small_changes(had, apply_updater_rule(bounds, had))
        self._changes = sum(new != old for new, old in zip(moved, had, strict=True))
        emulation.sizes[POD] = self._config.build_resources(*moved)
        await emulation.resize(self._last)
        entries = []
        for _ in range(self._periods):
            (entry,) = await emulation.run_period()
            await emulation.resize(entry)
            entries.append(entry)
        return entries

    def _observe(self, entry: PeriodRecord) -> Doubles:
        assert self._emulation is not None
        self._last = entry
        time = self._emulation.profiles[POD].period_end(entry.period)
        day, week = 2 * np.pi * (time % DAY) / DAY, 2 * np.pi * (time % WEEK) / WEEK
        clock = [np.sin(day), np.cos(day), np.sin(week), np.cos(week)]
        past = [value for usage in self._usage_history for value in usage]
        seen = np.array([*self._usage_history[-1], entry.cpu_request, entry.memory_request, *past, *clock])
        space = self.observation_space
        assert isinstance(space, gymnasium.spaces.Box)
        bounded: Doubles = np.clip(seen, space.low, space.high)
        return bounded


def ignore_small_changes(had: Sequence[float], asked: Sequence[float]) -> list[float]:
    """Return the requests that are worth a change, by the rule of the simulated environment; NaN keeps a size."""
    least = RequestRules().minimum_change
    return [new if abs(new - old) > least * old else old for old, new in zip(had, asked, strict=True)]


def _mean_usage(entries: Sequence[PeriodRecord]) -> tuple[float, float]:
    """Return the means over an hour; 0 where nothing was measured."""
    known = [[getattr(entry, name) for entry in entries] for name in ("used_cpu", "used_memory")]
    cpu, memory = (float(np.nanmean([*each, *([0.0] if np.isnan(each).all() else [])])) for each in known)
    return cpu, memory


def _sum_hour(entries: Sequence[PeriodRecord]) -> Doubles:
    """Return the sums over an hour that the reward needs, in its order."""
    cpu, memory = (
        np.array([(getattr(e, f"wanted_{r}"), getattr(e, f"{r}_request")) for e in entries]).T
        for r in ("cpu", "memory")
    )
    over, short = np.maximum(cpu[1] - cpu[0], 0.0), np.maximum(cpu[0] - cpu[1], 0.0)
    return np.array(
        [
            [
                cpu[1].sum(),
                over.sum(),
                (short > 0).sum(),
                short.sum(),
                cpu[0].sum(),
                np.nansum([entry.throttled for entry in entries]),
                len(entries),
                memory[1].sum(),
                np.maximum(memory[1] - memory[0], 0.0).sum(),
                sum(entry.killed for entry in entries),
                len(entries),
            ]
        ],
        float,
    )

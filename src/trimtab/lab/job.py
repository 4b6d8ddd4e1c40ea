"""One replay among many: a strategy, its settings, a recording. What an engine gives to a worker.

A run is never divided by containers: a strategy may learn from all of them together, and would say something else of
a part. So an engine can only choose where a run is made, and the result is the same bit for bit.

`Oracle` is the strategy to compare with that knows the trace: the next interval's true maximum is the best that can be
asked for without harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from trimtab.lab.backtest import BacktestSchedule, RowProgress, backtest
from trimtab.lab.scores import Scores
from trimtab.sizing import Settings, Strategy, TargetRange, Targets, strategy
from trimtab.sizing.state import Array, Floats, Indices
from trimtab.sizing.strategy import has_setting
from trimtab.usage.trace import Trace


class Oracle(Strategy[Settings]):
    """Knows the trace that is replayed."""

    name: ClassVar[str] = "oracle"
    settings_type: ClassVar[type[Settings]] = Settings

    def __init__(self, trace: Trace, *, update: float) -> None:
        super().__init__(trace.container_count, Settings())
        self._trace = trace
        self._rows_ahead = max(1, round(update / trace.step))

    def observe(self, t: float, cpu: Floats, memory: Floats) -> None:
        """Learn nothing: the strategy knows the whole recording."""

    def observe_oom(self, t: float, containers: Indices, memory: Floats) -> None:
        """Do nothing: a container with this strategy is never killed."""

    def recommend(self, t: float) -> Targets:
        row = round((t - self._trace.start) / self._trace.step)
        cpu, memory = (
            np.fmax.reduce(usage[row : row + self._rows_ahead], axis=0, initial=np.nan)
            for usage in (self._trace.cpu, self._trace.memory)
        )
        return Targets(cpu=TargetRange(cpu, cpu, cpu), memory=TargetRange(memory, memory, memory))

    def arrays(self) -> dict[str, Array]:
        return {}

    def load_arrays(self, arrays: Mapping[str, Array]) -> None:
        """There is nothing to take over."""


ORACLE = Oracle.name


@dataclass(frozen=True, slots=True)
class BacktestJob:
    """A strategy with its settings on one recording."""

    recording: str
    """The name of the recording."""
    strategy: str
    settings: Mapping[str, str]

    def compute_scores(
        self, trace: Trace, schedule: BacktestSchedule, *, progress: RowProgress | None = None
    ) -> Scores:
        return backtest(trace, self._build_strategy(trace, schedule), schedule, progress=progress)

    def _build_strategy(self, trace: Trace, schedule: BacktestSchedule) -> Strategy[Any]:
        if self.strategy == ORACLE:
            return Oracle(trace, update=schedule.update)
        return strategy(
            self.strategy,
            trace.container_count,
            **{**select_schedule_settings(self.strategy, schedule), **self.settings},
        )


def select_schedule_settings(name: str, schedule: BacktestSchedule) -> dict[str, float]:
    """Return the schedule's values for which the strategy has settings; settings that are given win."""
    return {key: getattr(schedule, key) for key in ("update", "stabilization") if has_setting(name, key)}


JobProgress = Callable[[int, int], None]
"""Called with the run that advanced and the number of its new steps."""


class Engine(Protocol):
    """Makes runs, somewhere."""

    def __call__(
        self,
        traces: Mapping[str, Trace],
        runs: Sequence[BacktestJob],
        schedule: BacktestSchedule,
        *,
        advance: JobProgress,
    ) -> Iterator[tuple[int, Scores]]:
        """The scores of each run with its number, as they come."""

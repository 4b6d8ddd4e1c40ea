"""One replay among many: a strategy, its settings, a recording. What an engine gives to a worker.

A run is never divided by containers: a strategy may learn from all of them together, and would say something else of
a part. So an engine can only choose where a run is made, and the result is the same bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from trimtab.lab.backtest import BacktestSchedule, RowProgress, backtest
from trimtab.lab.oracle import Oracle
from trimtab.lab.scores import Scores
from trimtab.sizing import Strategy, strategy
from trimtab.sizing.strategy import has_setting
from trimtab.usage.trace import Trace

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

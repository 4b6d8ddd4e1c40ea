"""Build the curves of one workload over time, and its backtests: usage, sizes and recommendations."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from trimtab.actuation.resources import parse_sizes
from trimtab.api.optimizationpolicy import OptimizationPolicySpec
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.recommender.workload import strategy_spec_from_policy
from trimtab.scan.explanation import StrategyBacktest as Replayed
from trimtab.scan.explanation import UsageRecorder, backtest_strategies, trim_start
from trimtab.scan.pricing import ResourcePrices
from trimtab.store import HistoryRecord
from trimtab.usage.pod_ownership import PodOwnerIndex
from trimtab.usage.source import Source, UsageQuery
from trimtab.usage.trace import Floats, Trace
from trimtab.web.model import BacktestResult, Curve, CurveRole, CurveValues, Plot

WINDOW = 8 * 86400.0
STEPS = (60.0, 120.0, 300.0, 600.0)
"""The seconds between two points, for workloads of growing age."""
MAX_STEPS = WINDOW / STEPS[-1]
"""The number of points of a curve at most."""
READ_SECONDS = 2 * 86400.0
"""The seconds of history per read."""
RESIZE_EVENTS = frozenset({"applying", "applied", "reverted"})
"""The history entries that resize pods; a change starts some time before it is verified or reverted."""


async def read_usage_history(
    source: Source[Any],
    owners: PodOwnerIndex,
    key: WorkloadKey,
    containers: Sequence[str],
    *,
    created: float,
    finest: float,
    now: float,
) -> Trace:
    """Read the usage of a workload's containers from the first sample on, taking the highest replica.

    Samples before its creation belong to an earlier workload of the same name. Young workloads have more points, at most
    one in `finest` seconds.
    """
    recorder = UsageRecorder(key.name, key.namespace)
    age = min(WINDOW, max(now - created, STEPS[0])) if source.capabilities.history else STEPS[0]
    step = next((each for each in STEPS if finest <= each and age <= each * MAX_STEPS), STEPS[-1])
    whole = UsageQuery.last(age, now=now, step=step)
    begin = whole.start
    while begin < whole.end:
        end = min(begin + READ_SECONDS, whole.end)
        query = UsageQuery(start=begin, end=end, step=step, namespaces=(key.namespace,), include_ooms=False)
        recorder.observe_usage(await source.read(query), owners)
        begin = end
    return trim_start(recorder.build_trace(key.kind, containers))


class SizeHistory:
    """The current and recommended sizes of a container over time; without history the present ones."""

    def __init__(
        self, container: str, history: Sequence[HistoryRecord], *, has: Resources, should: Resources | None
    ) -> None:
        """Create the history of a container; `history` are the workload's entries, newest first."""
        self._changes = list(_list_changes(container, reversed(history), RESIZE_EVENTS))
        self._recommendations = [
            (at, after) for at, _, after in _list_changes(container, reversed(history), {"recommended"})
        ]
        self._current, self._recommended = has, should

    def list_times(self, *, since: float, until: float) -> set[float]:
        """List the times at which a size changed."""
        changes = [*(at for at, _, _ in self._changes), *(at for at, _ in self._recommendations)]
        return {at for at in changes if since <= at <= until}

    def current_values(
        self, times: Sequence[float], amount: Callable[[Resources], float | None]
    ) -> CurveValues:
        if not self._changes:
            return (amount(self._current),) * len(times)
        steps = [(-math.inf, self._changes[0][1]), *((at, after) for at, _, after in self._changes)]
        # The present size is certain, also if somebody changed it by hand since the last entry.
        steps[-1] = (steps[-1][0], self._current)
        return _step_values(times, steps, amount)

    def recommended_values(
        self, times: Sequence[float], amount: Callable[[Resources], float | None]
    ) -> CurveValues:
        if not self._recommendations:
            return (amount(self._recommended),) * len(times) if self._recommended else (None,) * len(times)
        return _step_values(times, self._recommendations, amount)


def _list_changes(
    container: str, history: Iterator[HistoryRecord], what: AbstractSet[str]
) -> Iterator[tuple[float, Resources, Resources]]:
    for entry in history:
        if entry.what in what:
            before = parse_sizes(entry.before, entry.container).get(container, Resources())
            after = parse_sizes(entry.after, entry.container).get(container)
            if after is not None:
                yield entry.timestamp, before, after


def _step_values(
    times: Sequence[float],
    steps: Sequence[tuple[float, Resources]],
    amount: Callable[[Resources], float | None],
) -> CurveValues:
    places = np.searchsorted([at for at, _ in steps], times, side="right") - 1
    amounts = [amount(size) for _, size in steps]
    return tuple(amounts[place] if place >= 0 else None for place in places.tolist())


def build_plots(trace: Trace, place: int, sizes: SizeHistory, *, now: float) -> tuple[Plot, Plot]:
    """Build the CPU plot in cores and the memory plot in bytes of one container, up to now.

    Sizes step at the moments of their changes, which usage need not have a sample for.
    """
    sampled = trace.start + trace.step * np.arange(trace.steps)
    changed = sizes.list_times(since=trace.start, until=now)
    times = tuple(sorted({*sampled[sampled <= now].tolist(), *changed, max(now, trace.start)}))
    places = np.searchsorted(sampled, times, side="right") - 1

    def plot(unit: str, used: Floats, resource: str, scale: float) -> Plot:
        def read_field(field: str) -> Callable[[Resources], float | None]:
            def read_amount(size: Resources) -> float | None:
                found = getattr(size, f"{resource}_{field}")
                return None if found is None else found / scale

            return read_amount

        limits = sizes.current_values(times, read_field("limit"))
        curves = [
            Curve(role=CurveRole.USED, name="used", values=_curve_values(used[places])),
            Curve(
                role=CurveRole.REQUESTED,
                name="request",
                values=sizes.current_values(times, read_field("request")),
            ),
            Curve(
                role=CurveRole.RECOMMENDED,
                name="recommended",
                values=sizes.recommended_values(times, read_field("request")),
            ),
        ]
        if any(limit is not None for limit in limits):
            curves.append(Curve(role=CurveRole.LIMIT, name="limit", values=limits))
        return Plot(unit=unit, times=times, curves=tuple(curves))

    return (
        plot("cores", trace.cpu[:, place], "cpu", 1000.0),
        plot("bytes", trace.memory[:, place], "memory", 1.0),
    )


async def run_backtests(
    trace: Trace, place: int, spec: OptimizationPolicySpec, *, pods: float, prices: ResourcePrices
) -> tuple[BacktestResult, ...]:
    """Backtest the strategy and its peers on one container, in a thread because it is slow."""
    own = trim_start(trace.select_columns(np.array([place], np.intp)))
    strategy_spec, stabilization = strategy_spec_from_policy(spec), spec.changes.stabilization.seconds
    found = await asyncio.to_thread(
        backtest_strategies,
        own,
        strategy_spec.strategy,
        strategy_spec.decode_settings(),
        stabilization=stabilization,
    )
    return tuple(_build_result(each, pods, prices) for each in found)


def _build_result(backtest: Replayed, pods: float, prices: ResourcePrices) -> BacktestResult:
    summary = backtest.scores.summary()
    return BacktestResult(
        strategy=backtest.strategy,
        cpu_slack=_nan_to_none(summary["cpu_slack"]),
        cpu_under=_nan_to_none(summary["cpu_under"]),
        memory_slack=_nan_to_none(summary["memory_slack"]),
        kills_a_day=_nan_to_none(summary["ooms_day"]),
        cost=backtest.cost(prices, pods=pods),
    )


def _nan_to_none(value: float) -> float | None:
    return None if math.isnan(value) else value


def _curve_values(grid: Floats) -> CurveValues:
    return tuple(None if math.isnan(value) else value for value in grid.tolist())

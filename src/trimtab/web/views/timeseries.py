"""One workload over time: what it used, had and was recommended, as curves; and how strategies would have fared on it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from trimtab.api.optimizationpolicy import OptimizationPolicySpec
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.recommender.workload import sizing_of
from trimtab.scan.explanation import Fared as Replayed
from trimtab.scan.explanation import Past, fared, lived
from trimtab.scan.pricing import Prices
from trimtab.store import HistoryEntry
from trimtab.usage.pod_ownership import Owners
from trimtab.usage.source import Ask, Source
from trimtab.usage.trace import Floats, Trace
from trimtab.web.model import Curve, Fared, Plot, Role, Values
from trimtab.web.views.resources import by_container

WINDOW = 8 * 86400.0
STEP = 600.0
"""Seconds between two points."""
PART = 2 * 86400.0
"""Seconds that are read at once."""
RESIZING = frozenset({"applying", "applied", "reverted"})
"""What the history has of sizes that pods got: a change is begun some time before it is found good, or taken back."""


async def read_past(
    source: Source[Any], owners: Owners, key: WorkloadKey, containers: Sequence[str], *, now: float
) -> Trace:
    """What the containers of a workload used, a column each, from when it was first seen; of replicas the one that used
    most.
    """
    past = Past(key.name, key.namespace)
    step = STEP if source.capabilities.history else 60.0
    whole = Ask.last(WINDOW if source.capabilities.history else step, now=now, step=step)
    begin = whole.start
    while begin < whole.end:
        end = min(begin + PART, whole.end)
        ask = Ask(start=begin, end=end, step=step, namespaces=(key.namespace,), kills=False)
        past.hear(await source.read(ask), owners)
        begin = end
    return lived(past.trace(key.kind, containers))


class Sizes:
    """The sizes that a container had and was recommended, by its history; before and without it those of now."""

    def __init__(
        self, container: str, history: Sequence[HistoryEntry], *, has: Resources, should: Resources | None
    ) -> None:
        """`history` is of the workload, newest first."""
        self._had = list(_changes(container, reversed(history), RESIZING))
        self._wanted = [
            (at, after) for at, _, after in _changes(container, reversed(history), {"recommended"})
        ]
        self._has, self._should = has, should

    def had(self, times: Sequence[float], amount: Callable[[Resources], float | None]) -> Values:
        if not self._had:
            return (amount(self._has),) * len(times)
        steps = [(-math.inf, self._had[0][1]), *((at, after) for at, _, after in self._had)]
        steps[-1] = (steps[-1][0], self._has)
        return _along(times, steps, amount)

    def wanted(self, times: Sequence[float], amount: Callable[[Resources], float | None]) -> Values:
        if not self._wanted:
            return (amount(self._should),) * len(times) if self._should else (None,) * len(times)
        return _along(times, self._wanted, amount)


def _changes(
    container: str, history: Iterator[HistoryEntry], what: AbstractSet[str]
) -> Iterator[tuple[float, Resources, Resources]]:
    for entry in history:
        if entry.what in what:
            before = by_container(entry.before, entry.container).get(container, Resources())
            after = by_container(entry.after, entry.container).get(container)
            if after is not None:
                yield entry.timestamp, before, after


def _along(
    times: Sequence[float],
    steps: Sequence[tuple[float, Resources]],
    amount: Callable[[Resources], float | None],
) -> Values:
    places = np.searchsorted([at for at, _ in steps], times, side="right") - 1
    amounts = [amount(size) for _, size in steps]
    return tuple(amounts[place] if place >= 0 else None for place in places.tolist())


def plots(trace: Trace, place: int, sizes: Sizes) -> tuple[Plot, Plot]:
    """CPU in cores and memory in bytes of one container."""
    times = tuple((trace.start + trace.step * np.arange(trace.steps)).tolist())

    def plot(unit: str, used: Floats, resource: str, scale: float) -> Plot:
        def of(field: str) -> Callable[[Resources], float | None]:
            def amount(size: Resources) -> float | None:
                found = getattr(size, f"{resource}_{field}")
                return None if found is None else found / scale

            return amount

        limits = sizes.had(times, of("limit"))
        curves = [
            Curve(role=Role.USED, name="used", values=_values(used)),
            Curve(role=Role.REQUESTED, name="request", values=sizes.had(times, of("request"))),
            Curve(role=Role.RECOMMENDED, name="recommended", values=sizes.wanted(times, of("request"))),
        ]
        if any(limit is not None for limit in limits):
            curves.append(Curve(role=Role.LIMIT, name="limit", values=limits))
        return Plot(unit=unit, times=times, curves=tuple(curves))

    return (
        plot("cores", trace.cpu[:, place], "cpu", 1000.0),
        plot("bytes", trace.memory[:, place], "memory", 1.0),
    )


async def backtests(
    trace: Trace, place: int, spec: OptimizationPolicySpec, *, pods: float, prices: Prices
) -> tuple[Fared, ...]:
    """How the strategy and its peers would have fared with one container; in a thread, for it takes its time."""
    own = lived(trace.only(np.array([place], np.intp)))
    sizing, kept = sizing_of(spec), spec.changes.stabilization.seconds
    found = await asyncio.to_thread(fared, own, sizing.strategy, sizing.given(), stabilization=kept)
    return tuple(_fared(each, pods, prices) for each in found)


def _fared(replayed: Replayed, pods: float, prices: Prices) -> Fared:
    summary = replayed.scores.summary()
    return Fared(
        strategy=replayed.strategy,
        cpu_slack=_known(summary["cpu_slack"]),
        cpu_under=_known(summary["cpu_under"]),
        memory_slack=_known(summary["memory_slack"]),
        kills_a_day=_known(summary["ooms_day"]),
        cost=replayed.cost(prices, pods=pods),
    )


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _values(grid: Floats) -> Values:
    return tuple(None if math.isnan(value) else value for value in grid.tolist())

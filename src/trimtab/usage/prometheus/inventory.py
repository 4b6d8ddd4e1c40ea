"""What a server holds for a window of time: under which names, of how many containers, sampled how often.

It is asked of the server's index and of a few moments of the window, before and far cheaper than the read itself.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from trimtab.usage.errors import SourceRefused, SourceSlow, TooMuchAsked
from trimtab.usage.prometheus import schema as names
from trimtab.usage.prometheus.api import Server
from trimtab.usage.prometheus.pod_selector import Pods
from trimtab.usage.prometheus.promql import all_equal, equals, one_of, selector
from trimtab.usage.prometheus.query_scheduler import Patience
from trimtab.usage.prometheus.response import Grid, Series, highest
from trimtab.usage.prometheus.schema import Labels, Scheme, recognise
from trimtab.usage.prometheus.settings import PrometheusSettings
from trimtab.usage.prometheus.sharding import Part
from trimtab.usage.usage import MOST_BYTES, MOST_CORES, PodContainer

USUAL_INTERVAL = 30.0
_COUNTED_OVER = 600.0
_STALE = 300.0
_MOMENTS = 3
"""At most, of a window of any length but the shortest."""
_MOST_LOOKS = 5000
"""Times of a window at which the largest machine is looked for: servers answer up to 11,000."""
_REMEMBERED = 600.0
_GLITCH = 2.0
"""Times the largest machine: a rate over a counter that went back a little is far more, an extrapolated one less."""

ADVICE = "let Prometheus scrape the kubelets' /metrics/cadvisor or /metrics/resource, and check labels"
_OPTIONAL = (
    names.PERIODS,
    names.THROTTLED,
    names.OOM_EVENTS,
    names.RESTARTS,
    names.LAST_REASON,
    names.MACHINE_CORES,
    names.MACHINE_MEMORY,
)


@dataclass(frozen=True, slots=True)
class Holdings:
    """What a server holds."""

    scheme: Scheme
    series: dict[str, int]
    """About how many containers each namespace has at a time."""
    interval: float
    """Seconds between two samples."""
    most_cores: float = MOST_CORES
    """The CPU above which a sample is a fault: more than any machine of the window has."""
    most_bytes: float = MOST_BYTES
    """The memory above which a sample is a fault."""

    def weight(self, part: Part) -> int:
        """About how many samples a part has."""
        containers = sum(max(1, self.series.get(namespace, 1)) for namespace in part.pods.namespaces)
        return part.steps * math.ceil(containers * part.pods.share)


class Memory:
    """The last look: a window that is read part by part, after its cost was told, is looked at once."""

    def __init__(self) -> None:
        self._grid = Grid(0.0, 1.0, 0)
        self._namespaces: tuple[str, ...] | None = None
        self._held: Holdings | None = None
        self._at = 0.0

    def keep(self, held: Holdings, grid: Grid, namespaces: tuple[str, ...] | None, *, at: float) -> None:
        self._held, self._grid, self._namespaces, self._at = held, grid, namespaces, at

    def of(self, grid: Grid, namespaces: tuple[str, ...] | None, *, at: float) -> Holdings | None:
        """What was seen not long ago of a window in which this one lies."""
        within = self._grid.start <= grid.start and grid.end <= self._grid.end
        return self._held if within and self._is_recent(at) and namespaces == self._namespaces else None

    def scheme(self, *, at: float) -> Scheme | None:
        """Return the names that the server used in the last look; None where that was long ago."""
        return self._held.scheme if self._held and self._is_recent(at) else None

    def _is_recent(self, at: float) -> bool:
        return at - self._at < _REMEMBERED


class Look:
    """Looks at what a server holds for one window."""

    def __init__(self, server: Server, patience: Patience, settings: PrometheusSettings, grid: Grid) -> None:
        self._server = server
        self._patience = patience
        self._settings = settings
        self._grid = grid
        self._moments = _moments(grid)
        # A window may be shorter than the time between two scrapes; the first of its samples then lies before it.
        self._indexed = Grid(grid.start - _STALE, grid.end - grid.start + _STALE, 2)
        self._required = all_equal(settings.labels)
        self._memory = selector(settings.memory_rule or names.MEMORY, self._required)

    async def holdings(
        self, namespaces: tuple[str, ...] | None, *, now: float, known: Scheme | None = None
    ) -> Holdings:
        """Find what there is in these namespaces, or in all.

        A window without any samples, as before a young server was started or while it was down, is empty holdings, by
        the names `known` from another window or those of later. `SourceRefused` is for a server that has nothing later
        either: it does not scrape kubelets, or not for us.
        """
        present = await self._names(self._memory)
        if not present:
            scheme = known or await self._later_scheme(now)
            return Holdings(scheme=scheme, series={}, interval=USUAL_INTERVAL)
        scheme = await self._scheme(present)
        pods = None if namespaces is None else Pods(namespaces)
        series: Counter[str] = Counter()
        for labels in scheme.labels:
            series += await self._containers(scheme, labels, pods)
        series |= Counter(namespaces or ())  # at least one in each that is asked for
        often = await asyncio.gather(
            *(
                self._highest(f"max(count_over_time({each}[{int(_COUNTED_OVER)}s]))")
                for each in scheme.sampled(pods)
            )
        )
        return Holdings(
            scheme=scheme,
            series=dict(series),
            interval=max(_COUNTED_OVER / max(1.0, each[()]) if each else USUAL_INTERVAL for each in often),
            most_cores=await self._largest_machine(scheme, names.MACHINE_CORES) or MOST_CORES,
            most_bytes=await self._largest_machine(scheme, names.MACHINE_MEMORY) or MOST_BYTES,
        )

    async def _containers(self, scheme: Scheme, labels: Labels, pods: Pods | None) -> Counter[str]:
        """Count the containers of each namespace that series with these labels name; at least one where there are any."""
        by = labels.namespace
        number = scheme.number_of_containers(labels, pods, over=max(self._grid.step, _STALE))
        counted = await self._highest(number, by=(by,))
        found = Counter({namespace: int(count) for (namespace,), count in counted.items()})
        if (
            pods is None
        ):  # who was there at none of the moments at which they are counted is there all the same
            found |= Counter(await self._values(by, scheme.memory_series(labels)))
        return found

    async def longest_interval(self, scheme: Scheme) -> float | None:
        """Seconds between two samples of what is sampled least often, of all that is there all the time."""
        found = [await self._highest(f"max({_intervals(scheme, labels, None)})") for labels in scheme.labels]
        return max((each[()] for each in found if each), default=None)

    async def seldom(self, scheme: Scheme, pods: Pods, *, least: float) -> dict[PodContainer, float]:
        """Which of these containers have so many seconds between two samples, of all that are there all the time."""
        found: dict[tuple[str, ...], float] = {}
        for labels in scheme.labels:
            found |= await self._highest(
                f"max by ({labels.key}) ({_intervals(scheme, labels, pods)}) >= {least:g}",
                by=(labels.namespace, labels.pod, labels.container),
            )
        return {PodContainer(*name): interval for name, interval in found.items()}

    async def _later_scheme(self, now: float) -> Scheme:
        """Find the names that a server uses between the window and now."""
        later = Grid(self._grid.start, max(now, self._grid.end) - self._grid.start, 2)
        since = Look(self._server, self._patience, self._settings, later)
        return await since._scheme(await since._names(self._memory))

    async def _scheme(self, present: list[str]) -> Scheme:
        """Find the names under which a server has what; `present` are the labels of the memory series."""
        settings, memory = self._settings, self._memory
        metric = settings.memory_rule or names.MEMORY
        if settings.namespace_label and settings.pod_label and settings.container_label:
            given = Labels(settings.namespace_label, settings.pod_label, settings.container_label)
            labels: tuple[Labels, ...] = (given,)
        else:
            labels = await self._labels(metric, present)
        if not present or not labels:
            found = f"only with the labels {', '.join(sorted(present))}" if present else "not there"
            raise SourceRefused(f"{self._server.address}: {memory} is {found}; {ADVICE}")
        if settings.cluster_label in present:
            await self._one_cluster(memory)
        sought = (settings.cpu_rule or names.CPU, *_OPTIONAL)
        metrics = await self._values("__name__", selector("", (one_of("__name__", sought), *self._required)))
        state_labels: tuple[Labels, ...] = ()
        if names.RESTARTS in metrics:
            restarts = selector(names.RESTARTS, self._required)
            state_labels = await self._labels(names.RESTARTS, await self._names(restarts))
        return Scheme(
            labels=labels,
            state_labels=state_labels,
            metrics=frozenset(metrics),
            required=self._required,
            cpu_rule=settings.cpu_rule,
            memory_rule=settings.memory_rule,
        )

    async def _labels(self, metric: str, present: list[str]) -> tuple[Labels, ...]:
        """Find how the series of a metric, which have these labels all together, name containers.

        Each scrape job is looked at by itself: a second cAdvisor, whose own labels push the container's aside, must not
        hide what the kubelets say.
        """
        together = recognise(present)
        series = selector(metric, self._required)
        jobs = await self._values(names.JOB, series) if together and names.JOB in present else []
        if len(jobs) <= 1:
            return (together,) if together else ()
        found: dict[Labels, list[str]] = {}
        for job in (*jobs, ""):  # the last: series of no job
            of_job = selector(metric, (*self._required, equals(names.JOB, job)))
            labels = recognise(await self._names(of_job))
            if labels:
                found.setdefault(labels, []).append(job)
        if len(found) <= 1:
            return tuple(found)
        return tuple(replace(labels, jobs=tuple(theirs)) for labels, theirs in found.items())

    async def _one_cluster(self, memory: str) -> None:
        """Containers of the same name in two clusters would be taken for one."""
        label = self._settings.cluster_label
        clusters = sorted(await self._values(label, memory))
        if len(clusters) > 1:
            raise SourceRefused(
                f"{self._server.address}: holds several clusters ({', '.join(clusters)}); "
                f"say which one is meant, such as labels.{label}={clusters[0]}"
            )

    async def _largest_machine(self, scheme: Scheme, metric: str) -> float:
        """Return twice what the largest machine of the window has; 0 where that is not known.

        All of the window is looked at, not a few moments of it: a node pool may be there for two hours a night only, and
        what ran there is no fault.
        """
        if metric not in scheme.metrics:
            return 0.0
        machines = f"max({selector(metric, self._required)})"
        length = self._grid.end - self._grid.start
        step = max(_STALE, length / _MOST_LOOKS)
        whole = Grid(self._grid.end - length // step * step, step, int(length // step) + 1)

        def read(found: list[Series]) -> float:
            return max(map(highest, found), default=0.0)

        too_much = (TooMuchAsked, SourceSlow)
        with suppress(*too_much):
            return _GLITCH * await self._patience.ask(
                partial(self._server.range, machines, whole, read), unless=too_much
            )
        return 0.0

    async def _names(self, match: str) -> list[str]:
        return await self._patience.ask(lambda: self._server.label_names(match, self._indexed))

    async def _values(self, label: str, match: str) -> list[str]:
        return await self._patience.ask(lambda: self._server.label_values(label, match, self._indexed))

    async def _highest(self, promql: str, *, by: tuple[str, ...] = ()) -> dict[tuple[str, ...], float]:
        """The highest that a query gives at a few moments, by the values of some labels.

        Each is asked for by itself: over all of the window a server would open every series first. Where one is too
        much for it the others are left out, for all is only counted so that the read can be cut well.
        """

        def read(found: list[Series]) -> dict[tuple[str, ...], float]:
            return {tuple(series.metric.get(label, "") for label in by): highest(series) for series in found}

        too_much = (TooMuchAsked, SourceSlow)
        found: dict[tuple[str, ...], float] = {}
        with suppress(*too_much):
            for moment in self._moments:
                once = Grid(moment, self._grid.step, 1)
                seen = await self._patience.ask(
                    partial(self._server.range, promql, once, read), unless=too_much
                )
                found |= {value: max(number, found.get(value, 0.0)) for value, number in seen.items()}
        return found


def _intervals(scheme: Scheme, labels: Labels, pods: Pods | None) -> str:
    """The seconds between two samples of each container that is there all the time."""
    memory, over = scheme.memory_series(labels, pods), int(_COUNTED_OVER)
    return f"{over} / (count_over_time({memory}[{over}s]) and {memory} offset {over}s and {memory})"


def _moments(grid: Grid) -> list[float]:
    """A few times of a grid, its last at first."""
    stride = max(1, -(-(grid.steps - 1) // _MOMENTS))
    return [grid.end - steps * grid.step for steps in range(0, grid.steps, stride)]

"""Take inventory of a server for a time window: metric names, containers and scrape interval.

This uses the server's index and a few points in time, and is far cheaper than the read that follows.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from trimtab.usage.errors import QueryTooLarge, SourceRefused, SourceTimeout
from trimtab.usage.prometheus import schema as names
from trimtab.usage.prometheus.client import PrometheusClient
from trimtab.usage.prometheus.promql import all_equal, equals, format_selector, matches_any
from trimtab.usage.prometheus.response import MatrixSeries, TimeGrid, max_sample
from trimtab.usage.prometheus.schema import ContainerLabels, MetricSchema, recognize_labels
from trimtab.usage.prometheus.settings import PrometheusSettings
from trimtab.usage.prometheus.sharding import PodSelector, QueryShard
from trimtab.usage.usage import MAX_BYTES, MAX_CORES, PodContainer

DEFAULT_SCRAPE_INTERVAL = 30.0
SYSTEM_NAMESPACE = "kube-system"
_COUNT_WINDOW = 600.0
_MAX_LATENESS_WINDOWS = 3
"""The number of earlier windows in which samples are counted when those of the last one may be late."""
_STALENESS = 300.0
_MAX_SAMPLE_TIMES = 3
"""The maximum number of points in time at which containers are counted."""
_MAX_POINTS = 5000
"""The maximum number of steps of a query for the largest machine; servers allow up to 11,000."""
_CACHE_SECONDS = 600.0
_CAPACITY_FACTOR = 2.0
"""The factor over the largest machine above which a sample is an error.

A rate over a counter that went back a little is far higher, an extrapolated rate lower.
"""

ADVICE = "let Prometheus scrape the kubelets' /metrics/cadvisor or /metrics/resource, and check labels"
_OPTIONAL_METRICS = (
    names.PERIODS,
    names.THROTTLED,
    names.OOM_EVENTS,
    names.RESTARTS,
    names.LAST_REASON,
    names.MACHINE_CORES,
    names.MACHINE_MEMORY,
)


@dataclass(frozen=True, slots=True)
class SeriesInventory:
    """The metrics that a server has for a window."""

    schema: MetricSchema
    series: dict[str, int]
    """The approximate number of simultaneous containers per namespace."""
    interval: float
    """The seconds between two samples."""
    lateness: float = 0.0
    """The seconds before the end of the window in which samples may be missing, because they arrive late."""
    max_cores: float = MAX_CORES
    """The CPU above which a sample is an error because no machine of the window has as much."""
    max_bytes: float = MAX_BYTES
    """The memory above which a sample is an error."""

    def estimate_samples(self, part: QueryShard) -> int:
        """Return the approximate number of samples of a shard."""
        containers = sum(max(1, self.series.get(namespace, 1)) for namespace in part.pods.namespaces)
        return part.steps * math.ceil(containers * part.pods.share)


class InventoryCache:
    """A cache of the last inventory, so that a window that is read in parts is probed once."""

    def __init__(self) -> None:
        self._grid = TimeGrid(0.0, 1.0, 0)
        self._namespaces: tuple[str, ...] | None = None
        self._inventory: SeriesInventory | None = None
        self._at = 0.0

    def store(
        self, inventory: SeriesInventory, grid: TimeGrid, namespaces: tuple[str, ...] | None, *, at: float
    ) -> None:
        self._inventory, self._grid, self._namespaces, self._at = inventory, grid, namespaces, at

    def get(self, grid: TimeGrid, namespaces: tuple[str, ...] | None, *, at: float) -> SeriesInventory | None:
        """Return a recent inventory of a window that includes this one; None if there is none."""
        within = self._grid.start <= grid.start and grid.end <= self._grid.end
        return self._inventory if within and self._is_recent(at) and namespaces == self._namespaces else None

    def get_schema(self, *, at: float) -> MetricSchema | None:
        """Return the schema of the last inventory; None if it is too old."""
        return self._inventory.schema if self._inventory and self._is_recent(at) else None

    def get_interval(self, *, at: float) -> float:
        """Return the sample interval of the last inventory; the usual one if it is too old."""
        return (
            self._inventory.interval if self._inventory and self._is_recent(at) else DEFAULT_SCRAPE_INTERVAL
        )

    def _is_recent(self, at: float) -> bool:
        return at - self._at < _CACHE_SECONDS


class InventoryProbe:
    """Takes inventory of a server for one window."""

    def __init__(self, client: PrometheusClient, settings: PrometheusSettings, grid: TimeGrid) -> None:
        self._client = client
        self._settings = settings
        self._grid = grid
        self._sample_times = _choose_sample_times(grid)
        # A window may be shorter than the scrape interval; the sample that applies then lies before it.
        self._index_range = TimeGrid(grid.start - _STALENESS, grid.end - grid.start + _STALENESS, 2)
        self._required = all_equal(settings.labels)
        self._memory_selector = format_selector(settings.memory_rule or names.MEMORY, self._required)

    async def probe(
        self,
        namespaces: tuple[str, ...] | None,
        *,
        now: float,
        known: MetricSchema | None = None,
        expected_interval: float = DEFAULT_SCRAPE_INTERVAL,
    ) -> SeriesInventory:
        """Take inventory of these namespaces, or of all.

        A window without any samples, before a server was installed or while it was down, gives an empty
        inventory with the `known` schema of another window or that of later samples. `SourceRefused` means
        that the server has no later samples either: it does not scrape kubelets, or does not show us their
        metrics. Where samples seem to be rarer than at the `expected_interval`, earlier ones are counted too.
        """
        present = await self._list_label_names(self._memory_selector)
        if not present:
            scheme = known or await self._find_later_schema(now)
            return SeriesInventory(schema=scheme, series={}, interval=DEFAULT_SCRAPE_INTERVAL)
        scheme = await self._detect_schema(present)
        pods = None if namespaces is None else PodSelector(namespaces)
        series: Counter[str] = Counter()
        for labels in scheme.labels:
            series += await self._count_containers(scheme, labels, pods)
        series |= Counter(namespaces or ())  # at least one in each requested namespace
        sampling = await asyncio.gather(
            *(
                self._measure_interval(each, expected_interval)
                for each in scheme.format_sampling_selectors(pods)
            )
        )
        return SeriesInventory(
            schema=scheme,
            series=dict(series),
            interval=max(interval for interval, _ in sampling),
            lateness=max(lateness for _, lateness in sampling),
            max_cores=await self._find_sample_limit(scheme, names.MACHINE_CORES) or MAX_CORES,
            max_bytes=await self._find_sample_limit(scheme, names.MACHINE_MEMORY) or MAX_BYTES,
        )

    async def _measure_interval(self, selector: str, expected: float) -> tuple[float, float]:
        """Return the seconds between two samples of the busiest series, and by how many seconds samples are late.

        Late samples are missing at the end of the window, and those that are there would seem to be rarer.
        """
        promql = f"max(count_over_time({selector}[{int(_COUNT_WINDOW)}s]))"
        most, lateness = (await self._query_maximum(promql)).get((), 0.0), 0.0
        if most * expected < _COUNT_WINDOW:
            for windows in range(1, _MAX_LATENESS_WINDOWS + 1):
                moment = self._grid.end - windows * _COUNT_WINDOW
                count = (await self._query_maximum(promql, times=[moment])).get((), 0.0)
                if most and count <= most:
                    break
                if count > most:
                    most, lateness = count, windows * _COUNT_WINDOW
        return (_COUNT_WINDOW / max(1.0, most) if most else DEFAULT_SCRAPE_INTERVAL), lateness

    async def _count_containers(
        self, scheme: MetricSchema, labels: ContainerLabels, pods: PodSelector | None
    ) -> Counter[str]:
        """Count the containers per namespace in series with these labels; at least one where any exist."""
        by = labels.namespace
        number = scheme.format_container_count_query(labels, pods, over=max(self._grid.step, _STALENESS))
        counted = await self._query_maximum(number, by=(by,))
        found = Counter({namespace: int(count) for (namespace,), count in counted.items()})
        if pods is None:
            # A namespace may have had containers at none of the counted points in time.
            found |= Counter(await self._list_label_values(by, scheme.format_memory_selector(labels)))
        return found

    async def find_longest_interval(self, scheme: MetricSchema) -> float | None:
        """Return the longest sample interval in seconds of the containers that run all the time."""
        found = [
            await self._query_maximum(f"max({_format_interval_query(scheme, labels, None)})")
            for labels in scheme.labels
        ]
        return max((each[()] for each in found if each), default=None)

    async def find_slow_scraped(
        self, scheme: MetricSchema, pods: PodSelector, *, least: float
    ) -> dict[PodContainer, float]:
        """Return the containers with at least `least` seconds between samples, with their interval.

        Only containers that run all the time are considered.
        """
        found: dict[tuple[str, ...], float] = {}
        for labels in scheme.labels:
            found |= await self._query_maximum(
                f"max by ({labels.group_by}) ({_format_interval_query(scheme, labels, pods)}) >= {least:g}",
                by=(labels.namespace, labels.pod, labels.container),
            )
        return {PodContainer(*name): interval for name, interval in found.items()}

    async def _find_later_schema(self, now: float) -> MetricSchema:
        """Detect the schema that the server uses between the window and now."""
        later = TimeGrid(self._grid.start, max(now, self._grid.end) - self._grid.start, 2)
        since = InventoryProbe(self._client, self._settings, later)
        return await since._detect_schema(await since._list_label_names(self._memory_selector))

    async def _detect_schema(self, present: list[str]) -> MetricSchema:
        """Detect the metric and label names of a server; `present` are the labels of the memory series."""
        settings, memory = self._settings, self._memory_selector
        metric = settings.memory_rule or names.MEMORY
        if settings.namespace_label and settings.pod_label and settings.container_label:
            given = ContainerLabels(settings.namespace_label, settings.pod_label, settings.container_label)
            # Whoever names labels knows the series; only a list of namespaces that is given too restricts them.
            is_restricted = "exporter_namespaces" in settings.model_fields_set
            labels: tuple[ContainerLabels, ...] = self._trust((given,)) if is_restricted else (given,)
        else:
            labels = await self._detect_labels(metric, present)
        if not present or not labels:
            found = f"has only the labels {', '.join(sorted(present))}" if present else "does not exist"
            raise SourceRefused(f"{self._client.server.address}: {memory} {found}; {ADVICE}")
        await self._require_trusted_exporter(labels)
        if settings.cluster_label in present:
            await self._require_one_cluster(labels)
        sought = (settings.cpu_rule or names.CPU, *_OPTIONAL_METRICS)
        metrics = await self._list_label_values(
            "__name__", format_selector("", (matches_any("__name__", sought), *self._required))
        )
        state_labels: tuple[ContainerLabels, ...] = ()
        if names.RESTARTS in metrics:
            restarts = format_selector(names.RESTARTS, self._required)
            state_labels = await self._detect_labels(names.RESTARTS, await self._list_label_names(restarts))
        return MetricSchema(
            labels=labels,
            state_labels=state_labels,
            metrics=frozenset(metrics),
            required_matchers=self._required,
            cpu_rule=settings.cpu_rule,
            memory_rule=settings.memory_rule,
        )

    async def _detect_labels(self, metric: str, present: list[str]) -> tuple[ContainerLabels, ...]:
        """Detect the labels by which the series of a metric name containers; `present` are all their labels.

        Each scrape job is examined separately, because a second cAdvisor, whose own labels displace those of
        the container, must not hide the kubelets' series.
        """
        return self._trust(await self._recognize_labels(metric, present))

    def _trust(self, found: tuple[ContainerLabels, ...]) -> tuple[ContainerLabels, ...]:
        trusted = self._settings.exporter_namespaces
        return tuple(replace(labels, exporter_namespaces=trusted) for labels in found)

    async def _recognize_labels(self, metric: str, present: list[str]) -> tuple[ContainerLabels, ...]:
        together = recognize_labels(present)
        series = format_selector(metric, self._required)
        jobs = await self._list_label_values(names.JOB, series) if together and names.JOB in present else []
        if len(jobs) <= 1:
            return (together,) if together else ()
        found: dict[ContainerLabels, list[str]] = {}
        for job in (*jobs, ""):  # "" stands for series without a job
            of_job = format_selector(metric, (*self._required, equals(names.JOB, job)))
            labels = recognize_labels(await self._list_label_names(of_job))
            if labels:
                found.setdefault(labels, []).append(job)
        if len(found) <= 1:
            return tuple(found)
        return tuple(replace(labels, jobs=tuple(theirs)) for labels, theirs in found.items())

    async def _require_trusted_exporter(self, found: tuple[ContainerLabels, ...]) -> None:
        """Require series that name containers themselves, or a trusted exporter; otherwise all usage would be missing."""
        metric = self._settings.memory_rule or names.MEMORY
        for labels in found:
            if not labels.restricts_exporters:
                return
            trusted = format_selector(metric, (*labels.build_matchers(None), *self._required))
            if await self._list_label_values(labels.namespace, trusted):
                return
        by_all = format_selector(metric, self._required)
        exporters = sorted(await self._list_label_values(names.NAMESPACE, by_all))
        raise SourceRefused(
            f"{self._client.server.address}: {metric} comes only from exporters in namespace {', '.join(exporters)}, "
            "which may not report on other namespaces; if you trust them, add it to exporter_namespaces"
        )

    async def _require_one_cluster(self, found: tuple[ContainerLabels, ...]) -> None:
        """Require a single cluster, because containers of the same name in two clusters would be mixed up."""
        label, metric = self._settings.cluster_label, self._settings.memory_rule or names.MEMORY
        clusters: set[str] = set()
        for labels in found:
            # Each cluster has these pods. In other namespaces any pod that is scraped may export series of another cluster,
            # which would stop the source for everybody.
            system, all_pods = (
                format_selector(metric, (*labels.build_matchers(pods), *self._required))
                for pods in (PodSelector((SYSTEM_NAMESPACE,)), None)
            )
            is_known = await self._list_label_values(labels.namespace, system)
            clusters.update(await self._list_label_values(label, system if is_known else all_pods))
        clusters.discard("")
        if len(clusters) > 1:
            raise SourceRefused(
                f"{self._client.server.address}: contains several clusters ({', '.join(sorted(clusters))}); "
                f"select one, for example with labels.{label}={min(clusters)}"
            )

    async def _find_sample_limit(self, scheme: MetricSchema, metric: str) -> float:
        """Return twice the size of the largest machine in the window; 0 if unknown.

        The whole window is examined, because a node pool may exist for only two hours a night and the samples
        of its pods are valid.
        """
        if metric not in scheme.metrics:
            return 0.0
        machines = f"max({format_selector(metric, self._required)})"
        length = self._grid.end - self._grid.start
        step = max(_STALENESS, length / _MAX_POINTS)
        whole = TimeGrid(self._grid.end - length // step * step, step, int(length // step) + 1)

        def read(found: list[MatrixSeries]) -> float:
            return max(map(max_sample, found), default=0.0)

        too_much = (QueryTooLarge, SourceTimeout)
        with suppress(*too_much):
            return _CAPACITY_FACTOR * await self._client.query_range(
                machines, whole, read, no_retry_on=too_much
            )
        return 0.0

    async def _list_label_names(self, match: str) -> list[str]:
        return await self._client.label_names(match, self._index_range)

    async def _list_label_values(self, label: str, match: str) -> list[str]:
        return await self._client.label_values(label, match, self._index_range)

    async def _query_maximum(
        self, promql: str, *, by: tuple[str, ...] = (), times: Sequence[float] = ()
    ) -> dict[tuple[str, ...], float]:
        """Return the highest value of a query at these or a few points in time, grouped by some labels.

        Each point in time is a separate query, because a range query would make the server open every series
        first. If one is too large, the others are skipped: the counts only serve to split the read well.
        """

        def read(found: list[MatrixSeries]) -> dict[tuple[str, ...], float]:
            return {
                tuple(series.metric.get(label, "") for label in by): max_sample(series) for series in found
            }

        too_much = (QueryTooLarge, SourceTimeout)
        found: dict[tuple[str, ...], float] = {}
        with suppress(*too_much):
            for moment in times or self._sample_times:
                once = TimeGrid(moment, self._grid.step, 1)
                seen = await self._client.query_range(promql, once, read, no_retry_on=too_much)
                found |= {value: max(number, found.get(value, 0.0)) for value, number in seen.items()}
        return found


def _format_interval_query(scheme: MetricSchema, labels: ContainerLabels, pods: PodSelector | None) -> str:
    """Format the query for the sample interval of each container that runs all the time."""
    memory, over = scheme.format_memory_selector(labels, pods), int(_COUNT_WINDOW)
    return f"{over} / (count_over_time({memory}[{over}s]) and {memory} offset {over}s and {memory})"


def _choose_sample_times(grid: TimeGrid) -> list[float]:
    """Return a few times of a grid, the last one first."""
    stride = max(1, -(-(grid.steps - 1) // _MAX_SAMPLE_TIMES))
    return [grid.end - steps * grid.step for steps in range(0, grid.steps, stride)]

"""Usage from servers with the Prometheus query API: Prometheus, Thanos, Mimir, VictoriaMetrics.

A cheap inventory of the server comes first (`inventory`); the queries (`schema`) are then split by namespace
and time into shards that the server can answer (`window_reader`, `sharding`).
"""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from trimtab.kube.rest.client import Client
from trimtab.kube.rest.rbac import RbacRule
from trimtab.plural import format_time_span, pluralize
from trimtab.timing import Backoff
from trimtab.usage.errors import SourceUnavailable, UsageError
from trimtab.usage.prometheus.client import MAX_PROMQL_BYTES, PrometheusClient
from trimtab.usage.prometheus.columns import SampleColumns, detect_ooms
from trimtab.usage.prometheus.inventory import ADVICE, InventoryCache, InventoryProbe, SeriesInventory
from trimtab.usage.prometheus.promql import all_equal, format_selector
from trimtab.usage.prometheus.response import TimeGrid
from trimtab.usage.prometheus.schema import CPU, MEMORY, METRIC_KINDS, SCRAPES_PER_RATE, LookbackWindow
from trimtab.usage.prometheus.settings import PrometheusSettings
from trimtab.usage.prometheus.sharding import PodSelector
from trimtab.usage.prometheus.window_reader import Columns, WindowReader, build_grid, extend_back
from trimtab.usage.source import Capabilities, Cost, Progress, PromqlClient, Source, SourceHealth, UsageQuery
from trimtab.usage.usage import Oom, PodContainer, Usage

if TYPE_CHECKING:
    from trimtab.store import Store

BYTES_PER_SAMPLE = 28
BYTES_PER_SERIES = 150
MINUTE, HOUR = 60.0, 3600.0
LOOKBACK = 300.0
"""The seconds for which a server returns a series without newer samples, by default."""
LATENESS_PROBES = (1200.0, 2400.0, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, 24 * HOUR)
"""The ages at which samples are looked for where there are no current ones."""
LATE_ADVICE = "check that Prometheus scrapes, or receives what another one sends"
CHECK_WINDOW = 600.0
SLOW_SCRAPE_FACTOR = 1.8
"""The factor of the usual interval from which a container counts as slowly scraped."""


class Prometheus(Source[PrometheusSettings]):
    """The usage in a PromQL server, reached as its settings say."""

    name = "prometheus"
    settings_type = PrometheusSettings
    rules = (RbacRule("", "services", ("list",)),)
    capabilities = Capabilities(history=True, throttling=True, ooms=True)

    def __init__(
        self,
        settings: PrometheusSettings,
        *,
        client: Client | None = None,
        store: Store | None = None,
        backoff: Backoff | None = None,
    ) -> None:
        super().__init__(settings, client=client, store=store)
        self._prometheus = PrometheusClient.from_settings(settings, cluster=client, backoff=backoff)
        self._inventory_cache = InventoryCache()

    async def __aexit__(self, *_: object) -> None:
        await self._prometheus.__aexit__()

    @property
    def promql(self) -> PromqlClient:
        return self._prometheus.with_max_bytes(MAX_PROMQL_BYTES)

    async def check(self) -> SourceHealth:
        """Check that the server responds and has container samples, and say by how much the newest one is late."""
        grid = TimeGrid(time.time() - CHECK_WINDOW, CHECK_WINDOW, 2)
        client = self._prometheus.with_retries(1)
        try:
            inventory = await self._load_inventory(client, grid, None)
            longest = await InventoryProbe(
                client, self.settings, _shift_back(grid, inventory.lateness)
            ).find_longest_interval(inventory.schema)
        except UsageError as error:
            problem, _, advice = str(error).rpartition("; ")
            if (
                isinstance(error, SourceUnavailable)
                or (lateness := await self._find_lateness(client)) is None
            ):
                return SourceHealth(ok=False, detail=problem or advice, advice=advice if problem else "")
            return SourceHealth(
                ok=True, detail=f"{client.server.address}: {_describe_lateness(lateness)}", advice=LATE_ADVICE
            )
        schema, address = inventory.schema, client.server.address
        if not schema.has_cpu:
            missing = f"{address}: {self.settings.cpu_rule or CPU} does not exist"
            return SourceHealth(ok=False, detail=missing, advice=ADVICE)
        optional = [
            word
            for word, known in (("throttling", schema.has_throttling), ("OOM kills", schema.has_ooms))
            if known
        ]
        containers = sum(inventory.series.values())
        within = pluralize(len(inventory.series), "namespace")
        detail = f"{address}: {pluralize(containers, 'container')} in {within}, a sample every {inventory.interval:.0f} s"
        labels = " and ".join(each.group_by for each in schema.labels)
        detail += f"; metrics: {', '.join(['CPU', 'memory', *optional])}; labels: {labels}"
        if longest and longest >= SLOW_SCRAPE_FACTOR * inventory.interval:
            detail += f"; some containers only every {longest:.0f} s"
        if (lateness := await self._find_lateness(client)) is not None:
            return SourceHealth(
                ok=True, detail=f"{detail}; {_describe_lateness(lateness)}", advice=LATE_ADVICE
            )
        return SourceHealth(ok=True, detail=detail)

    async def _find_lateness(self, client: PrometheusClient) -> float | None:
        """Return the age of the newest container sample in seconds, to the minute; None if the last day has none."""
        now = time.time()
        try:
            if await self._has_samples(client, at=now):
                return None
            for earlier, age in pairwise((0.0, *LATENESS_PROBES)):
                if not await self._has_samples(client, at=now - age):
                    continue
                newer, older = earlier, age
                while older - newer > MINUTE:
                    middle = (newer + older) / 2
                    newer, older = (
                        (newer, middle)
                        if await self._has_samples(client, at=now - middle)
                        else (middle, older)
                    )
                return older + LOOKBACK
        except UsageError:
            pass  # the first error says more
        return None

    async def estimate_cost(self, query: UsageQuery) -> Cost:
        """Estimate the cost by counting containers at a few times; pods that come and go add to it."""
        inventory = await self._load_inventory(self._prometheus, build_grid(query), query.namespaces)
        reader = self._create_reader(inventory, query)
        queries = reader.build_queries(self._build_lookback(inventory, query))
        # OOM kills are rare: they add queries, but hardly any samples.
        kinds = len({each.kind for each in queries} - {"oom"})
        series = sum(inventory.series.values()) * kinds
        return Cost(
            queries=len(reader.split(query)) * len(queries),
            series=series,
            samples=series * query.steps,
            bytes=series * (query.steps * BYTES_PER_SAMPLE + BYTES_PER_SERIES),
        )

    async def read(self, query: UsageQuery, *, progress: Progress | None = None) -> Usage:
        """See `Source.read`."""
        grid = build_grid(query)
        inventory = await self._load_inventory(self._prometheus, grid, query.namespaces)
        lookback = self._build_lookback(inventory, query)
        kinds = METRIC_KINDS if query.include_ooms else METRIC_KINDS - {"oom"}
        columns = await self._create_reader(inventory, query).read(lookback, kinds=kinds, progress=progress)
        # The rates of a recording rule are computed by the server, from samples that are not seen here.
        # A strategy with a rate window of its own wants what the server would answer, edges and all.
        if not self.settings.cpu_rule and not query.rate_window:
            undersampled = columns["cpu"].find_undersampled(columns["memory"])
            columns["cpu"].drop_edges(lookback.count_partial_steps(query.step))
            await self._reread_slow_containers(inventory, query, lookback, undersampled, columns)
        return _build_usage(columns, grid, ooms=_detect_ooms(columns.get("oom"), query, lookback))

    async def has_usage(self, *, at: float) -> bool:
        """Return whether there were any container samples at a time."""
        return await self._has_samples(self._prometheus, at=at)

    async def _has_samples(self, client: PrometheusClient, *, at: float) -> bool:
        memory = format_selector(self.settings.memory_rule or MEMORY, all_equal(self.settings.labels))
        return bool(await client.vector(f"count({memory})", at=at))

    async def _reread_slow_containers(
        self,
        inventory: SeriesInventory,
        query: UsageQuery,
        lookback: LookbackWindow,
        undersampled: set[PodContainer],
        columns: Columns,
    ) -> None:
        """Reread the rates of containers that are scraped too seldom for the look-back, with a wider one.

        New containers have few rates too, so the slowly scraped ones are identified first.
        """
        if not undersampled:
            return
        grid = _shift_back(build_grid(query), inventory.lateness)
        probe = InventoryProbe(self._prometheus, self.settings, grid)
        pods = PodSelector(tuple(sorted({container.namespace for container in undersampled})))
        slow = await probe.find_slow_scraped(
            inventory.schema, pods, least=SLOW_SCRAPE_FACTOR * lookback.rate / SCRAPES_PER_RATE
        )
        slow = {container: interval for container, interval in slow.items() if container in undersampled}
        if not slow:
            return
        wider = LookbackWindow.from_interval(step=query.step, interval=max(slow.values()))
        namespaces = sorted({container.namespace for container in slow})
        theirs = replace(inventory, series={name: inventory.series.get(name, 1) for name in namespaces})
        reread = self._create_reader(theirs, query)
        found = await reread.read(wider, kinds=frozenset({"cpu", "throttled"}))
        found["cpu"].drop_edges(wider.count_partial_steps(query.step))
        for kind, rates in found.items():
            columns[kind].replace_columns(rates, undersampled)

    def _create_reader(self, inventory: SeriesInventory, query: UsageQuery) -> WindowReader:
        return WindowReader(self._prometheus, self.settings, inventory, query)

    def _build_lookback(self, inventory: SeriesInventory, query: UsageQuery) -> LookbackWindow:
        return LookbackWindow.from_interval(
            step=query.step,
            interval=inventory.interval,
            override=query.rate_window or self.settings.rate_window,
        )

    async def _load_inventory(
        self, client: PrometheusClient, grid: TimeGrid, namespaces: tuple[str, ...] | None
    ) -> SeriesInventory:
        now = time.monotonic()
        inventory = self._inventory_cache.get(grid, namespaces, at=now)
        if inventory is None:
            probe = InventoryProbe(client, self.settings, grid)
            inventory = await probe.probe(
                namespaces,
                now=time.time(),
                known=self._inventory_cache.get_schema(at=now),
                expected_interval=self._inventory_cache.get_interval(at=now),
            )
            self._inventory_cache.store(inventory, grid, namespaces, at=now)
        self.capabilities = Capabilities(
            history=True,
            throttling=self.settings.throttling and inventory.schema.has_throttling,
            ooms=self.settings.ooms and inventory.schema.has_ooms,
            interval=inventory.interval,
        )
        return inventory


def _shift_back(grid: TimeGrid, seconds: float) -> TimeGrid:
    """Return a grid that is earlier by some seconds, in which late samples are there."""
    return grid._replace(start=grid.start - seconds)


def _describe_lateness(seconds: float) -> str:
    return f"the newest sample is late by {format_time_span(seconds)}"


def _detect_ooms(
    seen: SampleColumns | None, query: UsageQuery, lookback: LookbackWindow
) -> tuple[Oom, ...] | None:
    if seen is None:
        return None
    start = extend_back(query, lookback).start
    return detect_ooms(seen, start=start, step=query.step, window=lookback.ooms, since=query.start)


def _build_usage(columns: Columns, grid: TimeGrid, *, ooms: tuple[Oom, ...] | None) -> Usage:
    containers = tuple(sorted(columns["cpu"].containers | columns["memory"].containers))
    throttled = columns["throttled"].take_grid(containers) if "throttled" in columns else None
    if throttled is not None:
        np.minimum(throttled, 1.0, out=throttled)
    return Usage(
        containers=containers,
        start=grid.start,
        step=grid.step,
        cpu=columns["cpu"].take_grid(containers),
        memory=columns["memory"].take_grid(containers),
        throttled=throttled,
        ooms=ooms,
    )

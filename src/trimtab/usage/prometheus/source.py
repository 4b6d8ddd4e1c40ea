"""Usage from servers with the Prometheus query API: Prometheus, Thanos, Mimir, VictoriaMetrics.

A cheap inventory of the server comes first (`inventory`); the queries (`schema`) are then split by namespace
and time into shards that the server can answer (`sharding`, `query_scheduler`).
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from sys import intern
from typing import TYPE_CHECKING

import numpy as np

from trimtab.aio import task_group
from trimtab.kube.rest.client import Client
from trimtab.plural import pluralize
from trimtab.timing import Backoff
from trimtab.usage.errors import SourceRefused, UsageError, UsageResponseError
from trimtab.usage.http_client import UsageHttpClient
from trimtab.usage.prometheus.api import PrometheusApi
from trimtab.usage.prometheus.columns import SampleColumns, detect_ooms
from trimtab.usage.prometheus.endpoint import Endpoint, find_endpoints
from trimtab.usage.prometheus.inventory import ADVICE, InventoryCache, InventoryProbe, SeriesInventory
from trimtab.usage.prometheus.pod_selector import PodSelector
from trimtab.usage.prometheus.promql import all_equal, format_selector
from trimtab.usage.prometheus.query_scheduler import QueryScheduler
from trimtab.usage.prometheus.remote_read import sample_reader
from trimtab.usage.prometheus.remote_read.sample_reader import SampleReader, SeriesRows
from trimtab.usage.prometheus.response import Indices, MatrixSeries, TimeGrid, decode_samples, first_sample
from trimtab.usage.prometheus.response import RowIndices as RowNumbers
from trimtab.usage.prometheus.schema import (
    CPU,
    MEMORY,
    METRIC_KINDS,
    SCRAPES_PER_RATE,
    ContainerLabels,
    LookbackWindow,
    MetricKind,
    MetricQuery,
)
from trimtab.usage.prometheus.settings import PrometheusSettings
from trimtab.usage.prometheus.sharding import QueryShard, split_into_shards
from trimtab.usage.source import Capabilities, Cost, Progress, PromqlClient, Source, SourceHealth, UsageQuery
from trimtab.usage.trace import Floats
from trimtab.usage.usage import Oom, PodContainer, Usage

if TYPE_CHECKING:
    from trimtab.store import Store

BYTES_PER_SAMPLE = 28
BYTES_PER_SERIES = 150
MAX_OOMS = 1e9
ROUNDING_TOLERANCE = 1e-6
CHECK_WINDOW = 600.0
SLOW_SCRAPE_FACTOR = 1.8
"""The factor of the usual interval from which a container counts as slowly scraped."""
MIN_REMOTE_READ_STEPS = 32
"""The number of steps from which remote read costs a server less than a query."""


class Prometheus(Source[PrometheusSettings]):
    """A PromQL server, reached as its settings say."""

    name = "prometheus"
    settings_type = PrometheusSettings
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
        self._scheduler = QueryScheduler(
            slots=asyncio.Semaphore(settings.concurrency),
            retries=settings.retries,
            backoff=backoff or Backoff(first=0.5),
            rng=random.Random(),  # noqa: S311 - jitter
        )
        self._transport: UsageHttpClient | None = None
        self._inventory_cache = InventoryCache()
        self._use_remote_read = settings.raw_samples
        self._connect_lock = asyncio.Lock()

    async def __aexit__(self, *_: object) -> None:
        if self._transport is not None:
            await self._transport.__aexit__()
            self._transport = None

    async def check(self) -> SourceHealth:
        """Check that the server responds and has container samples of the last ten minutes."""
        grid = TimeGrid(time.time() - CHECK_WINDOW, CHECK_WINDOW, 2)
        try:
            server = await self._connect(grid)
            held = await self._load_inventory(server, grid, None, self._with_one_retry())
            longest = await InventoryProbe(
                server, self._with_one_retry(), self.settings, grid
            ).find_longest_interval(held.schema)
        except UsageError as error:
            problem, _, advice = str(error).rpartition("; ")
            return SourceHealth(ok=False, detail=problem or advice, advice=advice if problem else "")
        scheme = held.schema
        if not scheme.has_cpu:
            missing = f"{server.address}: {self.settings.cpu_rule or CPU} does not exist"
            return SourceHealth(ok=False, detail=missing, advice=ADVICE)
        optional = [
            word
            for word, known in (("throttling", scheme.has_throttling), ("OOM kills", scheme.has_ooms))
            if known
        ]
        containers = sum(held.series.values())
        within = pluralize(len(held.series), "namespace")
        detail = f"{server.address}: {pluralize(containers, 'container')} in {within}, a sample every {held.interval:.0f} s"
        labels = " and ".join(each.group_by for each in scheme.labels)
        detail += f"; metrics: {', '.join(['CPU', 'memory', *optional])}; labels: {labels}"
        if longest and longest >= SLOW_SCRAPE_FACTOR * held.interval:
            detail += f"; some containers only every {longest:.0f} s"
        return SourceHealth(ok=True, detail=detail)

    async def estimate_cost(self, query: UsageQuery) -> Cost:
        """Estimate the cost by counting containers at a few times; pods that come and go add to it."""
        grid = _build_grid(query)
        held = await self._load_inventory(await self._connect(grid), grid, query.namespaces)
        questions = self._build_queries(held, self._build_window(held, query))
        queries = len(self._split_read(held, query)) * len(questions)
        # OOM kills are rare: they add queries, but hardly any samples.
        kinds = len({question.kind for question in questions} - {"oom"})
        series = sum(held.series.values()) * kinds
        size = series * (query.steps * BYTES_PER_SAMPLE + BYTES_PER_SERIES)
        return Cost(queries=queries, series=series, samples=series * query.steps, bytes=size)

    async def read(self, query: UsageQuery, *, progress: Progress | None = None) -> Usage:
        """See `Source.read`."""
        grid = _build_grid(query)
        server = await self._connect(grid)
        held = await self._load_inventory(server, grid, query.namespaces)
        window = self._build_window(held, query)
        wanted = METRIC_KINDS if query.include_ooms else METRIC_KINDS - {"oom"}
        columns = await self._query_columns(server, held, query, window, only=wanted, progress=progress)
        if not self.settings.cpu_rule:
            seldom = columns["cpu"].find_undersampled(columns["memory"])
            columns["cpu"].drop_edges(window.count_partial_steps(query.step))
            await self._reread_slow_containers(server, held, query, window, seldom, columns)
        return _build_usage(columns, grid, ooms=_detect_ooms(columns.get("oom"), query, window))

    async def _reread_slow_containers(
        self,
        server: PrometheusApi,
        inventory: SeriesInventory,
        query: UsageQuery,
        window: LookbackWindow,
        seldom: set[PodContainer],
        columns: dict[MetricKind, SampleColumns],
    ) -> None:
        """Reread the rates of containers that are scraped too seldom for the window, with a wider one.

        New containers have few rates too, so the slowly scraped ones are identified first.
        """
        if not seldom:
            return
        look = InventoryProbe(server, self._scheduler, self.settings, _build_grid(query))
        pods = PodSelector(tuple(sorted({container.namespace for container in seldom})))
        slow = await look.find_slow_scraped(
            inventory.schema, pods, least=SLOW_SCRAPE_FACTOR * window.rate / SCRAPES_PER_RATE
        )
        slow = {container: interval for container, interval in slow.items() if container in seldom}
        if not slow:
            return
        wider = LookbackWindow.from_interval(step=query.step, interval=max(slow.values()))
        namespaces = sorted({container.namespace for container in slow})
        theirs = replace(inventory, series={name: inventory.series.get(name, 1) for name in namespaces})
        found = await self._query_columns(server, theirs, query, wider, only=frozenset({"cpu", "throttled"}))
        found["cpu"].drop_edges(wider.count_partial_steps(query.step))
        for kind, rates in found.items():
            columns[kind].replace_columns(rates, seldom)

    async def _query_columns(
        self,
        server: PrometheusApi,
        inventory: SeriesInventory,
        query: UsageQuery,
        window: LookbackWindow,
        *,
        only: frozenset[MetricKind],
        progress: Progress | None = None,
    ) -> dict[MetricKind, SampleColumns]:
        """Query all kinds in `only` with this look-back and return their columns."""
        questions = [question for question in self._build_queries(inventory, window) if question.kind in only]
        asked_of = {
            question.kind: _extend_back(query, window) if question.kind == "oom" else query
            for question in questions
        }
        columns = {
            kind: SampleColumns(
                theirs.steps,
                maximum=_max_value(kind, inventory),
                expected=0 if kind == "oom" else sum(inventory.series.values()),
            )
            for kind, theirs in asked_of.items()
        }
        names: dict[
            PodContainer, PodContainer
        ] = {}  # one object per name, although every response repeats it
        done, whole = (
            0,
            sum(map(inventory.estimate_samples, self._split_read(inventory, query))) * len(questions),
        )
        samples_of = SampleReader(server, inventory.schema, window, _build_grid(query))

        async def answer(question: MetricQuery, part: QueryShard, *, asked: bool = True) -> None:
            nonlocal done
            into = columns[question.kind]
            if asked:
                grid = _build_grid(asked_of[question.kind])
                await _query_part(server, question, part, grid=grid, names=names, into=into)
            else:
                rows = await samples_of.read(question.kind, question.labels, part)
                _add_raw_rows(rows, question, part, names=names, into=into)
            done += inventory.estimate_samples(part)
            if progress:
                progress(min(1.0, done / whole))

        async def ask_for(question: MetricQuery) -> None:
            if (
                query.steps >= MIN_REMOTE_READ_STEPS
                and samples_of.supports(question.kind)
                and self._use_remote_read
                and server.supports_remote_read
            ):
                try:
                    of_samples = partial(answer, question, asked=False)
                    await self._with_one_retry().run_all(
                        self._split_remote_read(inventory, query), of_samples
                    )
                except UsageError as error:  # the server may still answer queries
                    self._use_remote_read = not isinstance(error, SourceRefused)
                else:
                    return
            parts = self._split_read(inventory, asked_of[question.kind])
            await self._scheduler.run_all(parts, partial(answer, question))

        # All kinds run concurrently: while one waits for its last shards, another uses the free slots.
        async with task_group() as group:
            for question in questions:
                group.create_task(ask_for(question))
        return columns

    async def has_usage(self, *, at: float) -> bool:
        """Return whether there were any container samples at a time."""
        memory = format_selector(self.settings.memory_rule or MEMORY, all_equal(self.settings.labels))
        return bool(await self.vector(f"count({memory})", at=at))

    @property
    def promql(self) -> PromqlClient:
        return self

    async def vector(self, promql: str, *, at: float) -> list[tuple[dict[str, str], float]]:
        """Return the labels and value of each series that a query returns at a time."""
        grid = TimeGrid(at, 1.0, 1)
        server = await self._connect(grid)

        def numbers(answer: list[MatrixSeries]) -> list[tuple[dict[str, str], float]]:
            return [
                (series.metric, value) for series in answer if (value := first_sample(series)) is not None
            ]

        return await self._scheduler.run_query(lambda: server.query_range(promql, grid, numbers))

    # Implementation

    def _with_one_retry(self) -> QueryScheduler:
        """Return a scheduler with one retry, for queries that have a fallback."""
        return replace(self._scheduler, retries=min(1, self.settings.retries))

    def _build_queries(self, inventory: SeriesInventory, window: LookbackWindow) -> list[MetricQuery]:
        left_out = {
            kind
            for kind, wanted in (("throttled", self.settings.throttling), ("oom", self.settings.ooms))
            if not wanted
        }
        return [
            question for question in inventory.schema.build_queries(window) if question.kind not in left_out
        ]

    def _build_window(self, inventory: SeriesInventory, query: UsageQuery) -> LookbackWindow:
        return LookbackWindow.from_interval(
            step=query.step, interval=inventory.interval, override=self.settings.rate_window
        )

    def _split_read(self, inventory: SeriesInventory, query: UsageQuery) -> list[QueryShard]:
        settings = self.settings
        return list(
            split_into_shards(
                inventory.series,
                steps=query.steps,
                points_a_series=settings.points_a_series,
                samples_a_query=settings.samples_a_query,
            )
        )

    def _split_remote_read(self, inventory: SeriesInventory, query: UsageQuery) -> list[QueryShard]:
        """Split so that the raw samples of a shard take at most half of the maximum response size."""
        samples_per_step = max(1.0, query.step / inventory.interval)
        max_samples = self.settings.bytes_an_answer / 2 / sample_reader.BYTES_PER_SAMPLE / samples_per_step
        return list(
            split_into_shards(
                inventory.series,
                steps=query.steps,
                points_a_series=query.steps,
                samples_a_query=max(1, int(max_samples)),
            )
        )

    async def _load_inventory(
        self,
        server: PrometheusApi,
        grid: TimeGrid,
        namespaces: tuple[str, ...] | None,
        scheduler: QueryScheduler | None = None,
    ) -> SeriesInventory:
        now = time.monotonic()
        held = self._inventory_cache.get(grid, namespaces, at=now)
        if held is None:
            look = InventoryProbe(server, scheduler or self._scheduler, self.settings, grid)
            held = await look.probe(
                namespaces, now=time.time(), known=self._inventory_cache.get_schema(at=now)
            )
            self._inventory_cache.store(held, grid, namespaces, at=now)
        self.capabilities = Capabilities(
            history=True,
            throttling=self.settings.throttling and held.schema.has_throttling,
            ooms=self.settings.ooms and held.schema.has_ooms,
        )
        return held

    async def _connect(self, grid: TimeGrid) -> PrometheusApi:
        """Return the server, which is chosen at the first call by its data for the requested time."""
        async with self._connect_lock:
            if self._transport is None:
                self._transport = await self._choose_endpoint(
                    await find_endpoints(self.settings, self.client), grid
                )
            return PrometheusApi(self._transport)

    async def _choose_endpoint(self, endpoints: list[Endpoint], grid: TimeGrid) -> UsageHttpClient:
        """Return the first endpoint with container metrics; if none has any, the first one."""
        for endpoint in endpoints if len(endpoints) > 1 else ():
            transport = await self._build_transport(endpoint).__aenter__()
            with suppress(UsageError):
                if await PrometheusApi(transport).label_names(MEMORY, grid):
                    return transport
            await transport.__aexit__()
        return await self._build_transport(endpoints[0]).__aenter__()

    def _build_transport(self, endpoint: Endpoint) -> UsageHttpClient:
        settings = self.settings
        connection, path = endpoint
        tenant = {"X-Scope-OrgID": settings.tenant} if settings.tenant else {}
        return UsageHttpClient(
            connection,
            path=path,
            only_get=bool(path),
            headers={**tenant, **settings.headers},
            timeout=settings.timeout,
            max_response_bytes=settings.bytes_an_answer,
        )


def _build_grid(query: UsageQuery) -> TimeGrid:
    return TimeGrid(query.start, query.step, query.steps)


def _extend_back(query: UsageQuery, window: LookbackWindow) -> UsageQuery:
    """Extend the query back so that a kill of an earlier read is recognized."""
    return replace(query, start=query.start - math.ceil(window.ooms / query.step) * query.step)


def _detect_ooms(
    seen: SampleColumns | None, query: UsageQuery, window: LookbackWindow
) -> tuple[Oom, ...] | None:
    if seen is None:
        return None
    start = _extend_back(query, window).start
    return detect_ooms(seen, start=start, step=query.step, window=window.ooms, since=query.start)


def _max_value(kind: MetricKind, inventory: SeriesInventory) -> float:
    return {
        "cpu": inventory.max_cores,
        "memory": inventory.max_bytes,
        "throttled": 1.0 + ROUNDING_TOLERANCE,
        "oom": MAX_OOMS,
    }[kind]


async def _query_part(
    server: PrometheusApi,
    question: MetricQuery,
    part: QueryShard,
    *,
    grid: TimeGrid,
    names: dict[PodContainer, PodContainer],
    into: SampleColumns,
) -> None:
    """Query one shard and add its samples after the whole response was validated."""
    part_grid = TimeGrid(grid.start + part.first * grid.step, grid.step, part.steps)

    def read(answer: list[MatrixSeries]) -> tuple[list[PodContainer], Indices, RowNumbers, Floats]:
        found = [_parse_container(series.metric, question.labels) for series in answer]
        return [names.setdefault(name, name) for name in found], *decode_samples(answer, part_grid)

    containers, which, rows, values = await server.query_range(
        question.build_promql(part.pods), part_grid, read
    )
    into.add_samples(containers, which, part.first + rows, values)


def _add_raw_rows(
    found: SeriesRows,
    question: MetricQuery,
    part: QueryShard,
    *,
    names: dict[PodContainer, PodContainer],
    into: SampleColumns,
) -> None:
    """Add raw samples after the whole response was validated."""
    containers = [_parse_container(labels, question.labels) for labels in found.labels]
    into.add_rows([names.setdefault(name, name) for name in containers], part.first, found.values)


def _parse_container(names: Mapping[str, str], labels: ContainerLabels) -> PodContainer:
    try:
        return PodContainer(
            intern(names[labels.namespace]), names[labels.pod], intern(names[labels.container])
        )
    except KeyError as missing:
        raise UsageResponseError(f"the response has a series without the label {missing}") from None


def _build_usage(
    columns: dict[MetricKind, SampleColumns], grid: TimeGrid, *, ooms: tuple[Oom, ...] | None
) -> Usage:
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

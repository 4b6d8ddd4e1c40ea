"""Read all kinds of values of one window into columns, in shards that the server can answer.

There are two ways to read a shard: a range query, and remote read, which costs a server far less over a long
window. Raw samples that a server does not provide are queried instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from trimtab.aio import task_group
from trimtab.usage.errors import SourceRefused, UsageError
from trimtab.usage.prometheus.client import PrometheusClient
from trimtab.usage.prometheus.columns import ContainerNames, SampleColumns
from trimtab.usage.prometheus.inventory import SeriesInventory
from trimtab.usage.prometheus.remote_read.sample_reader import (
    BYTES_PER_SAMPLE,
    RemoteSampleReader,
    has_raw_samples,
)
from trimtab.usage.prometheus.response import Indices, MatrixSeries, RowIndices, TimeGrid, decode_samples
from trimtab.usage.prometheus.schema import LookbackWindow, MetricKind, MetricQuery
from trimtab.usage.prometheus.settings import PrometheusSettings
from trimtab.usage.prometheus.sharding import QueryShard, split_into_shards
from trimtab.usage.source import Progress, UsageQuery
from trimtab.usage.trace import Floats
from trimtab.usage.usage import PodContainer

MIN_REMOTE_READ_STEPS = 32
"""The number of steps from which remote read costs a server less than a query."""
MAX_OOMS = 1e9
ROUNDING_TOLERANCE = 1e-6

Columns = dict[MetricKind, SampleColumns]


class SampleReader(Protocol):
    """A way to read the samples of a shard."""

    async def read(self, query: MetricQuery, shard: QueryShard, into: SampleColumns) -> None:
        """Add the samples of a shard, after its whole response was validated."""
        ...


@dataclass(frozen=True, slots=True)
class RangeSampleReader:
    """A `SampleReader` by range queries."""

    client: PrometheusClient
    grid: TimeGrid
    names: ContainerNames

    async def read(self, query: MetricQuery, shard: QueryShard, into: SampleColumns) -> None:
        """Add the samples of a shard."""
        grid = self.grid.slice(shard.first, shard.steps)

        def decode(series: list[MatrixSeries]) -> tuple[list[PodContainer], Indices, RowIndices, Floats]:
            containers = [self.names.parse(each.metric, query.labels) for each in series]
            return containers, *decode_samples(series, grid)

        promql = query.build_promql(shard.pods)
        containers, which, rows, values = await self.client.query_range(promql, grid, decode)
        into.add_samples(containers, which, shard.first + rows, values)


class ReadProgress:
    """The completed share of a read, by estimated samples."""

    def __init__(self, total: int, report: Progress | None) -> None:
        self._total, self._report = total, report
        self._done = 0

    def add(self, samples: int) -> None:
        """Report that so many more samples were read."""
        self._done += samples
        if self._report:
            self._report(min(1.0, self._done / self._total))


@dataclass(frozen=True, slots=True)
class WindowReader:
    """Reads one window of a server with this inventory."""

    client: PrometheusClient
    settings: PrometheusSettings
    inventory: SeriesInventory
    query: UsageQuery

    async def read(
        self, lookback: LookbackWindow, *, kinds: frozenset[MetricKind], progress: Progress | None = None
    ) -> Columns:
        """Read these kinds, as far as the server has them."""
        queries = [query for query in self.build_queries(lookback) if query.kind in kinds]
        columns = {query.kind: self._create_columns(query.kind, lookback) for query in queries}
        total = sum(map(self.inventory.estimate_samples, self.split(self.query))) * len(queries)
        reads = _MetricReads(self, lookback, columns, ContainerNames(), ReadProgress(total, progress))
        # All kinds run concurrently: while one waits for its last shards, another uses the free slots.
        async with task_group() as group:
            for query in queries:
                group.create_task(reads.read_metric(query))
        return columns

    def build_queries(self, lookback: LookbackWindow) -> list[MetricQuery]:
        """Return the queries of all kinds that the settings and the server allow."""
        wanted = {"throttled": self.settings.throttling, "oom": self.settings.ooms}
        queries = self.inventory.schema.build_queries(lookback)
        return [query for query in queries if wanted.get(query.kind, True)]

    def split(self, query: UsageQuery) -> list[QueryShard]:
        """Split a read into range queries."""
        return list(
            split_into_shards(
                self.inventory.series,
                steps=query.steps,
                points_a_series=self.settings.points_a_series,
                samples_a_query=self.settings.samples_a_query,
            )
        )

    def split_raw(self) -> list[QueryShard]:
        """Split the read so that the raw samples of a shard take at most half of the maximum response size."""
        samples_per_step = max(1.0, self.query.step / self.inventory.interval)
        max_samples = self.settings.bytes_an_answer / 2 / BYTES_PER_SAMPLE / samples_per_step
        return list(
            split_into_shards(
                self.inventory.series,
                steps=self.query.steps,
                points_a_series=self.query.steps,
                samples_a_query=max(1, int(max_samples)),
            )
        )

    def should_read_raw(self, kind: MetricKind) -> bool:
        """Return whether to try remote read for a kind."""
        return (
            self.query.steps >= MIN_REMOTE_READ_STEPS
            and has_raw_samples(kind, self.inventory.schema)
            and self.client.server.supports_remote_read
        )

    def query_for(self, kind: MetricKind, lookback: LookbackWindow) -> UsageQuery:
        """Return the steps to read; those of OOM kills begin earlier."""
        return extend_back(self.query, lookback) if kind == "oom" else self.query

    def _create_columns(self, kind: MetricKind, lookback: LookbackWindow) -> SampleColumns:
        maximum = {
            "cpu": self.inventory.max_cores,
            "memory": self.inventory.max_bytes,
            "throttled": 1.0 + ROUNDING_TOLERANCE,
            "oom": MAX_OOMS,
        }
        return SampleColumns(
            self.query_for(kind, lookback).steps,
            maximum=maximum[kind],
            expected=0 if kind == "oom" else sum(self.inventory.series.values()),
        )


@dataclass(frozen=True, slots=True)
class _MetricReads:
    """The concurrent reads of one window."""

    window: WindowReader
    lookback: LookbackWindow
    columns: Columns
    names: ContainerNames
    progress: ReadProgress

    async def read_metric(self, query: MetricQuery) -> None:
        """Read one kind, by remote read if the server has it."""
        window, client = self.window, self.window.client
        once = client.with_retries(0)  # `run_all` retries
        if window.should_read_raw(query.kind):
            raw = RemoteSampleReader(
                once, window.inventory.schema, self.lookback, build_grid(window.query), self.names
            )
            try:
                await client.with_retries(1).run_all(
                    window.split_raw(), partial(self._read_shard, raw, query)
                )
            except SourceRefused:
                client.server.refuse_remote_read()
            except UsageError:
                pass  # the server may still answer queries
            else:
                return
        steps = window.query_for(query.kind, self.lookback)
        ranged = RangeSampleReader(once, build_grid(steps), self.names)
        await client.run_all(window.split(steps), partial(self._read_shard, ranged, query))

    async def _read_shard(self, reader: SampleReader, query: MetricQuery, shard: QueryShard) -> None:
        await reader.read(query, shard, self.columns[query.kind])
        self.progress.add(self.window.inventory.estimate_samples(shard))


def build_grid(query: UsageQuery) -> TimeGrid:
    return TimeGrid(query.start, query.step, query.steps)


def extend_back(query: UsageQuery, lookback: LookbackWindow) -> UsageQuery:
    """Extend the query back so that a kill of an earlier read is recognized."""
    return replace(query, start=query.start - math.ceil(lookback.ooms / query.step) * query.step)

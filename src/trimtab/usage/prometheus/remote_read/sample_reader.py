"""Read the raw samples of shards by remote read, with the same result as the corresponding query.

As in `schema`, the highest of several series of a container counts, and series that differ only in their CPU
are added up first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trimtab.usage.errors import UsageResponseError
from trimtab.usage.prometheus.client import PrometheusClient
from trimtab.usage.prometheus.columns import ContainerNames, SampleColumns
from trimtab.usage.prometheus.remote_read.chunks import PADDING_BYTES
from trimtab.usage.prometheus.remote_read.protocol import (
    HEADERS,
    STREAMED_CONTENT_TYPE,
    decode_response,
    encode_request,
)
from trimtab.usage.prometheus.remote_read.range_functions import evaluate_windows
from trimtab.usage.prometheus.response import TimeGrid
from trimtab.usage.prometheus.schema import (
    CPU,
    MEMORY,
    PERIODS,
    THROTTLED,
    ContainerLabels,
    LookbackWindow,
    MetricKind,
    MetricQuery,
    MetricSchema,
)
from trimtab.usage.prometheus.sharding import QueryShard
from trimtab.usage.trace import Floats

BYTES_PER_SAMPLE = 10
"""The approximate maximum size of a sample; float counters compress badly."""

SeriesLabels = Mapping[str, str]
SeriesKey = tuple[tuple[str, str], ...]


class SeriesRows(NamedTuple):
    """The labels of each container's series and its value at every step; NaN without one."""

    labels: Sequence[SeriesLabels]
    values: Floats


def has_raw_samples(kind: MetricKind, schema: MetricSchema) -> bool:
    """Return whether raw samples provide this kind; recording rules and OOM kills need queries."""
    if kind == "memory":
        return schema.memory_rule is None
    return kind == "throttled" or (kind == "cpu" and schema.cpu_rule is None)


@dataclass(frozen=True, slots=True)
class RemoteSampleReader:
    """A `SampleReader` by remote read."""

    client: PrometheusClient
    schema: MetricSchema
    window: LookbackWindow
    grid: TimeGrid
    names: ContainerNames

    async def read(self, query: MetricQuery, shard: QueryShard, into: SampleColumns) -> None:
        """Add the samples of a shard."""
        found = await self._read_rows(query.kind, query.labels, shard)
        containers = [self.names.parse(labels, query.labels) for labels in found.labels]
        into.add_rows(containers, shard.first, found.values)

    async def _read_rows(self, kind: MetricKind, labels: ContainerLabels, shard: QueryShard) -> SeriesRows:
        if kind == "memory":
            return await self._read_windows(MEMORY, labels, shard, self.window.gauge)
        rate = self.window.rate
        if kind == "cpu":
            return await self._read_windows(CPU, labels, shard, rate, counter=True)
        throttled = await self._read_windows(THROTTLED, labels, shard, rate, counter=True)
        return _divide(throttled, await self._read_windows(PERIODS, labels, shard, rate, counter=True))

    async def _read_windows(
        self, metric: str, names: ContainerLabels, shard: QueryShard, width: float, *, counter: bool = False
    ) -> SeriesRows:
        grid = self.grid.slice(shard.first, shard.steps)
        matchers = self.schema.build_matchers(names, shard.pods)
        request = encode_request(metric, matchers, start=grid.start - width, end=grid.end)

        def read(body: bytes) -> SeriesRows:
            labels, chunks = decode_response(body)
            values = np.empty((len(labels), grid.steps))
            if not evaluate_windows(
                chunks,
                _to_milliseconds(grid.start),
                _to_milliseconds(grid.step),
                _to_milliseconds(width),
                counter,
                values,
            ):
                raise UsageResponseError("the response has a damaged chunk of samples")
            return _sum_over_cpus(SeriesRows(labels, values))

        return await self.client.post_read(
            request, grid, read, headers=HEADERS, content_type=STREAMED_CONTENT_TYPE, padding=PADDING_BYTES
        )


def _sum_over_cpus(rows: SeriesRows) -> SeriesRows:
    """Add up the series of the CPUs; an old kubelet has one per CPU instead of a total."""
    if not any("cpu" in labels for labels in rows.labels):
        return rows
    whole: dict[SeriesKey, Floats] = {}
    for labels, row in zip(rows.labels, rows.values, strict=True):
        rest = tuple(sorted(item for item in labels.items() if item[0] != "cpu"))
        before = whole.get(rest)
        whole[rest] = row if before is None else _add_rates(before, row)
    return SeriesRows([dict(key) for key in whole], np.array(list(whole.values())))


def _add_rates(one: Floats, other: Floats) -> Floats:
    """Add two rates; a CPU without a rate adds nothing, as in PromQL."""
    both: Floats = np.where(np.isnan(one), other, np.where(np.isnan(other), one, one + other))
    return both


def _divide(part: SeriesRows, whole: SeriesRows) -> SeriesRows:
    """Divide one counter by another of the same container; a container with only one has no share."""
    place = {_series_key(labels): number for number, labels in enumerate(whole.labels)}
    both = [number for number, labels in enumerate(part.labels) if _series_key(labels) in place]
    over = whole.values[[place[_series_key(part.labels[number])] for number in both]]
    share = np.divide(part.values[both], over, out=np.full_like(over, np.nan), where=over > 0)
    return SeriesRows([part.labels[number] for number in both], share)


def _to_milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _series_key(labels: SeriesLabels) -> SeriesKey:
    """Return all labels but the metric name, which two counters of one container share."""
    return tuple(sorted(item for item in labels.items() if item[0] != "__name__"))

"""The client of a server with the Prometheus query API: instant and range queries, labels, raw samples.

It is used for everything that is asked of a server: usage, the KPIs of Intents and guardrails. The server is found
at the first request; requests are limited, retried and split by `query_scheduler`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Self, TypeVar

from trimtab.kube.rest.client import Client
from trimtab.timing import Backoff
from trimtab.usage.cloud_identity import build_identity
from trimtab.usage.errors import UsageError
from trimtab.usage.http_client import UsageHttpClient
from trimtab.usage.prometheus.endpoint import Endpoint, find_endpoints
from trimtab.usage.prometheus.query_scheduler import P, PartQuery, QueryScheduler
from trimtab.usage.prometheus.response import (
    MatrixSeries,
    TimeGrid,
    decode_matrix,
    decode_strings,
    first_sample,
)
from trimtab.usage.prometheus.schema import MEMORY
from trimtab.usage.prometheus.settings import PrometheusSettings

T = TypeVar("T")

MAX_PROMQL_BYTES = 1 << 20
"""The largest response to a query of KPIs or guardrails, which are one number each; users write them."""
Errors = tuple[type[UsageError], ...]

_STRICT_OPTIONS = {"dedup": "true", "partial_response": "false", "nocache": "1"}
"""Query options that demand complete responses; servers ignore those they do not know.

Thanos returns an error instead of a partial response, and VictoriaMetrics evaluates at the exact times.
"""


class ServerConnection:
    """The connection to one server, which is found and opened at the first request."""

    def __init__(self, settings: PrometheusSettings, cluster: Client | None) -> None:
        self._settings = settings
        self._cluster = cluster
        self._http: UsageHttpClient | None = None
        self._lock = asyncio.Lock()
        self._remote_read_refused = False

    @property
    def address(self) -> str:
        """The address of the server; empty before the first request."""
        return self._http.address if self._http else ""

    @property
    def supports_remote_read(self) -> bool:
        """True if raw samples can be requested; false before the first request."""
        wanted = self._settings.raw_samples and not self._remote_read_refused
        return wanted and self._http is not None and self._http.can_post

    def refuse_remote_read(self) -> None:
        """Record that the server has no remote read."""
        self._remote_read_refused = True

    async def open(self, grid: TimeGrid) -> UsageHttpClient:
        """Return the server's HTTP client; of several servers choose by their data for these times."""
        async with self._lock:
            if self._http is None:
                self._http = await self._choose(await find_endpoints(self._settings, self._cluster), grid)
            return self._http

    async def close(self) -> None:
        if self._http is not None:
            await self._http.__aexit__()
            self._http = None

    async def _choose(self, endpoints: list[Endpoint], grid: TimeGrid) -> UsageHttpClient:
        """Return the first endpoint with container metrics; if none has any, the first one."""
        # One of several servers may scrape only itself. A single server is not asked, so that its error is the one
        # reported.
        for endpoint in endpoints if len(endpoints) > 1 else ():
            http = await self._build_http(endpoint).__aenter__()
            with suppress(UsageError):
                if await _fetch_label_names(http, MEMORY, grid):
                    return http
            await http.__aexit__()
        return await self._build_http(endpoints[0]).__aenter__()

    def _build_http(self, endpoint: Endpoint) -> UsageHttpClient:
        settings = self._settings
        connection, path = endpoint
        tenant = {"X-Scope-OrgID": settings.tenant} if settings.tenant else {}
        return UsageHttpClient(
            connection,
            path=path,
            only_get=bool(path),
            headers={**tenant, **settings.headers},
            timeout=settings.timeout,
            max_response_bytes=settings.bytes_an_answer,
            identity=build_identity(settings.cloud_identity, region=settings.aws_region)
            if settings.cloud_identity
            else None,
        )


@dataclass(frozen=True, slots=True)
class PrometheusClient:
    """A client of one server, used as an async context manager."""

    server: ServerConnection
    scheduler: QueryScheduler
    max_bytes: int | None = None
    """The largest response to a query in bytes; None for the limit of the server's settings."""

    @classmethod
    def from_settings(
        cls,
        settings: PrometheusSettings,
        *,
        cluster: Client | None = None,
        backoff: Backoff | None = None,
    ) -> Self:
        """Create a client; `cluster` is the client of the cluster in which a server without a URL is found."""
        scheduler = QueryScheduler(
            slots=asyncio.Semaphore(settings.concurrency),
            retries=settings.retries,
            backoff=backoff or Backoff(first=0.5),
            rng=random.Random(),  # noqa: S311 - jitter
        )
        return cls(ServerConnection(settings, cluster), scheduler)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.server.close()

    def with_retries(self, retries: int) -> PrometheusClient:
        """Return the same client with at most so many retries, for queries that have a fallback."""
        return replace(self, scheduler=replace(self.scheduler, retries=min(retries, self.scheduler.retries)))

    def with_max_bytes(self, size: int) -> PrometheusClient:
        """Return the same client with smaller responses, for queries that users write."""
        return replace(self, max_bytes=size)

    async def vector(self, promql: str, *, at: float) -> list[tuple[dict[str, str], float]]:
        """Return the labels and value of each series that a query returns at a time."""

        def read(found: list[MatrixSeries]) -> list[tuple[dict[str, str], float]]:
            return [(series.metric, value) for series in found if (value := first_sample(series)) is not None]

        return await self.query_range(promql, TimeGrid(at, 1.0, 1), read)

    async def query_range(
        self,
        promql: str,
        grid: TimeGrid,
        read: Callable[[list[MatrixSeries]], T],
        *,
        no_retry_on: Errors = (),
    ) -> T:
        """Send a range query and return what `read` makes of its series at the grid's times."""
        times = {"start": f"{grid.start:.3f}", "end": f"{grid.end:.3f}", "step": f"{grid.step:.3f}"}
        form = {"query": promql, **times, **_STRICT_OPTIONS}
        return await self._send(
            grid,
            lambda http: http.post_form(
                "/api/v1/query_range", form, lambda body: read(decode_matrix(body)), max_bytes=self.max_bytes
            ),
            no_retry_on=no_retry_on,
        )

    async def label_names(self, match: str, grid: TimeGrid) -> list[str]:
        """Return the label names of the matching series at about these times."""
        return await self._send(grid, lambda http: _fetch_label_names(http, match, grid))

    async def label_values(self, label: str, match: str, grid: TimeGrid) -> list[str]:
        """Return the values of one label."""
        query = {"match[]": match, **_format_time_range(grid)}
        return await self._send(
            grid, lambda http: http.get(f"/api/v1/label/{label}/values", query, decode_strings)
        )

    async def post_read(
        self,
        request: bytes,
        grid: TimeGrid,
        read: Callable[[bytes], T],
        *,
        headers: Mapping[str, str],
        content_type: str,
        padding: int,
    ) -> T:
        """Send a remote read request and return what `read` makes of the response and so many zeros after it."""
        return await self._send(
            grid,
            lambda http: http.post_body(
                "/api/v1/read", request, headers, read, expected=content_type, padding=padding
            ),
        )

    async def run_all(self, parts: Iterable[P], query: PartQuery[P]) -> None:
        """Run a query for all parts, whole or in halves; its requests should not be retried as well."""
        await self.scheduler.run_all(parts, query)

    async def _send(
        self, grid: TimeGrid, send: Callable[[UsageHttpClient], Awaitable[T]], *, no_retry_on: Errors = ()
    ) -> T:
        http = await self.server.open(grid)
        return await self.scheduler.run_query(lambda: send(http), no_retry_on=no_retry_on)


async def _fetch_label_names(http: UsageHttpClient, match: str, grid: TimeGrid) -> list[str]:
    return await http.post_form(
        "/api/v1/labels", {"match[]": match, **_format_time_range(grid)}, decode_strings
    )


def _format_time_range(grid: TimeGrid) -> dict[str, str]:
    return {"start": f"{grid.start:.3f}", "end": f"{grid.end:.3f}", "partial_response": "false"}

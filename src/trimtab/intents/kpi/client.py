"""Measure the KPIs of many Intents at once, on the PromQL servers that their profiles name.

Many queries make one request, and a label separates their results. A failing query would fail all others of its
batch, so a failing batch is halved until that query is alone; it is then sent alone until it succeeds. A query
without exactly one fresh number is unknown, with a reason.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import structlog
from yarl import URL

from trimtab.errors import TrimtabError
from trimtab.intents.kpi.endpoints import check_endpoint
from trimtab.intents.kpi.measurement import KpiReading, unknown_reading
from trimtab.intents.kpi.query import OPERATOR_SERVER, KpiQuery
from trimtab.timing import Backoff, LogOnce
from trimtab.usage.errors import QueryTooLarge, SourceTimeout, SourceUnavailable, UsageError
from trimtab.usage.prometheus.client import MAX_PROMQL_BYTES, PrometheusClient
from trimtab.usage.prometheus.query_scheduler import QueryPart, QueryScheduler
from trimtab.usage.source import SOURCES, PromqlClient, Vector

log = structlog.get_logger(__name__)

LABEL = "trimtab_kpi"
MAX_SERVERS = 64
"""The most servers that profiles may name at a time."""
MAX_CONCURRENT_REQUESTS = 100
"""The most requests to one server at a time."""
MAX_CONCURRENT_OF_NAMESPACE = 8
"""The most requests for one namespace to one server at a time, so that slow queries do not delay those of others."""
PATIENCE = 2.0
"""The seconds that a cycle waits for queries; slower ones run on until their timeout, and a later cycle reads them."""
LATE_PATIENCE = 0.2
"""The seconds that it waits for namespaces whose queries were slow, or are new."""
LATE_CYCLES = 20
"""The cycles without a slow query after which a namespace is no longer late."""
MAX_QUERIES = 50
"""The most queries in a request."""
MAX_QUERY_LENGTH = 16_000
"""The most characters in a request."""


_DEFECT = "the query failed; see intent.server_failed in the operator's log"

CheckEndpoint = Callable[[str, int], Awaitable[None]]


class KpiClient(Protocol):
    """The port of the Intent controller to the servers that measure KPIs."""

    async def measure(self, queries: Iterable[KpiQuery], *, at: float) -> Mapping[KpiQuery, KpiReading]:
        """Return the reading of each query at this time; a failure is an unknown reading and never raised."""
        ...


class PromqlKpiClient:
    """Measures KPIs by PromQL: on the operator's own server, and on those that profiles name.

    A profile's server is queried without credentials, because ours are for our own server only. What a server says is
    logged and not returned, because readings are shown to users: an error names series of others, and any program may
    answer. The async context manager closes all servers.
    """

    def __init__(
        self,
        operator_client: PromqlClient | None,
        *,
        max_age: float,
        timeout: float,
        check: CheckEndpoint = check_endpoint,
    ) -> None:
        """Take the client of the operator's own server; `check` raises TrimtabError for an address not to query."""
        self._max_age, self._timeout, self._check = max_age, timeout, check
        self._servers: dict[str, _KpiServer] = (
            {OPERATOR_SERVER: self._create_server(operator_client)} if operator_client else {}
        )
        self._open_stacks: dict[str, AsyncExitStack] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers.values():
            server.cancel()
        await self._close_servers(list(self._open_stacks))

    async def measure(self, queries: Iterable[KpiQuery], *, at: float) -> dict[KpiQuery, KpiReading]:
        """Query all servers at once, and close those that are no longer used; equal queries are sent once."""
        by_server: dict[str, list[KpiQuery]] = {}
        for query in dict.fromkeys(queries):
            by_server.setdefault(query.server, []).append(query)
        # Users name servers in profiles: kept open, connections of deleted profiles would add up and use up
        # MAX_SERVERS.
        await self._close_servers([server for server in self._open_stacks if server not in by_server])
        found: dict[KpiQuery, KpiReading] = {}
        for readings in await asyncio.gather(
            *(self._measure_on_server(server, each, at) for server, each in by_server.items())
        ):
            found |= readings
        return found

    async def _measure_on_server(
        self, server: str, queries: Sequence[KpiQuery], at: float
    ) -> dict[KpiQuery, KpiReading]:
        try:
            opened = self._servers.get(server) or await self._open_server(server)
            return await opened.measure(queries, at=at)
        except TrimtabError as error:
            return dict.fromkeys(queries, unknown_reading(str(error)))
        except Exception:  # anyone may name a server, and none may block the others
            log.exception("intent.server_failed", server=server)
            return dict.fromkeys(queries, unknown_reading(_DEFECT))

    async def _open_server(self, server: str) -> _KpiServer:
        if server == OPERATOR_SERVER:
            raise TrimtabError(
                "the operator has no Prometheus; set metricsSource, or props.endpoint of the KPIProfile"
            )
        if server not in self._open_stacks and len(self._open_stacks) >= MAX_SERVERS:
            raise TrimtabError(f"KPIProfiles name more than {MAX_SERVERS} servers")
        # Reserve the slot before the first await, because other servers are opened meanwhile.
        stack = self._open_stacks[server] = AsyncExitStack()
        # Only the address comes from users: with credentials of the operator, a profile could send them to any
        # server.
        settings = SOURCES.parse_settings(
            "prometheus", {"url": server, "retries": 0, "bytes_an_answer": MAX_PROMQL_BYTES}
        )
        client = await stack.enter_async_context(PrometheusClient.from_settings(settings))
        url = URL(server)
        await self._check(url.host or "", url.port or 0)
        self._servers[server] = self._create_server(client)
        return self._servers[server]

    async def _close_servers(self, servers: Iterable[str]) -> None:
        for server in servers:
            if opened := self._servers.pop(server, None):
                opened.cancel()
            await self._open_stacks.pop(server).aclose()

    def _create_server(self, client: PromqlClient) -> _KpiServer:
        return _KpiServer(client, max_age=self._max_age, timeout=self._timeout)


@dataclass(frozen=True, slots=True)
class _KpiBatch(QueryPart):
    """The queries of one request."""

    queries: tuple[KpiQuery, ...]

    def split(self) -> tuple[_KpiBatch, ...]:
        middle = len(self.queries) // 2
        if not middle:
            return ()
        return replace(self, queries=self.queries[:middle]), replace(self, queries=self.queries[middle:])


class _KpiServer:
    """The requests to one server; it remembers the failing queries."""

    def __init__(self, client: PromqlClient, *, max_age: float, timeout: float) -> None:
        self._client = client
        self._max_age = max_age
        self._timeout = timeout
        self._failing: set[KpiQuery] = set()
        self._errors = LogOnce()
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_REQUESTS)
        self._running: dict[str, asyncio.Task[dict[KpiQuery, KpiReading]]] = {}
        """The measurements under way, by namespace."""
        self._quick: dict[str, int] = {}
        """The cycles since a namespace's last slow query."""

    async def measure(self, queries: Sequence[KpiQuery], *, at: float) -> dict[KpiQuery, KpiReading]:
        """Return the reading of each query at this time; namespaces with slow queries delay no others."""
        # Queries of deleted Intents must not be remembered for ever.
        self._failing.intersection_update(queries)
        self._errors.clear_all_but(queries)
        by_namespace: dict[str, list[KpiQuery]] = {}
        for query in queries:
            by_namespace.setdefault(query.namespace, []).append(query)
        self._quick = {name: cycles for name, cycles in self._quick.items() if name in by_namespace}
        for name in self._running.keys() - by_namespace.keys():
            self._running.pop(name).cancel()
        for name, own in by_namespace.items():
            # A namespace that nobody knows yet may be slow: it has to be quick once.
            self._quick.setdefault(name, LATE_CYCLES - 1)
            if name not in self._running:
                self._running[name] = asyncio.create_task(self._measure_isolated(name, own, at))
        started = dict(self._running)
        late = {task for name, task in started.items() if self._quick[name] < LATE_CYCLES}
        try:
            await self._wait_for(set(started.values()) - late, min(PATIENCE, self._timeout))
            await self._wait_for(late, min(LATE_PATIENCE, self._timeout))
        except asyncio.CancelledError:
            self.cancel()
            raise
        readings = dict.fromkeys(queries, unknown_reading(_describe_for_users(SourceTimeout(""))))
        for name, task in started.items():
            if task.done():
                del self._running[name]
                readings |= {query: found for query, found in task.result().items() if query in readings}
                self._quick[name] += 1
            else:
                self._quick[name] = 0
        return readings

    @staticmethod
    async def _wait_for(tasks: set[asyncio.Task[Any]], seconds: float) -> None:
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    def cancel(self) -> None:
        """End what still runs."""
        for task in self._running.values():
            task.cancel()
        self._running.clear()

    async def _measure_isolated(
        self, namespace: str, queries: Sequence[KpiQuery], at: float
    ) -> dict[KpiQuery, KpiReading]:
        """Read the queries of one namespace; a defect that one of them shows affects no other namespace."""
        try:
            return await self._measure_namespace(queries, at)
        except Exception:
            log.exception("intent.server_failed", namespace=namespace)
            return dict.fromkeys(queries, unknown_reading(_DEFECT))

    async def _measure_namespace(self, queries: Sequence[KpiQuery], at: float) -> dict[KpiQuery, KpiReading]:
        """Read the queries of one namespace; those that failed before are sent alone."""
        # A query that failed spoils the batch of all others, so it is sent alone until it works.
        alone = [_KpiBatch((each,)) for each in queries if each.is_scalar or each in self._failing]
        together = [each for each in queries if not (each.is_scalar or each in self._failing)]
        readings: dict[KpiQuery, KpiReading] = {}

        async def read(batch: _KpiBatch) -> None:
            async with self._slots:
                readings.update(await self._read_batch(batch.queries, at))

        def report(batch: _KpiBatch, error: UsageError) -> None:
            # An unreachable server says nothing about a query: sent alone from then on, all of them would slow
            # the recovering server down.
            if isinstance(error, SourceTimeout) or not isinstance(error, SourceUnavailable):
                self._failing.update(batch.queries)
            for query in batch.queries:
                if self._errors.is_new(str(error), about=query):
                    log.warning(
                        "intent.query_failed",
                        namespace=query.namespace,
                        quantity=query.quantity,
                        server=query.server,
                        error=str(error),
                    )
            readings.update(dict.fromkeys(batch.queries, unknown_reading(_describe_for_users(error))))

        scheduler = QueryScheduler(
            slots=asyncio.Semaphore(MAX_CONCURRENT_OF_NAMESPACE),
            retries=0,  # the client retries within the timeout, and the next cycle comes soon
            backoff=Backoff(),
            rng=random.Random(),  # noqa: S311 - jitter
        )
        await scheduler.run_all((*_build_batches(together), *alone), read, report=report)
        return readings

    async def _read_batch(self, batch: Sequence[KpiQuery], at: float) -> dict[KpiQuery, KpiReading]:
        try:
            async with asyncio.timeout(self._timeout):
                answer = await self._client.vector(_combine_queries(batch), at=at)
        except TimeoutError:
            raise SourceTimeout(f"no answer within {self._timeout:g} s") from None
        self._failing.difference_update(batch)
        return {query: self._parse_reading(number, answer) for number, query in enumerate(batch)}

    def _parse_reading(self, number: int, answer: Vector) -> KpiReading:
        def find_values(label: str) -> list[float]:
            return [value for labels, value in answer if labels.get(LABEL, "0") == label]

        values, ages = find_values(str(number)), find_values(f"{number} age")
        if not values:
            return unknown_reading(
                "the query returns nothing: its series do not exist or have no recent samples"
            )
        if len(values) > 1:
            return unknown_reading(
                f"the query returns {len(values)} values; aggregate it, such as with sum or max"
            )
        # Without an age, a range in the query bounds it, or the query was sent alone.
        # Written this way, so that an age of NaN counts as too old.
        if ages and not max(ages) <= self._max_age:
            return unknown_reading(f"the newest sample is {max(ages):.0f} s old")
        return KpiReading.from_value(values[0])


def _describe_for_users(error: UsageError) -> str:
    """Describe an error without the words of the server."""
    match error:
        case SourceTimeout():
            return "the server did not answer in time"
        case SourceUnavailable():
            return "the server cannot be reached or is overloaded"
        case QueryTooLarge():
            return "the query reads or returns too much; shorten its range or aggregate it"
    return "the server rejected the query; try it in Prometheus, or see intent.query_failed in the operator's log"


def _build_batches(queries: Sequence[KpiQuery]) -> Iterator[_KpiBatch]:
    batch: list[KpiQuery] = []
    length = 0
    for query in queries:
        if batch and (len(batch) == MAX_QUERIES or length + len(query.promql) > MAX_QUERY_LENGTH):
            yield _KpiBatch(tuple(batch))
            batch, length = [], 0
        batch.append(query)
        length += len(query.promql)
    if batch:
        yield _KpiBatch(tuple(batch))


def _combine_queries(batch: Sequence[KpiQuery]) -> str:
    """Combine all queries into one."""
    if len(batch) == 1 and batch[0].is_scalar:
        return batch[0].promql
    parts = []
    for number, query in enumerate(batch):
        parts.append(_label_query(query.promql, str(number)))
        if query.instant_selectors:
            # Take the newest sample of each selector and the oldest of those: one stale selector makes the result
            # stale.
            ages = " or ".join(
                _label_query(f"time() - max(timestamp({selector}))", str(place))
                for place, selector in enumerate(query.instant_selectors)
            )
            parts.append(_label_query(f"max({ages})", f"{number} age"))
    return " or ".join(parts)


def _label_query(promql: str, mark: str) -> str:
    # The query is on lines of its own because it may end in a comment.
    return f'label_replace(\n{promql}\n, "{LABEL}", "{mark}", "", "")'

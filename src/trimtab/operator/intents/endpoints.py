"""The PromQL servers for KPIs: the operator's own, and those that profiles name.

A profile's server is queried without credentials, because ours are for our own server only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Self

import structlog

from trimtab.errors import TrimtabError
from trimtab.intents.kpi.client import KpiClient
from trimtab.intents.kpi.measurement import KpiReading, unknown_reading
from trimtab.intents.kpi.query import KpiQuery
from trimtab.kube.errors import describe
from trimtab.usage.source import PromqlClient, source

log = structlog.get_logger(__name__)

OPERATOR_SERVER = ""
MAX_SERVERS = 64
"""The most servers that profiles may name at a time."""


class KpiEndpoints:
    """The clients of all servers. The async context manager closes them."""

    def __init__(self, operator_client: PromqlClient | None, *, max_age: float, timeout: float) -> None:
        self._max_age, self._timeout = max_age, timeout
        self._clients: dict[str, KpiClient] = (
            {OPERATOR_SERVER: self._create_client(operator_client)} if operator_client else {}
        )
        self._open_stacks: dict[str, AsyncExitStack] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close_servers(list(self._open_stacks))

    async def read_kpis(
        self, asked: Mapping[str, Iterable[KpiQuery]], *, at: float
    ) -> dict[tuple[str, KpiQuery], KpiReading]:
        """Read all queries from their servers; close servers that are no longer used."""
        await self._close_servers([server for server in self._open_stacks if server not in asked])
        servers = list(asked)
        answers = await asyncio.gather(*(self._query_server(server, asked[server], at) for server in servers))
        return {
            (server, query): reading
            for server, answer in zip(servers, answers, strict=True)
            for query, reading in answer.items()
        }

    async def _query_server(
        self, server: str, queries: Iterable[KpiQuery], at: float
    ) -> dict[KpiQuery, KpiReading]:
        try:
            client = self._clients.get(server) or await self._open_client(server)
            return await client.read_kpis(queries, at=at)
        except TrimtabError as error:
            return dict.fromkeys(queries, unknown_reading(str(error)))
        except Exception as error:  # anyone may name a server, and none may block the others
            log.exception("intent.server_failed", server=server)
            return dict.fromkeys(queries, unknown_reading(f"{server} cannot be asked: {describe(error)}"))

    async def _open_client(self, server: str) -> KpiClient:
        if server == OPERATOR_SERVER:
            raise TrimtabError(
                "the operator has no Prometheus; see metricsSource, or name one in the profile"
            )
        if server not in self._open_stacks and len(self._open_stacks) >= MAX_SERVERS:
            raise TrimtabError(f"profiles name more than {MAX_SERVERS} servers")
        # Reserve the slot before the first await, because other servers are opened meanwhile.
        stack = self._open_stacks[server] = AsyncExitStack()
        found = await stack.enter_async_context(source("prometheus", url=server, retries=0))
        assert found.promql
        self._clients[server] = self._create_client(found.promql)
        return self._clients[server]

    async def _close_servers(self, servers: Iterable[str]) -> None:
        for server in servers:
            self._clients.pop(server, None)
            await self._open_stacks.pop(server).aclose()

    def _create_client(self, client: PromqlClient) -> KpiClient:
        return KpiClient(client, max_age=self._max_age, timeout=self._timeout)

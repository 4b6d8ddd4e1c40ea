"""The PromQL servers that KPIs are asked of: the operator's own, and those that profiles name.

A profile's server is asked as nobody in particular: our credentials are for our own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Self

import structlog

from trimtab.errors import TrimtabError
from trimtab.intents.kpi.client import Asking, Teller
from trimtab.intents.kpi.measurement import Reading, unknown
from trimtab.intents.kpi.query import Question
from trimtab.kube.errors import describe
from trimtab.usage.prometheus.source import Prometheus
from trimtab.usage.source import source

log = structlog.get_logger(__name__)

OWN = ""
MOST = 64
"""Servers that profiles may name at a time."""


class Endpoints:
    """Used as an async context manager, which closes what was opened meanwhile."""

    def __init__(self, own: Teller | None, *, stale: float, patience: float) -> None:
        self._stale, self._patience = stale, patience
        self._asking: dict[str, Asking] = {OWN: self._of(own)} if own else {}
        self._opened: dict[str, AsyncExitStack] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._leave(list(self._opened))

    async def readings(
        self, asked: Mapping[str, Iterable[Question]], *, at: float
    ) -> dict[tuple[str, Question], Reading]:
        """What each server knows of each question; one that is not asked any more makes room for another."""
        await self._leave([server for server in self._opened if server not in asked])
        servers = list(asked)
        answers = await asyncio.gather(*(self._ask(server, asked[server], at) for server in servers))
        return {
            (server, question): reading
            for server, answer in zip(servers, answers, strict=True)
            for question, reading in answer.items()
        }

    async def _ask(self, server: str, questions: Iterable[Question], at: float) -> dict[Question, Reading]:
        try:
            asking = self._asking.get(server) or await self._open(server)
            return await asking.readings(questions, at=at)
        except TrimtabError as error:
            return dict.fromkeys(questions, unknown(str(error)))
        except Exception as error:  # anybody may name a server, and none may keep the others from being asked
            log.exception("intent.server_failed", server=server)
            return dict.fromkeys(questions, unknown(f"{server} cannot be asked: {describe(error)}"))

    async def _open(self, server: str) -> Asking:
        if server == OWN:
            raise TrimtabError(
                "the operator has no Prometheus; see metricsSource, or name one in the profile"
            )
        if server not in self._opened and len(self._opened) >= MOST:
            raise TrimtabError(f"profiles name more than {MOST} servers")
        # Its place is taken before anything is waited for: others are opened meanwhile.
        stack = self._opened[server] = AsyncExitStack()
        found = await stack.enter_async_context(source("prometheus", url=server, retries=0))
        assert isinstance(found, Prometheus)
        self._asking[server] = self._of(found)
        return self._asking[server]

    async def _leave(self, servers: Iterable[str]) -> None:
        for server in servers:
            self._asking.pop(server, None)
            await self._opened.pop(server).aclose()

    def _of(self, teller: Teller) -> Asking:
        return Asking(teller, stale=self._stale, patience=self._patience)

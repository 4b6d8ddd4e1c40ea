"""Which source of usage a survey reads: the one that was named, or the best that the cluster offers; and that it is said.

History beats the present: whatever speaks PromQL is taken first, and metrics-server alone gives a first answer, from
a single look. A source that the user named is never silently replaced by another.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from trimtab.errors import TrimtabError
from trimtab.kube.client import Client
from trimtab.kube.errors import Forbidden
from trimtab.usage.discovery import find_promql_servers, has_metrics_server
from trimtab.usage.source import Health, Source, source

AUTO, PROMETHEUS, METRICS_SERVER = "auto", "prometheus", "metrics-server"


@dataclass(frozen=True, slots=True)
class Found:
    """A source that answers, and what people are told of it."""

    source: Source[Any]
    described: str
    has_past: bool
    """Whether it knows more than this moment."""


@asynccontextmanager
async def open_source(
    client: Client, *, name: str = AUTO, settings: Mapping[str, Any] | None = None
) -> AsyncIterator[Found]:
    """The source of this name; for `auto`, the best that there is."""
    given = dict(settings or {})
    why = ""
    if name == AUTO and not given:
        try:
            name = PROMETHEUS if await find_promql_servers(client) else METRICS_SERVER
        except Forbidden:
            name, why = METRICS_SERVER, "Services may not be listed to find a Prometheus"
        if name == METRICS_SERVER and not await has_metrics_server(client):
            raise TrimtabError(
                f"{client.connection.context}: no usage to read: {why or 'no Prometheus found'}, and no "
                "metrics-server; give the address of a Prometheus with --prometheus"
            )
    name = PROMETHEUS if name == AUTO else name
    async with source(name, client=client, **given) as opened:
        health = await opened.check()
        if not health.ok:
            raise TrimtabError(_refusal(name, given, health))
        # Of sources that sample, only what they see while we look is there: they were not open before.
        yield Found(opened, _described(name, health), has_past=name == PROMETHEUS)


def _refusal(name: str, given: Mapping[str, Any], health: Health) -> str:
    where = f"{name} {given['url']}" if "url" in given else name
    return f"{where}: {health.detail}" + (f"; {health.advice}" if health.advice else "")


def _described(name: str, health: Health) -> str:
    """What was found, in a few words."""
    if name == METRICS_SERVER:
        return "metrics-server alone: one look at the present, low confidence"
    detail = health.detail.partition("; ")[0]
    return f"{name.capitalize()} at {detail}" if name == PROMETHEUS else f"{name}: {detail}"

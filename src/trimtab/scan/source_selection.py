"""Which source of usage a survey reads: the one that was named, or the best that the cluster offers; and that it is said.

History beats the present: whatever speaks PromQL is taken first, and metrics-server alone gives a first answer, from
a single look. A source that the user named is never silently replaced by another.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from trimtab.errors import TrimtabError
from trimtab.kube.errors import Forbidden
from trimtab.kube.rest.client import Client
from trimtab.usage.discovery import find_promql_servers, has_metrics_server
from trimtab.usage.source import Source, SourceHealth, source

AUTO, PROMETHEUS, METRICS_SERVER = "auto", "prometheus", "metrics-server"


@dataclass(frozen=True, slots=True)
class SelectedSource:
    """A source that answers, and what people are told of it."""

    source: Source[Any]
    description: str
    has_history: bool
    """Whether it knows more than this moment."""


@asynccontextmanager
async def open_source(
    client: Client, *, name: str = AUTO, settings: Mapping[str, Any] | None = None
) -> AsyncIterator[SelectedSource]:
    """The source of this name; for `auto`, the best of those that the cluster offers and that are well."""
    given = dict(settings or {})
    if name == AUTO and given:
        name = PROMETHEUS
    candidates = await _list_available(client) if name == AUTO else [name]
    async with AsyncExitStack() as opened:
        passed_over: list[str] = []
        for candidate in candidates:
            found = await opened.enter_async_context(source(candidate, client=client, **given))
            health = await found.check()
            if health.ok:
                said = _describe(found, health)
                yield SelectedSource(
                    found, "; ".join([said, *passed_over]), has_history=not found.capabilities.polled
                )
                return
            passed_over.append(_format_failure(candidate, health))
        raise TrimtabError("; ".join(passed_over))


async def _list_available(client: Client) -> list[str]:
    """What the cluster has, the best first."""
    offered, why = [], "no Prometheus found by the labels of a Service"
    try:
        if await find_promql_servers(client):
            offered.append(PROMETHEUS)
    except Forbidden:
        why = "Services may not be listed to find a Prometheus"
    if await has_metrics_server(client):
        offered.append(METRICS_SERVER)
    if not offered:
        raise TrimtabError(
            f"{client.connection.context}: no usage to read: {why}, and no metrics-server; "
            "give the address of a Prometheus with --prometheus"
        )
    return offered


def _format_failure(name: str, health: SourceHealth) -> str:
    return f"{name}: {health.detail}; {health.advice or f'see that {name} is there, and its address'}"


def _describe(found: Source[Any], health: SourceHealth) -> str:
    """What was found, in a few words."""
    if found.capabilities.polled:
        return f"{found.name} alone: one look at the present, low confidence"
    detail = health.detail.partition("; ")[0]
    return f"{found.name.capitalize()} at {detail}" if found.name == PROMETHEUS else f"{found.name}: {detail}"

"""Select the usage source of a scan: the one that the user named, or the best that the cluster offers.

A source with history wins: a PromQL server is tried first; metrics-server alone gives a first answer from a single
sample. A source that the user named is never replaced by another.
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
    """A healthy source, and its description for users."""

    source: Source[Any]
    description: str
    has_history: bool
    """True if the source has more than the current sample."""


@asynccontextmanager
async def open_source(
    client: Client, *, name: str = AUTO, settings: Mapping[str, Any] | None = None
) -> AsyncIterator[SelectedSource]:
    """Open the source of this name; for `auto`, the best healthy one that the cluster offers."""
    given = dict(settings or {})
    if name == AUTO and given:
        name = PROMETHEUS
    candidates = await _list_available(client) if name == AUTO else [name]
    async with AsyncExitStack() as opened:
        failures: list[str] = []
        for candidate in candidates:
            found = await opened.enter_async_context(source(candidate, client=client, **given))
            health = await found.check()
            if health.ok:
                description = _describe(found, health)
                yield SelectedSource(
                    found, "; ".join([description, *failures]), has_history=found.capabilities.history
                )
                return
            failures.append(_format_failure(candidate, health))
        raise TrimtabError("; ".join(failures))


async def _list_available(client: Client) -> list[str]:
    """List the sources that the cluster offers, the best first."""
    available, reason = [], "no Service has the labels of a Prometheus"
    try:
        if await find_promql_servers(client):
            available.append(PROMETHEUS)
    except Forbidden:
        reason = "you may not list Services to find a Prometheus"
    if await has_metrics_server(client):
        available.append(METRICS_SERVER)
    if not available:
        raise TrimtabError(
            f"{client.connection.context}: no usage source found: {reason}, and there is no metrics-server; "
            "give the address of a Prometheus with --prometheus"
        )
    return available


def _format_failure(name: str, health: SourceHealth) -> str:
    return f"{name}: {health.detail}; {health.advice or f'check that {name} is running, and its address'}"


def _describe(found: Source[Any], health: SourceHealth) -> str:
    """Describe a healthy source in a few words."""
    if not found.capabilities.history:
        return f"{found.name} only: a single sample, low confidence"
    detail = health.detail.partition("; ")[0]
    return f"{found.name.capitalize()} at {detail}" if found.name == PROMETHEUS else f"{found.name}: {detail}"

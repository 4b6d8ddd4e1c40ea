"""Whether what must stay low does so for a workload: each guardrail of the configuration, asked of a PromQL server.

What cannot be told is unknown, which keeps a change from beginning and from going on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from string import Template
from typing import Protocol

import structlog

from trimtab.kube.workloads import Workload
from trimtab.operator.config import Guardrail
from trimtab.usage.errors import UsageError

log = structlog.get_logger(__name__)


class Teller(Protocol):
    """What answers a query with one number: a PromQL server."""

    async def value(self, promql: str, *, at: float) -> float | None:
        """The number at that time; None when there is none, or more than one."""
        ...


class PromQLGuardrails:
    """The guardrails that are configured now."""

    def __init__(self, teller: Teller | None, guardrails: Callable[[], tuple[Guardrail, ...]]) -> None:
        self._teller = teller
        self._guardrails = guardrails

    async def verdicts(self, workload: Workload, *, now: float) -> Mapping[str, bool | None]:
        """Each guardrail by name, and whether it holds; None is unknown."""
        guardrails = self._guardrails()
        held = await asyncio.gather(*(self._holds(each, workload, now) for each in guardrails))
        return {guardrail.name: holds for guardrail, holds in zip(guardrails, held, strict=True)}

    async def _holds(self, guardrail: Guardrail, workload: Workload, now: float) -> bool | None:
        if self._teller is None:
            return None
        try:
            return guardrail.holds(await self._teller.value(filled_in(guardrail.query, workload), at=now))
        except UsageError as error:
            log.warning("guardrail.unknown", guardrail=guardrail.name, error=str(error))
            return None


def filled_in(query: str, workload: Workload) -> str:
    """A query with the workload's names, which are made of letters, digits, dots and dashes, in their places."""
    return Template(query).safe_substitute(
        namespace=workload.namespace, kind=workload.kind, workload=workload.name
    )

"""Whether what must stay low does so for a workload: each guardrail, asked of a PromQL server.

What cannot be told is unknown, which keeps a change from beginning and from going on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

import structlog

from trimtab.kube.errors import describe
from trimtab.kube.kinds.workloads import Workload
from trimtab.operator.config.model import Guardrail
from trimtab.operator.config.promql import bound
from trimtab.operator.sizing.throttling import PATIENCE
from trimtab.usage.errors import UsageError

log = structlog.get_logger(__name__)


class Teller(Protocol):
    """What answers a query with one number: a PromQL server."""

    async def value(self, promql: str, *, at: float) -> float | None:
        """The number at that time; None when there is none, or more than one."""
        ...


class PromQLGuardrails:
    """Knows by asking; without anybody to ask, nothing."""

    def __init__(self, teller: Teller | None) -> None:
        self._teller = teller

    async def verdicts(
        self, workload: Workload, guardrails: Sequence[Guardrail], *, now: float
    ) -> Mapping[str, bool | None]:
        """Each guardrail by name, and whether it holds; None is unknown."""
        held = await asyncio.gather(*(self._holds(each, workload, now) for each in guardrails))
        return {guardrail.name: holds for guardrail, holds in zip(guardrails, held, strict=True)}

    async def _holds(self, guardrail: Guardrail, workload: Workload, now: float) -> bool | None:
        if self._teller is None:
            return None
        query = bound(
            guardrail.query, namespace=workload.namespace, kind=workload.kind, workload=workload.name
        )
        try:
            async with asyncio.timeout(PATIENCE):
                return guardrail.holds(await self._teller.value(query, at=now))
        except (UsageError, TimeoutError) as error:
            log.warning("guardrail.unknown", guardrail=guardrail.name, error=describe(error))
            return None

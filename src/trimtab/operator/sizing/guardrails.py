"""Evaluate guardrails for a workload by querying a PromQL server.

A guardrail that cannot be evaluated is unknown, which stops a change from starting and from continuing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import structlog

from trimtab.kube.errors import describe
from trimtab.kube.kinds.workloads import Workload
from trimtab.operator.config.model import Guardrail
from trimtab.operator.sizing.throttling import QUERY_TIMEOUT
from trimtab.usage.errors import UsageError
from trimtab.usage.prometheus.template import QueryError, fill_template
from trimtab.usage.source import PromqlClient, query_value

log = structlog.get_logger(__name__)


class PromqlGuardrailChecker:
    """Evaluates guardrails with PromQL; without a server, all are unknown."""

    def __init__(self, client: PromqlClient | None) -> None:
        self._client = client

    async def check_guardrails(
        self, workload: Workload, guardrails: Sequence[Guardrail], *, now: float
    ) -> Mapping[str, bool | None]:
        """Return for each guardrail, by name, whether it is satisfied; None if unknown."""
        held = await asyncio.gather(*(self._check_guardrail(each, workload, now) for each in guardrails))
        return {guardrail.name: holds for guardrail, holds in zip(guardrails, held, strict=True)}

    async def _check_guardrail(self, guardrail: Guardrail, workload: Workload, now: float) -> bool | None:
        if self._client is None:
            return None
        try:
            query = fill_template(
                guardrail.query, namespace=workload.namespace, kind=workload.kind, name=workload.name
            )
            async with asyncio.timeout(QUERY_TIMEOUT):
                return guardrail.is_satisfied(await query_value(self._client, query, at=now))
        except (QueryError, UsageError, TimeoutError) as error:
            log.warning("guardrail.unknown", guardrail=guardrail.name, error=describe(error))
            return None

"""Read the signals of harm from a change, besides the pods themselves: guardrails, and the throttling of changed pods.

A guardrail that cannot be evaluated is unknown, which stops a change from starting and from continuing. The learned
evidence describes a workload as a whole over hours; throttling by a change shows in the changed pods, within minutes.
Pods whose throttling cannot be read are left out, which means unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import structlog

from trimtab.actuation.decide.health import ThrottlingSample
from trimtab.kube.errors import describe
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.workloads import Workload
from trimtab.operator.config.model import Guardrail
from trimtab.operator.policy.resolver import PolicyGuardrail
from trimtab.usage.errors import UsageError
from trimtab.usage.prometheus.namespace_scope import NamespaceScope, restrict_to_namespace
from trimtab.usage.prometheus.template import QueryError, fill_template
from trimtab.usage.source import PromqlClient, Source, UsageQuery, query_value
from trimtab.usage.usage import Usage

log = structlog.get_logger(__name__)

QUERY_TIMEOUT = 15.0
"""The seconds after which a read is abandoned: a revert must not wait. The source's own timeout would be minutes."""


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
        # Unknown instead of satisfied: a guardrail that nobody evaluates must not prove a change healthy.
        if self._client is None:
            return None
        try:
            query = fill_template(
                guardrail.query, namespace=workload.namespace, kind=workload.kind, name=workload.name
            )
            # Otherwise a tenant could read the series of others: the outcome shows in a status.
            if isinstance(guardrail, PolicyGuardrail) and guardrail.namespace_label:
                query = restrict_to_namespace(
                    query, NamespaceScope(workload.namespace, guardrail.namespace_label)
                )
            async with asyncio.timeout(QUERY_TIMEOUT):
                return guardrail.is_satisfied(await query_value(self._client, query, at=now))
        # A failed query is no evidence of harm: reverting on it would undo good changes in every outage of
        # Prometheus.
        except (QueryError, UsageError, TimeoutError) as error:
            log.warning("guardrail.unknown", guardrail=guardrail.name, error=describe(error))
            return None


async def read_throttling(
    source: Source[Any], pods: Sequence[Pod], *, seconds: float, step: float, now: float
) -> Mapping[str, tuple[ThrottlingSample, ...]]:
    """Return the throttling of each pod by name for the last seconds. Pods without a CPU limit are never throttled."""
    limited = [pod for pod in pods if any(each.resources.cpu_limit for each in pod.containers)]
    if not limited or not source.capabilities.throttling:
        return {}
    namespaces = sorted({pod.namespace for pod in limited})
    ask = UsageQuery.last(seconds + step, now=now, step=step, namespaces=namespaces)
    try:
        async with asyncio.timeout(QUERY_TIMEOUT):
            usage = await source.read(ask)
    except Exception as error:  # noqa: BLE001 - a plugin may raise anything, and a revert must not wait
        log.warning("throttling.unknown", error=str(error) if isinstance(error, UsageError) else repr(error))
        return {}
    return _max_by_pod(usage, {pod.name for pod in limited})


def _max_by_pod(usage: Usage, pods: set[str]) -> dict[str, tuple[ThrottlingSample, ...]]:
    """Return the throttling of each pod's most throttled container, at each step."""
    if usage.throttled is None:
        return {}
    columns: dict[str, list[int]] = {}
    for column, container in enumerate(usage.containers):
        if container.pod in pods:
            columns.setdefault(container.pod, []).append(column)
    return {
        pod: tuple(
            ThrottlingSample(float(t) - usage.step, float(share))
            for t, share in zip(usage.times, np.fmax.reduce(usage.throttled[:, own], axis=1), strict=True)
            if not np.isnan(share)
        )
        for pod, own in columns.items()
    }

"""How much pods were throttled lately, asked of the usage source only for workloads that are being changed.

What was learned of a workload says how it fares as a rule, over hours and all its pods; whether a change hurts is seen
in the very pods that were changed, in the minutes since. What cannot be told is left out, and so unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import structlog

from trimtab.actuation.decide.health import ThrottlingSample
from trimtab.kube.kinds.pods import Pod
from trimtab.usage.errors import UsageError
from trimtab.usage.source import Source, UsageQuery
from trimtab.usage.usage import Usage

log = structlog.get_logger(__name__)

QUERY_TIMEOUT = 15.0
"""Seconds: pods that suffer wait no longer for who does not answer. A source by itself would ask for minutes."""


async def read_throttling(
    source: Source[Any], pods: Sequence[Pod], *, seconds: float, step: float, now: float
) -> Mapping[str, tuple[ThrottlingSample, ...]]:
    """The last so many seconds of each pod, by name, a sample a step. Without a CPU limit none is ever throttled."""
    limited = [pod for pod in pods if any(each.resources.cpu_limit for each in pod.containers)]
    if not limited or not source.capabilities.throttling:
        return {}
    namespaces = sorted({pod.namespace for pod in limited})
    ask = UsageQuery.last(seconds + step, now=now, step=step, namespaces=namespaces)
    try:
        async with asyncio.timeout(QUERY_TIMEOUT):
            usage = await source.read(ask)
    except Exception as error:  # noqa: BLE001 - a plugin's may be any, and pods that suffer wait for what follows
        log.warning("throttling.unknown", error=str(error) if isinstance(error, UsageError) else repr(error))
        return {}
    return _max_by_pod(usage, {pod.name for pod in limited})


def _max_by_pod(usage: Usage, pods: set[str]) -> dict[str, tuple[ThrottlingSample, ...]]:
    """Of a pod's containers the most throttled one counts, at each step."""
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

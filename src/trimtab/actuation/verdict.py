"""Whether a change hurt: how pods fare now against how they fared before it.

Restarts, OOM kills and readiness are read from the pods themselves, so they are always known. Throttling and
guardrails come from outside and can be unknown, which is neither better nor worse: it keeps a change from going on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import NamedTuple

import msgspec

from trimtab.kube.pods import Pod

THROTTLING_MARGIN = 0.05
"""Throttled periods may grow by so much of all periods before a change counts as worse."""


class Throttled(NamedTuple):
    """In which share of its CPU periods a pod was throttled, from this time on until the next."""

    since: float
    share: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """What only metrics and objectives can tell; None is unknown."""

    throttled: Mapping[str, Sequence[Throttled]] = field(default_factory=dict)
    """How much each pod, by name, was throttled lately; unknown of those that are not in it."""

    guardrails: Mapping[str, bool | None] = field(default_factory=dict)
    """Each guardrail by name, and whether it holds."""


class Health(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How many of some pods ended, were killed for memory, or are not ready; and how much they were throttled."""

    pods: int
    restarted: int = 0
    killed: int = 0
    unready: int = 0
    throttled: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why pods are worse off, and what is not known; both empty when all is well."""

    worse: str = ""
    unknown: str = ""


def health(
    pods: Sequence[Pod],
    *,
    since: int,
    until: int,
    evidence: Evidence,
    count_restarts: bool = True,
    count_new: bool = False,
) -> Health:
    """How these pods fared in this time. A restart that the change itself makes is not counted, an OOM kill is.

    Pods that came meanwhile have yet to start: that they are not ready counts only where `count_new` says so.
    """
    exits = [
        [state.last_exit for state in pod.states if state.last_exit and since <= state.last_exit.at <= until]
        for pod in pods
    ]
    return Health(
        pods=len(pods),
        restarted=sum(map(bool, exits)) if count_restarts else 0,
        killed=sum(any(end.reason == "OOMKilled" for end in ends) for ends in exits),
        unready=sum(not pod.ready and (count_new or pod.created < since) for pod in pods),
        throttled=_throttled(pods, since=since, until=until, evidence=evidence),
    )


def _throttled(pods: Sequence[Pod], *, since: int, until: int, evidence: Evidence) -> float | None:
    shares = [
        each.share
        for pod in pods
        for each in evidence.throttled.get(pod.name, ())
        if since <= each.since < until
    ]
    return fmean(shares) if shares else None


def judge(before: Health, now: Health, evidence: Evidence) -> Verdict:
    """Compare shares of pods, for a canary is one of many."""
    for what, then, counted in (
        ("were killed for lack of memory", before.killed, now.killed),
        ("restarted", before.restarted, now.restarted),
        ("are not ready", before.unready, now.unready),
    ):
        if counted * max(before.pods, 1) > then * max(now.pods, 1):
            return Verdict(worse=f"{counted} of {now.pods} pods {what}, before it {then} of {before.pods}")
    for name, holds in evidence.guardrails.items():
        if holds is False:
            return Verdict(worse=f"guardrail {name} does not hold any more")
    if before.throttled is not None and now.throttled is not None:
        if now.throttled > before.throttled + THROTTLING_MARGIN:
            return Verdict(
                worse=f"CPU is throttled in {now.throttled:.0%} of its periods, before it {before.throttled:.0%}"
            )
    elif before.throttled is not None:
        return Verdict(unknown="throttling is not known any more")
    if missing := sorted(name for name, holds in evidence.guardrails.items() if holds is None):
        return Verdict(unknown=f"guardrail {', '.join(missing)} is unknown")
    return Verdict()

"""Whether a change hurt: how pods fare now against how they fared before it.

Restarts, OOM kills and readiness are read from the pods themselves, so they are always known. Throttling and
guardrails come from outside and can be unknown, which is neither better nor worse: it keeps a change from going on.

Pods of a large workload restart now and then whatever anybody does, so a count alone says nothing. Restarts and OOM kills
before and since are compared as rates by an exact test: given that so many happened in both times together, how
likely is it that so many of them, or more, fell into the time since? Readiness is compared by shares of pods that
have not been ready for some time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal, NamedTuple

import msgspec

from trimtab.kube.kinds.pods import ContainerTermination, Pod

THROTTLING_MARGIN = 0.05
"""Throttled periods may grow by so much of all periods before a change counts as worse."""
LOOK_BACK = 86_400
"""Seconds before a change in which restarts count as usual for its pods."""
HOUR = 3600
PRIOR_WATCH_SECONDS = 7 * 86_400
"""A workload of which no restart is known is taken to have been watched for so many more seconds: a container that works
restarts less than once a week. Without it, a new workload's only pod could be killed again and again without that
being unusual."""
SIGNIFICANCE = 0.01
"""What happens by chance in fewer cases than these is put down to the change: of harmless changes, so many are reverted
in each phase."""
MIN_AFFECTED_SHARE = 0.01
"""A change is not reverted for restarts of no more than this share of its pods."""
PRIOR_PODS = 100
"""Readiness before a change is one look at few pods; so many more are taken to have been looked at,"""
PRIOR_UNREADY_PODS = 0.5
"""of which so many were not ready: pods that are well are not for half a percent of their time."""
UNREADY_GRACE = 60
"""Seconds for which pods are not ready before more of them than by chance count: one failed probe passes sooner."""
STARTUP_GRACE = 300
"""Seconds in which a pod that restarted is ready again: fewer pods than by chance count when they take longer."""
MAX_UNAVAILABLE_SHARE = 0.1
"""The share of a workload's pods that may be missing or not ready when others are touched."""


class ThrottlingSample(NamedTuple):
    """In which share of its CPU periods a pod was throttled, from this time on until the next."""

    since: float
    share: float


@dataclass(frozen=True, kw_only=True, slots=True)
class HarmSignals:
    """What only metrics and objectives can tell; None is unknown."""

    throttled: Mapping[str, Sequence[ThrottlingSample]] = field(default_factory=dict)
    """How much each pod, by name, was throttled lately; unknown of those that are not in it."""

    guardrails: Mapping[str, bool | None] = field(default_factory=dict)
    """Each guardrail by name, and whether it holds."""


class PodHealth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How many of some pods restarted, were killed for memory, or are not ready; and how much they were throttled."""

    pods: int
    restarted: int = 0
    killed: int = 0
    unready: int = 0
    throttled: float | None = None
    watched: int = 0
    """Seconds in which restarts were counted, of all pods together."""
    restarted_in_hour: int = 0
    killed_in_hour: int = 0
    watched_in_hour: int = 0
    """The same of the last hour of that time: what has become more frequent before a change is not its doing."""


@dataclass(frozen=True, slots=True)
class HealthComparison:
    """Why pods are worse off, and what is not known; both empty when all is well."""

    worse: str = ""
    unknown: str = ""


def health_before(pods: Sequence[Pod], *, now: int, window: int, signals: HarmSignals) -> PodHealth:
    """Count how pods fared up to now: restarts in the last day, throttling in the last `window` seconds.

    Of each container only the last end is known, so each pod is followed back to that, or to its creation: a pod that
    restarts every hour is seen once, but in an hour.
    """
    day, hour = _count_restarts_back(pods, LOOK_BACK, now=now), _count_restarts_back(pods, HOUR, now=now)
    return PodHealth(
        pods=len(pods),
        restarted=day.restarted,
        killed=day.killed,
        unready=sum(not pod.ready for pod in pods),
        throttled=_mean_throttling(pods, since=now - window, until=now, signals=signals),
        watched=day.watched,
        restarted_in_hour=hour.restarted,
        killed_in_hour=hour.killed,
        watched_in_hour=hour.watched,
    )


class _Restarts(NamedTuple):
    restarted: int
    killed: int
    watched: int


def _count_restarts_back(pods: Sequence[Pod], seconds: int, *, now: int) -> _Restarts:
    since = now - seconds
    ends = [[end for end in _list_exits(pod) if end.finished_at >= since] for pod in pods]
    last = [max((end.finished_at for end in found), default=0) for found in ends]
    watched = (max(now - max(since, pod.created, ended), 1) for pod, ended in zip(pods, last, strict=True))
    return _Restarts(sum(map(bool, ends)), sum(map(_has_oom_kill, ends)), sum(watched))


def health_since(
    pods: Sequence[Pod],
    *,
    since: int,
    now: int,
    window: int,
    signals: HarmSignals,
    known: Mapping[str, int],
    count_restarts: bool = True,
) -> PodHealth:
    """Count how pods have fared since then. OOM kills count also where the restarts that a change itself makes do not.

    Restarts are taken to have happened in no less than `window` seconds, however early they are seen: to look often
    makes none of them less likely to be chance. `known` are ends, by pod, that were seen before; they are later than
    `since` only by the clock of a node that is ahead.
    """
    ends = [
        [
            end
            for end in _list_exits(pod)
            if end.finished_at >= since and end.finished_at > known.get(pod.uid, 0)
        ]
        for pod in pods
    ]
    return PodHealth(
        pods=len(pods),
        restarted=sum(map(bool, ends)) if count_restarts else 0,
        killed=sum(map(_has_oom_kill, ends)),
        throttled=_mean_throttling(pods, since=since, until=now, signals=signals),
        watched=sum(max(now - max(since, pod.created), window) for pod in pods),
    )


def find_future_exits(pods: Sequence[Pod], *, now: int) -> dict[str, int]:
    """The ends, by pod, that were seen before they can have been: the clock of their node is ahead."""
    last = {pod.uid: max((end.finished_at for end in _list_exits(pod)), default=0) for pod in pods}
    return {uid: at for uid, at in last.items() if at > now}


def compare_health(
    before: PodHealth, now: PodHealth, signals: HarmSignals, *, unready: Sequence[int] = ()
) -> HealthComparison:
    """Compare how pods fare with how they did before; `unready` says of pods that are not ready for how many seconds.

    What is worse is told before what is unknown.
    """
    guardrails = signals.guardrails.items()
    worse = (
        _explain_restarts("were killed for lack of memory", before, now, "killed")
        or _explain_restarts("restarted", before, now, "restarted")
        or _explain_unready(before, now, unready)
        or next(
            (f"guardrail {name} does not hold any more" for name, holds in guardrails if holds is False), ""
        )
        or _explain_throttling(before, now)
    )
    if worse:
        return HealthComparison(worse=worse)
    if before.throttled is not None and now.throttled is None:
        return HealthComparison(unknown="throttling is not known any more")
    if missing := sorted(name for name, holds in guardrails if holds is None):
        return HealthComparison(unknown=f"guardrail {', '.join(missing)} is unknown")
    if _explain_unready(before, now, [max(each, STARTUP_GRACE) for each in unready]):
        return HealthComparison(unknown=_format_unready(before, now, len(unready)))
    return HealthComparison()


def is_more_than_chance(then: int, watched_then: int, counted: int, watched: int) -> bool:
    """Whether events have become more frequent: by the conditional test of two Poisson rates, one-sided and exact."""
    if not counted or not watched:
        return False
    before = watched_then if then else watched_then + PRIOR_WATCH_SECONDS
    return _binomial_tail(counted, of=then + counted, chance=watched / (watched + before)) < SIGNIFICANCE


def _explain_restarts(
    what: str, before: PodHealth, now: PodHealth, kind: Literal["restarted", "killed"]
) -> str:
    counted, then = getattr(now, kind), getattr(before, kind)
    if counted <= now.pods * MIN_AFFECTED_SHARE or not is_more_than_chance(
        then, before.watched, counted, now.watched
    ):
        return ""
    in_hour = getattr(before, f"{kind}_in_hour")
    if in_hour and not is_more_than_chance(in_hour, before.watched_in_hour, counted, now.watched):
        return ""
    return f"{counted} of {now.pods} pods {what}, in the day before {then} of {before.pods}"


def _explain_unready(before: PodHealth, now: PodHealth, unready: Sequence[int]) -> str:
    """Whether pods have not been ready for some time: more than by chance, or too many for any longer."""
    if not now.pods:
        return ""
    usual = (before.unready + PRIOR_UNREADY_PODS) / (before.pods + PRIOR_PODS)
    for_some_time = sum(seconds >= UNREADY_GRACE for seconds in unready)
    if for_some_time and _binomial_tail(for_some_time, of=now.pods, chance=usual) < SIGNIFICANCE:
        return _format_unready(before, now, for_some_time)
    for_long = sum(seconds >= STARTUP_GRACE for seconds in unready)
    share_before = before.unready / max(before.pods, 1)
    return (
        _format_unready(before, now, for_long)
        if for_long / now.pods > share_before + MAX_UNAVAILABLE_SHARE
        else ""
    )


def _format_unready(before: PodHealth, now: PodHealth, counted: int) -> str:
    return f"{counted} of {now.pods} pods are not ready, before it {before.unready} of {before.pods}"


def _explain_throttling(before: PodHealth, now: PodHealth) -> str:
    if before.throttled is None or now.throttled is None:
        return ""
    if now.throttled <= before.throttled + THROTTLING_MARGIN:
        return ""
    return f"CPU is throttled in {now.throttled:.0%} of its periods, before it {before.throttled:.0%}"


def _binomial_tail(count: int, *, of: int, chance: float) -> float:
    """How likely so many successes or more are, of so many trials with this chance each."""
    if chance >= 1.0:
        return 1.0
    yes, no = math.log(chance), math.log1p(-chance)
    return math.fsum(
        math.exp(
            math.lgamma(of + 1)
            - math.lgamma(each + 1)
            - math.lgamma(of - each + 1)
            + each * yes
            + (of - each) * no
        )
        for each in range(count, of + 1)
    )


def _list_exits(pod: Pod) -> list[ContainerTermination]:
    return [state.last_termination for state in pod.container_statuses if state.last_termination]


def _has_oom_kill(ends: Sequence[ContainerTermination]) -> bool:
    return any(end.reason == "OOMKilled" for end in ends)


def _mean_throttling(pods: Sequence[Pod], *, since: int, until: int, signals: HarmSignals) -> float | None:
    shares = [
        each.share
        for pod in pods
        for each in signals.throttled.get(pod.name, ())
        if since <= each.since < until
    ]
    return fmean(shares) if shares else None

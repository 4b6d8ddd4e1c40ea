"""Decide whether a change did harm, by comparing the health of pods before and after.

Restarts, OOM kills and readiness are read from the pods themselves, so they are always known. Throttling and
guardrails come from outside and can be unknown, which is neither better nor worse: it keeps a change from
going on.

Pods of a large workload restart now and then whatever anybody does, so a count alone proves nothing. Restarts
and OOM kills before and since are compared as rates by an exact test: given the number of events in both
periods together, how likely is it that this many of them, or more, happened in the period since? Readiness is
compared by the share of pods that have not been ready for some time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal, NamedTuple

from trimtab.actuation.change_annotations import PodHealth
from trimtab.actuation.deadlines import DEADLINES
from trimtab.kube.kinds.pods import ContainerTermination, Pod

THROTTLING_MARGIN = 0.05
"""The share of CPU periods by which throttling may grow before a change counts as harmful."""
SIGNIFICANCE = 0.01
"""The probability below which a result is attributed to the change. This share of harmless changes is
reverted in each phase.
"""
MIN_AFFECTED_SHARE = 0.01
"""The share of pods that may restart before a change is reverted for it."""
PRIOR_PODS = 100
"""The number of ready observations that are added to the few pods seen before a change."""
PRIOR_UNREADY_PODS = 0.5
"""The number of those observations that count as not ready: healthy pods are not ready for half a percent of
their time.
"""
MAX_UNAVAILABLE_SHARE = 0.1
"""The share of a workload's pods that may be missing or not ready while others are changed."""


class ThrottlingSample(NamedTuple):
    """The share of CPU periods in which a pod was throttled, from this time until the next sample."""

    since: float
    share: float


@dataclass(frozen=True, kw_only=True, slots=True)
class HarmSignals:
    """The signals of harm that only metrics and objectives provide; None is unknown."""

    throttled: Mapping[str, Sequence[ThrottlingSample]] = field(default_factory=dict)
    """The recent throttling of each pod, by name; unknown for pods that are not listed."""

    guardrails: Mapping[str, bool | None] = field(default_factory=dict)
    """The state of each guardrail by name: whether it holds."""


@dataclass(frozen=True, slots=True)
class HealthComparison:
    """The reason why pods are worse off, and what is unknown; both empty if all is well."""

    worse: str = ""
    unknown: str = ""


def health_before(pods: Sequence[Pod], *, now: int, window: int, signals: HarmSignals) -> PodHealth:
    """Measure the health of pods up to now: restarts in the last day, throttling in the last `window`
    seconds.

    Only the last exit of each container is known, so each pod is followed back to that exit, or to its
    creation: a pod that restarts every hour counts once, but in an hour.
    """
    day, hour = (
        _count_restarts_back(pods, DEADLINES.restart_history, now=now),
        _count_restarts_back(pods, DEADLINES.recent_restarts, now=now),
    )
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
    # At least a second each: a rate of restarts over no time could not be compared with the one after the change.
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
    """Measure the health of pods since a time. OOM kills count even if restarts by the change itself do not.

    Restarts are spread over at least `window` seconds, however early they are seen, because frequent checks
    make none of them less likely to be chance. `known` are exits, by pod, that were seen before; they are
    later than `since` only by the clock of a node that is ahead.
    """
    # A node whose clock is ahead reports exits from before the change with a later time: they are no harm done by it.
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
    """Return the exits, by pod, that lie in the future because the clock of their node is ahead."""
    last = {pod.uid: max((end.finished_at for end in _list_exits(pod)), default=0) for pod in pods}
    return {uid: at for uid, at in last.items() if at > now}


def compare_health(
    before: PodHealth, now: PodHealth, signals: HarmSignals, *, unready: Sequence[int] = ()
) -> HealthComparison:
    """Compare the health of pods with that before; `unready` lists for how many seconds each unready pod was
    so.

    A change for the worse is reported before anything unknown.
    """
    guardrails = signals.guardrails.items()
    worse = (
        _explain_restarts("were killed for lack of memory", before, now, "killed")
        or _explain_restarts("restarted", before, now, "restarted")
        or _explain_unready(before, now, unready)
        or next((f"guardrail {name} no longer holds" for name, holds in guardrails if holds is False), "")
        or _explain_throttling(before, now)
    )
    if worse:
        return HealthComparison(worse=worse)
    if before.throttled is not None and now.throttled is None:
        return HealthComparison(
            unknown="CPU throttling of the pods is no longer measured; check the usage source"
        )
    if missing := sorted(name for name, holds in guardrails if holds is None):
        return HealthComparison(
            unknown=f"guardrail {', '.join(missing)} cannot be evaluated; check its query"
        )
    # Pods that have only just become unready may still recover: no reason to revert, and none to go on either.
    if _explain_unready(before, now, [max(each, DEADLINES.startup) for each in unready]):
        return HealthComparison(unknown=_format_unready(before, now, len(unready)))
    return HealthComparison()


def is_more_than_chance(then: int, watched_then: int, counted: int, watched: int) -> bool:
    """Return whether events have become more frequent, by the exact one-sided conditional test of two Poisson
    rates.
    """
    if not counted or not watched:
        return False
    before = watched_then if then else watched_then + DEADLINES.prior_watch
    return _binomial_tail(counted, of=then + counted, probability=watched / (watched + before)) < SIGNIFICANCE


def _explain_restarts(
    what: str, before: PodHealth, now: PodHealth, kind: Literal["restarted", "killed"]
) -> str:
    counted, then = getattr(now, kind), getattr(before, kind)
    # A few restarts in a large workload are not worth a revert, however significant they are.
    if counted <= now.pods * MIN_AFFECTED_SHARE or not is_more_than_chance(
        then, before.watched, counted, now.watched
    ):
        return ""
    # Trouble that began in the hour before the change is not its fault, but the rate of a whole day hides it.
    in_hour = getattr(before, f"{kind}_in_hour")
    if in_hour and not is_more_than_chance(in_hour, before.watched_in_hour, counted, now.watched):
        return ""
    return (
        f"{counted} of {now.pods} pods {what} after the change, {then} of {before.pods} in the day before it"
    )


def _explain_unready(before: PodHealth, now: PodHealth, unready: Sequence[int]) -> str:
    """Explain that pods have been unready for some time: more than by chance, or too many for longer."""
    if not now.pods:
        return ""
    usual = (before.unready + PRIOR_UNREADY_PODS) / (before.pods + PRIOR_PODS)
    for_some_time = sum(seconds >= DEADLINES.unready for seconds in unready)
    if for_some_time and _binomial_tail(for_some_time, of=now.pods, probability=usual) < SIGNIFICANCE:
        return _format_unready(before, now, for_some_time)
    for_long = sum(seconds >= DEADLINES.startup for seconds in unready)
    share_before = before.unready / max(before.pods, 1)
    return (
        _format_unready(before, now, for_long)
        if for_long / now.pods > share_before + MAX_UNAVAILABLE_SHARE
        else ""
    )


def _format_unready(before: PodHealth, now: PodHealth, counted: int) -> str:
    return f"{counted} of {now.pods} pods are not ready, {before.unready} of {before.pods} before the change"


def _explain_throttling(before: PodHealth, now: PodHealth) -> str:
    if before.throttled is None or now.throttled is None:
        return ""
    if now.throttled <= before.throttled + THROTTLING_MARGIN:
        return ""
    return f"CPU of the pods is throttled in {now.throttled:.0%} of periods, {before.throttled:.0%} before the change"


def _binomial_tail(count: int, *, of: int, probability: float) -> float:
    """Return the probability of at least this many successes in a number of trials with the same chance."""
    if probability >= 1.0:
        return 1.0
    # In logarithms: the binomial coefficients of a thousand pods are larger than any float.
    yes, no = math.log(probability), math.log1p(-probability)
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

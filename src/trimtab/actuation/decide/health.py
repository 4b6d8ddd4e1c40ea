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

from trimtab.kube.kinds.pods import Exit, Pod

THROTTLING_MARGIN = 0.05
"""Throttled periods may grow by so much of all periods before a change counts as worse."""
LOOK_BACK = 86_400
"""Seconds before a change in which restarts count as usual for its pods."""
HOUR = 3600
QUIET = 7 * 86_400
"""A workload of which no restart is known is taken to have been watched for so many more seconds: a container that works
restarts less than once a week. Without it, a new workload's only pod could be killed again and again without that
being unusual."""
UNLIKELY = 0.01
"""What happens by chance in fewer cases than these is put down to the change: of harmless changes, so many are reverted
in each phase."""
MATERIAL = 0.01
"""A change is not reverted for restarts of no more than this share of its pods."""
UNREADY_PODS = 100
"""Readiness before a change is one look at few pods; so many more are taken to have been looked at,"""
UNREADY_OF_THEM = 0.5
"""of which so many were not ready: pods that are well are not for half a percent of their time."""
UNREADY_FOR = 60
"""Seconds for which pods are not ready before more of them than by chance count: one failed probe passes sooner."""
STARTS_IN = 300
"""Seconds in which a pod that restarted is ready again: fewer pods than by chance count when they take longer."""
TOLERATED = 0.1
"""The share of a workload's pods that may be missing or not ready when others are touched."""


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
class Verdict:
    """Why pods are worse off, and what is not known; both empty when all is well."""

    worse: str = ""
    unknown: str = ""


def health_before(pods: Sequence[Pod], *, now: int, window: int, evidence: Evidence) -> Health:
    """Count how pods fared up to now: restarts in the last day, throttling in the last `window` seconds.

    Of each container only the last end is known, so each pod is followed back to that, or to its creation: a pod that
    restarts every hour is seen once, but in an hour.
    """
    day, hour = _followed_back(pods, LOOK_BACK, now=now), _followed_back(pods, HOUR, now=now)
    return Health(
        pods=len(pods),
        restarted=day.restarted,
        killed=day.killed,
        unready=sum(not pod.ready for pod in pods),
        throttled=_throttled(pods, since=now - window, until=now, evidence=evidence),
        watched=day.watched,
        restarted_in_hour=hour.restarted,
        killed_in_hour=hour.killed,
        watched_in_hour=hour.watched,
    )


class _Restarts(NamedTuple):
    restarted: int
    killed: int
    watched: int


def _followed_back(pods: Sequence[Pod], seconds: int, *, now: int) -> _Restarts:
    since = now - seconds
    ends = [[end for end in _ends(pod) if end.at >= since] for pod in pods]
    last = [max((end.at for end in found), default=0) for found in ends]
    watched = (max(now - max(since, pod.created, ended), 1) for pod, ended in zip(pods, last, strict=True))
    return _Restarts(sum(map(bool, ends)), sum(map(_any_killed, ends)), sum(watched))


def health_since(
    pods: Sequence[Pod],
    *,
    since: int,
    now: int,
    window: int,
    evidence: Evidence,
    known: Mapping[str, int],
    count_restarts: bool = True,
) -> Health:
    """Count how pods have fared since then. OOM kills count also where the restarts that a change itself makes do not.

    Restarts are taken to have happened in no less than `window` seconds, however early they are seen: to look often
    makes none of them less likely to be chance. `known` are ends, by pod, that were seen before; they are later than
    `since` only by the clock of a node that is ahead.
    """
    ends = [[end for end in _ends(pod) if end.at >= since and end.at > known.get(pod.uid, 0)] for pod in pods]
    return Health(
        pods=len(pods),
        restarted=sum(map(bool, ends)) if count_restarts else 0,
        killed=sum(map(_any_killed, ends)),
        throttled=_throttled(pods, since=since, until=now, evidence=evidence),
        watched=sum(max(now - max(since, pod.created), window) for pod in pods),
    )


def ends_ahead(pods: Sequence[Pod], *, now: int) -> dict[str, int]:
    """The ends, by pod, that were seen before they can have been: the clock of their node is ahead."""
    last = {pod.uid: max((end.at for end in _ends(pod)), default=0) for pod in pods}
    return {uid: at for uid, at in last.items() if at > now}


def judge(before: Health, now: Health, evidence: Evidence, *, unready: Sequence[int] = ()) -> Verdict:
    """Compare how pods fare with how they did before; `unready` says of pods that are not ready for how many seconds.

    What is worse is told before what is unknown.
    """
    guardrails = evidence.guardrails.items()
    worse = (
        _more_restarts("were killed for lack of memory", before, now, "killed")
        or _more_restarts("restarted", before, now, "restarted")
        or _more_unready(before, now, unready)
        or next(
            (f"guardrail {name} does not hold any more" for name, holds in guardrails if holds is False), ""
        )
        or _more_throttled(before, now)
    )
    if worse:
        return Verdict(worse=worse)
    if before.throttled is not None and now.throttled is None:
        return Verdict(unknown="throttling is not known any more")
    if missing := sorted(name for name, holds in guardrails if holds is None):
        return Verdict(unknown=f"guardrail {', '.join(missing)} is unknown")
    if _more_unready(before, now, [max(each, STARTS_IN) for each in unready]):
        return Verdict(unknown=_unready(before, now, len(unready)))
    return Verdict()


def is_more_than_chance(then: int, watched_then: int, counted: int, watched: int) -> bool:
    """Whether events have become more frequent: by the conditional test of two Poisson rates, one-sided and exact."""
    if not counted or not watched:
        return False
    before = watched_then if then else watched_then + QUIET
    return _at_least(counted, of=then + counted, chance=watched / (watched + before)) < UNLIKELY


def _more_restarts(what: str, before: Health, now: Health, kind: Literal["restarted", "killed"]) -> str:
    counted, then = getattr(now, kind), getattr(before, kind)
    if counted <= now.pods * MATERIAL or not is_more_than_chance(then, before.watched, counted, now.watched):
        return ""
    in_hour = getattr(before, f"{kind}_in_hour")
    if in_hour and not is_more_than_chance(in_hour, before.watched_in_hour, counted, now.watched):
        return ""
    return f"{counted} of {now.pods} pods {what}, in the day before {then} of {before.pods}"


def _more_unready(before: Health, now: Health, unready: Sequence[int]) -> str:
    """Whether pods have not been ready for some time: more than by chance, or too many for any longer."""
    if not now.pods:
        return ""
    usual = (before.unready + UNREADY_OF_THEM) / (before.pods + UNREADY_PODS)
    for_some_time = sum(seconds >= UNREADY_FOR for seconds in unready)
    if for_some_time and _at_least(for_some_time, of=now.pods, chance=usual) < UNLIKELY:
        return _unready(before, now, for_some_time)
    for_long = sum(seconds >= STARTS_IN for seconds in unready)
    share_before = before.unready / max(before.pods, 1)
    return _unready(before, now, for_long) if for_long / now.pods > share_before + TOLERATED else ""


def _unready(before: Health, now: Health, counted: int) -> str:
    return f"{counted} of {now.pods} pods are not ready, before it {before.unready} of {before.pods}"


def _more_throttled(before: Health, now: Health) -> str:
    if before.throttled is None or now.throttled is None:
        return ""
    if now.throttled <= before.throttled + THROTTLING_MARGIN:
        return ""
    return f"CPU is throttled in {now.throttled:.0%} of its periods, before it {before.throttled:.0%}"


def _at_least(count: int, *, of: int, chance: float) -> float:
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


def _ends(pod: Pod) -> list[Exit]:
    return [state.last_exit for state in pod.states if state.last_exit]


def _any_killed(ends: Sequence[Exit]) -> bool:
    return any(end.reason == "OOMKilled" for end in ends)


def _throttled(pods: Sequence[Pod], *, since: int, until: int, evidence: Evidence) -> float | None:
    shares = [
        each.share
        for pod in pods
        for each in evidence.throttled.get(pod.name, ())
        if since <= each.since < until
    ]
    return fmean(shares) if shares else None

"""How available pods are, from what was seen of them: of a pod MTBF / (MTBF + MTTR), of a set 1 - Π(1 - a).

With as many repairs as failures, the former is the share of time that the pod was up. It is kept as the two times, up
and down, which a look at the pods adds to: a pod is down from when it is seen not ready, or from when a container
ended, until it is seen ready. A pod that starts for the first time is not down: it was not there before. What a
workload's pods of the past went through speaks for those that are new. Pure; time is passed in.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trimtab.kube.kinds.pods import Pod

INHERITED_SECONDS = 3600.0
"""Seconds of what was before that a new pod inherits at most, in proportion: its own history outgrows it soon."""
REPAIR_SECONDS = 60.0
"""Seconds that a restart is assumed to take where nobody watched it."""
MIN_UPTIME_BEFORE_FAILURE = 6000.0
"""Seconds of running that precede the first failure at the least: a pod that has just started counts as 99 % available,
one without a failure as more the longer it runs."""
MAX_AVAILABILITY = 0.999
"""No single pod is more available than this, however long it ran without a failure: its node is drained, upgraded or lost
sooner or later, and then it takes minutes to come back."""


@dataclass(frozen=True, slots=True)
class Uptime:
    """How long a pod was up and down, in seconds, and what was seen of it last."""

    up: float = 0.0
    down: float = 0.0
    observed_at: float = 0.0
    ready: bool = False
    was_ever_ready: bool = False
    """Whether it ever was."""
    restarts: int = 0

    @property
    def availability(self) -> float | None:
        """None where nothing is known yet."""
        known = self.up + self.down
        return self.up / known if known > 0 else None


def observe_pod(before: Uptime | None, pod: Pod, *, now: float) -> Uptime:
    """Add to what is known of a pod what one more observation shows."""
    restarts = sum(state.restarts for state in pod.container_statuses)
    ended = max(
        (state.last_termination.finished_at for state in pod.container_statuses if state.last_termination),
        default=0,
    )
    if before is None:
        return _first_observation(pod, restarts=restarts, ended=ended, now=now)
    span = max(0.0, now - before.observed_at)
    if before.ready and pod.ready and restarts > before.restarts:
        # It went down and came back between two observations: since when, the container's end tells.
        down = min(span, _outage(pod, ended, now=now)) if ended else span / 2
        up = span - down
    elif before.ready:
        up = (
            min(span, max(0.0, ended - before.observed_at))
            if not pod.ready and ended > before.observed_at
            else span
        )
        down = span - up
    else:
        up, down = 0.0, span if before.was_ever_ready or restarts else 0.0
    return Uptime(
        up=before.up + up,
        down=before.down + down,
        observed_at=now,
        ready=pod.ready,
        was_ever_ready=before.was_ever_ready or pod.ready,
        restarts=restarts,
    )


def _first_observation(pod: Pod, *, restarts: int, ended: float, now: float) -> Uptime:
    """Reconstruct the past of a pod that is observed for the first time, as after a restart of the operator.

    Kubernetes tells how often its containers ended, when the last one did and since when the pod is ready: each earlier
    restart counts as a short outage, all of them before it was ready last, and a pod that is not ready after one as down
    since then.
    """
    span = max(0.0, now - (max(float(pod.started), 0.0) or now))
    since_end = min(span, max(0.0, now - ended)) if ended else REPAIR_SECONDS
    if pod.ready:
        last = min(_outage(pod, ended, now=now), REPAIR_SECONDS) if ended else REPAIR_SECONDS
        before_ready = pod.ready_since - pod.started if pod.ready_since else span
        down = max(0.0, min(span, before_ready, (restarts - 1) * REPAIR_SECONDS + last)) if restarts else 0.0
    elif restarts:
        down = min(span, (restarts - 1) * REPAIR_SECONDS + since_end)
    else:
        # It starts for the first time, or was never seen ready: it was not there before.
        return Uptime(observed_at=now, restarts=restarts)
    return Uptime(
        up=span - down,
        down=down,
        observed_at=now,
        ready=pod.ready,
        was_ever_ready=pod.ready or span > down,
        restarts=restarts,
    )


def _outage(pod: Pod, ended: float, *, now: float) -> float:
    """Return for how long a pod that is ready was down after its last container ended.

    Both times are of its node's clock. A container that was replaced before anybody noticed leaves the pod ready.
    """
    return max(0.0, (pod.ready_since or now) - ended)


@dataclass(frozen=True, slots=True)
class PodHistory:
    """What was seen of the pods of one workload; kept between looks, and rebuilt by looking."""

    pods: Mapping[str, Uptime]
    past_pods: Uptime = Uptime()
    """What the pods went through that are there no more."""

    def observe(self, pods: Sequence[Pod], *, now: float) -> PodHistory:
        """After a look at all pods of the workload that are meant to serve."""
        found = {pod.uid: observe_pod(self.pods.get(pod.uid), pod, now=now) for pod in pods}
        lost = [each for uid, each in self.pods.items() if uid not in found]
        return PodHistory(found, _sum_uptimes([self.past_pods, *lost]))

    def availability(self, uid: str) -> float:
        """Estimate the availability of one pod; for a new one from those before it.

        A pod that has not failed yet is not one that never fails: the share grows with the time that it ran.
        """
        own, past = self.pods.get(uid, Uptime()), self.past_pods
        weight = min(1.0, INHERITED_SECONDS / (past.up + past.down)) if past.up + past.down else 0.0
        up, down = own.up + past.up * weight, own.down + past.down * weight
        share = up / (up + down) if down > 0 else 1.0 - REPAIR_SECONDS / (MIN_UPTIME_BEFORE_FAILURE + up)
        return min(share, MAX_AVAILABILITY)

    @property
    def total(self) -> Uptime:
        """Up and down of all pods there ever were."""
        return _sum_uptimes([self.past_pods, *self.pods.values()])

    def availabilities(self) -> dict[str, float]:
        return {uid: self.availability(uid) for uid in self.pods}


def combine_availabilities(availabilities: Iterable[float]) -> float:
    """Of a set that serves as long as one of it does; 0 of none."""
    return 1.0 - math.prod(1.0 - each for each in availabilities)


def _sum_uptimes(parts: Iterable[Uptime]) -> Uptime:
    parts = tuple(parts)
    return Uptime(up=sum(each.up for each in parts), down=sum(each.down for each in parts))

"""Availability of pods from observations: MTBF / (MTBF + MTTR) of a pod, 1 - Π(1 - a) of a set.

With as many repairs as failures, the former is the share of time in which the pod was up, so each observation adds
to two times: up and down. A pod is down from the observation that it is not ready, or from the end of a container,
until it is observed ready. A pod that starts for the first time is not down until it should have been ready. The
history of a workload's past pods counts for new ones. All functions are pure; time is an argument.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trimtab.kube.kinds.pods import Pod

INHERITED_SECONDS = 3600.0
"""The most seconds of past pods' history that a new pod inherits, so that its own history soon outweighs it."""
REPAIR_SECONDS = 60.0
"""The seconds that an unobserved restart is assumed to take."""
MIN_UPTIME_BEFORE_FAILURE = 6000.0
"""The assumed seconds before a first failure: a pod that has just started counts as 99 % available, and the value
grows while it runs without a failure."""
STARTUP_SECONDS = 300
"""The seconds of observation after which a pod that was never ready no longer counts as one that is starting."""
MAX_AVAILABILITY = 0.999
"""The highest availability of a single pod, however long it ran, because its node is drained, upgraded or lost at
some time."""


@dataclass(frozen=True, slots=True)
class Uptime:
    """The seconds for which a pod was up and down, and its last observation."""

    up: float = 0.0
    down: float = 0.0
    observed_at: float = 0.0
    ready: bool = False
    was_ever_ready: bool = False
    """True if the pod was ever ready."""
    restarts: int = 0
    first_observed_at: float = 0.0

    @property
    def is_overdue(self) -> bool:
        """True if the pod should have been ready by now and never was, such as one that no node can run.

        The time counts from its first observation: after a restart of the operator, a pod that is not ready may
        have been ready before.
        """
        return not self.was_ever_ready and self.observed_at - self.first_observed_at >= STARTUP_SECONDS


def observe_pod(before: Uptime | None, pod: Pod, *, now: float) -> Uptime:
    """Add one observation of a pod to its history."""
    restarts = sum(state.restarts for state in pod.container_statuses)
    ended = max(
        (state.last_termination.finished_at for state in pod.container_statuses if state.last_termination),
        default=0,
    )
    if before is None:
        return _first_observation(pod, restarts=restarts, ended=ended, now=now)
    span = max(0.0, now - before.observed_at)
    if before.ready and pod.ready and restarts > before.restarts:
        # The pod restarted between two observations: the end of the container shows since when.
        # Without a termination in the status, the outage lies anywhere between the two observations: half of it
        # is the mean.
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
        # A pod that is starting for the first time was never available, so it is not down. Otherwise each
        # scale-out would look like an outage.
        up, down = 0.0, span if before.was_ever_ready or restarts else 0.0
    return Uptime(
        up=before.up + up,
        down=before.down + down,
        observed_at=now,
        ready=pod.ready,
        was_ever_ready=before.was_ever_ready or pod.ready,
        restarts=restarts,
        first_observed_at=before.first_observed_at,
    )


def _first_observation(pod: Pod, *, restarts: int, ended: float, now: float) -> Uptime:
    """Reconstruct the past of a pod on its first observation, such as after a restart of the operator.

    The pod's status has the number of restarts, the last termination and the time of readiness. Each earlier
    restart counts as a short outage before the pod became ready, and a pod that is not ready after a restart
    counts as down since then.
    """
    span = max(0.0, now - (max(float(pod.started), 0.0) or now))
    since_end = min(span, max(0.0, now - ended)) if ended else REPAIR_SECONDS
    # Restarts before the first observation: the pod was not ready before its readiness time, which bounds all
    # outages together.
    if pod.ready:
        last = min(_outage(pod, ended, now=now), REPAIR_SECONDS) if ended else REPAIR_SECONDS
        before_ready = pod.ready_since - pod.started if pod.ready_since else span
        down = max(0.0, min(span, before_ready, (restarts - 1) * REPAIR_SECONDS + last)) if restarts else 0.0
    elif restarts:
        down = min(span, (restarts - 1) * REPAIR_SECONDS + since_end)
    else:
        # It starts for the first time, or was never ready: it was not available before, so it was not down.
        return Uptime(observed_at=now, restarts=restarts, first_observed_at=now)
    return Uptime(
        up=span - down,
        down=down,
        observed_at=now,
        ready=pod.ready,
        was_ever_ready=pod.ready or span > down,
        restarts=restarts,
        first_observed_at=now,
    )


def _outage(pod: Pod, ended: float, *, now: float) -> float:
    """Return the seconds for which a ready pod was down after its last container ended.

    Both times are from the node's clock. A container that was replaced quickly leaves the pod ready.
    """
    return max(0.0, (pod.ready_since or now) - ended)


@dataclass(frozen=True, slots=True)
class PodHistory:
    """The observed history of a workload's pods, kept between cycles and rebuilt from observations."""

    pods: Mapping[str, Uptime]
    past_pods: Uptime = Uptime()
    """The history of pods that no longer exist."""

    def observe(self, pods: Sequence[Pod], *, now: float) -> PodHistory:
        """Return the history after an observation of all serving pods of the workload."""
        found = {pod.uid: observe_pod(self.pods.get(pod.uid), pod, now=now) for pod in pods}
        lost = [each for uid, each in self.pods.items() if uid not in found]
        return PodHistory(found, _sum_uptimes([self.past_pods, *lost]))

    def availability(self, uid: str) -> float:
        """Estimate the availability of one pod; that of a new pod is based on earlier ones.

        A pod without a failure so far may still fail: its availability grows with its running time. A pod that
        does not become ready serves nobody, whatever is expected of a new one.
        """
        own, past = self.pods.get(uid, Uptime()), self.past_pods
        if own.is_overdue:
            return 0.0
        # Bounded, so that a new pod's own failures soon outweigh the past of pods that are gone.
        weight = min(1.0, INHERITED_SECONDS / (past.up + past.down)) if past.up + past.down else 0.0
        up, down = own.up + past.up * weight, own.down + past.down * weight
        share = up / (up + down) if down > 0 else 1.0 - REPAIR_SECONDS / (MIN_UPTIME_BEFORE_FAILURE + up)
        return min(share, MAX_AVAILABILITY)

    @property
    def total(self) -> Uptime:
        """The time up and down of all pods that ever existed."""
        return _sum_uptimes([self.past_pods, *self.pods.values()])

    def combined_bounds(self, uids: Iterable[str]) -> tuple[float, float]:
        """Return the availability of a set of pods, without and with those that are starting.

        Nobody knows yet if pods that were never ready will serve.
        """
        uids = tuple(uids)
        serving = (uid for uid in uids if self.pods.get(uid, Uptime()).was_ever_ready)
        low, high = (
            combine_availabilities(self.availability(uid) for uid in some) for some in (serving, uids)
        )
        return low, high


def combine_availabilities(availabilities: Iterable[float]) -> float:
    """Return the availability of a set that serves while one of it does; 0 for an empty set."""
    return 1.0 - math.prod(1.0 - each for each in availabilities)


def _sum_uptimes(parts: Iterable[Uptime]) -> Uptime:
    parts = tuple(parts)
    return Uptime(up=sum(each.up for each in parts), down=sum(each.down for each in parts))

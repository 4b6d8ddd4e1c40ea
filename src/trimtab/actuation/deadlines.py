"""All times of applying changes, in seconds, in one record: after which time a wait ends or something is checked again.

`decide/transitions.py` names for each row the times that end it.
"""

from __future__ import annotations

from dataclasses import dataclass

MINUTE = 60
HOUR = 3600
DAY = 24 * HOUR


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Times in seconds. None of them is a setting: those of a policy are in `updateStrategy`."""

    # When to check again, if no event of the cluster comes before.
    poll: int = 15
    """The interval at which pods of a change under way are checked."""
    recheck: int = MINUTE
    """The interval at which an obstacle that passes by itself is checked."""
    outdated_retry: int = 5
    """The time within which a recommendation is expected that considers the current pods."""
    rejection: int = 10 * MINUTE
    """The time after which a rejected write is tried again, because its cause, such as a quota, may be gone."""
    first_retry: int = 5
    """The back-off after the first failure of a reconcile; it doubles with each further one."""
    max_retry: int = 5 * MINUTE
    """The longest back-off after failures of a reconcile."""

    # After which time a change under way is given up.
    no_pods: int = HOUR
    """The time that a workload may be without pods, for example because a quota blocks them."""
    deferred: int = 5 * MINUTE
    """The time after which a node without capacity is not expected to have it soon."""
    never_resized: int = 6 * HOUR
    """The time after which a server that fails every resize is not expected to succeed soon."""
    unscheduled: int = 10 * MINUTE
    """The time after which an unscheduled pod would have a node if the cluster were able to grow."""
    progress: int = HOUR
    """The time without progress after which a change is stuck."""
    max_duration: int = 7 * DAY
    """The time after which a change that goes on without an end never ends."""
    crash_loop: int = MINUTE
    """The time in which a crash-looping container could have been resized: its back-off is 10, 20 and 40 seconds."""
    late_pods: int = DAY
    """The longest time that pods created after the others are waited for: in some workloads, pods come and go all
    the time."""
    final_resize: int = 5 * MINUTE
    """The time for which pods are resized to the part of an abandoned revert that fits."""
    oom_relief_grace: int = MINUTE
    """The time after which more memory for OOM killed pods goes before a revert that still waits."""

    # For how long nothing is started.
    min_cooldown: int = HOUR
    """The cooldown after the first revert; it doubles with each further one."""
    max_cooldown: int = 7 * DAY
    """The longest cooldown after reverts."""
    not_at_fault_cooldown: int = 5 * MINUTE
    """The cooldown after a change that was superseded by somebody else's, which should be over by then."""
    template_reset: int = DAY
    """The least time between two changes of a template that somebody else sets back: each would replace all pods."""
    pod_sync: int = MINUTE
    """The time within which pod sync has resized a new pod, if it can: a crashing container is restarted after 10, 20
    and 40 seconds, and can be resized while it runs."""

    # When pods count as unhealthy.
    unready: int = MINUTE
    """The time for which pods must have been unready before more of them than by chance count; a single failed probe
    passes sooner."""
    startup: int = 5 * MINUTE
    """The time within which a restarted pod is ready again; beyond it, a smaller share of unready pods counts."""
    restart_history: int = DAY
    """The time before a change in which restarts count as usual for its pods."""
    recent_restarts: int = HOUR
    """The time before a change in which restarts that just became more frequent are no fault of the change."""
    prior_watch: int = 7 * DAY
    """The additional observation that a workload without a known restart is credited with, because a working container
    restarts less than once a week. Without it, repeated kills of the only pod of a new workload would not look unusual.
    """

    # Clocks and limits.
    clock_skew: int = 5 * MINUTE
    """The time by which the clocks of two replicas may differ."""
    slot: int = HOUR
    """The time after which a slot of the rate limiter that was not released is free again."""
    increase_grace: int = 5
    """The time after its slot in which an increase still goes before a decrease."""


DEADLINES = Deadlines()

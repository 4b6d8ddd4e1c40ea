"""Evidence about a container, and the one question that it answers: what is the least that the container may safely have of
a resource, and why?

A workload's replicas are one container here: peaks are the highest over all of them, counts their sum.

The answer rests on evidence alone (peaks, OOM kills, heaps, coverage) and on the policy's lower
bound. It is pure, and this is the only place that answers: every part that lowers a container, or restores an
earlier size, asks here:

* the sizing pipeline (`guards.requests`), for every recommendation of policies, `scan` and `patch`
* `recommender.workload`, whose answer (`needed_memory`) actuation uses for new changes and for reverts
* Intents, the VPA drop-in and pod admission, before they give a container less than it has

Ask with `sized_resource(...)` and `safe_minimum(...)` for the highest reason, or `safe_minimums(...)` for all
of them. Demands of an autoscaler, a namespace or a node are not included: they are not about the container's
own safety.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from math import ceil, log

import msgspec

from trimtab.api.fields import format_time
from trimtab.api.optimizationpolicy import LimitMode, UsageShiftMode
from trimtab.api.quantity import MIB, ResourceName, format_step
from trimtab.kube.kinds.pods import Container
from trimtab.sizing.policy_rules import PolicyRules, ResourceRules


class OomKills(msgspec.Struct, frozen=True, gc=False):
    """All OOM kills of a container at one size. Sizes less than about 5 % apart count as one."""

    memory: int
    """The bytes that the container had when it was killed: its limit, else its request, else its usage."""
    count: int
    """The number of kills; replicas killed in the same second count once."""
    first: float
    """The time of the first kill at this size, in seconds since 1970."""
    last: float
    """The time of the last kill at this size."""


class Heap(msgspec.Struct, frozen=True, gc=False):
    """A heap that the process bounds by itself, whatever the container has."""

    max_bytes: int
    """The most bytes to which the heap may grow."""
    source: str
    """The setting that bounds the heap, such as `-Xmx in args`."""


class UsageShift(msgspec.Struct, frozen=True, gc=False):
    """A sudden change of a container's usage pattern (`sizing.tracking.usage_shifts`)."""

    resource: ResourceName
    factor: float
    """The usage of the hour in which the shift was found, divided by the highest of the same time of day in the last one
    or two weeks; or by the lowest, if it is below 1.
    """
    since: float
    """The time at which the shift was found, in seconds since 1970."""
    until: float
    """The time at which the shift ends, if usage is no longer unusual until then."""

    def __str__(self) -> str:
        name, extreme = (
            "CPU" if self.resource == "cpu" else "memory",
            "lowest" if self.factor < 1 else "highest",
        )
        return (
            f"{name} usage was {self.factor:.2g} times the {extreme} of this time of day in the last one or two weeks,"
            f" for hours until {format_time(self.since)}"
        )


NO_SHIFTS: Mapping[str, UsageShift] = {}
"""The shifts of nearly all workloads, shared by them."""


class Evidence(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """The evidence about one container; None is unknown."""

    samples: int = 0
    run_seconds: float = 0.0
    """Seconds that the samples cover; samples of the past cover more each. For replicas, seconds in which any
    ran.
    """
    total_run_seconds: float = 0.0
    """The same since the first sample, also before a pause after which `run_seconds` began again."""
    first_sample_at: float = 0.0
    """The time of the first sample, in seconds since 1970."""
    last_sample_at: float = 0.0
    """The time of the last sample, in seconds since 1970."""
    coverage: float = 1.0
    """The share of expected samples that are there while the container ran, of the last day or
    week, whichever is lower.
    """
    is_long_running: bool = True
    """True if the container runs all the time, so that samples should be fresh; a Job's container does not.
    """
    cpu_peak: int | None = None
    """The highest CPU of the last day or so (24 to 36 hours), in millicores."""
    cpu_peak_week: int | None = None
    """The highest CPU of the last week, in millicores."""
    memory_peak: int | None = None
    """The highest working set of the last week, in bytes."""
    throttled_share: float | None = None
    """The share of scheduling periods in which the CPU limit throttled the container."""
    kills: tuple[OomKills, ...] = ()
    """The OOM kills, one record per size, ordered by their first kill. A month without a kill, or a new
    image, clears them.
    """
    recent_memory: int = 0
    """The largest memory that the container had for an hour or longer in about the last week, killed or
    not; 0 if unknown.
    """
    earlier_memory: int = 0
    """The largest memory that the container had for an hour or longer in the last month, or that its template
    gives it.
    """
    heap: Heap | None = None
    usage_shift: UsageShift | None = None
    """The sudden change of the usage pattern that is in effect."""

    @property
    def observed_seconds(self) -> float:
        """The observed seconds. Gaps do not count, except between the runs of a Job."""
        between = self.last_sample_at - self.first_sample_at
        return min(self.run_seconds, between) if self.is_long_running else between

    @property
    def has_measured_memory(self) -> bool:
        """True if the memory of the container was ever measured, by a sample or by an OOM kill."""
        return self.memory_peak is not None or bool(self.kills)

    @property
    def last_kill_at(self) -> float | None:
        """The time of the last OOM kill; None if there was none."""
        return max((kills.last for kills in self.kills), default=None)


NO_DECREASE = sys.maxsize
"""An amount that nothing reaches: too little is known to make the container smaller at all."""

MIN_COVERAGE = 0.5
"""The share of expected samples below which a container is not made smaller."""
MAX_THROTTLED_SHARE = 0.05
"""The share of throttled periods above which CPU is not made smaller."""
MEMORY_HEADROOM = 0.1
"""The share of headroom above the highest recent memory when memory is made smaller."""
CPU_HEADROOM = 0.2
"""The share of headroom above the highest recent CPU when a CPU limit is made smaller: peaks are averages of
minutes.
"""
LEARNING_PERIOD = 86400.0
"""The seconds of observation that show a whole daily cycle."""
EARLY_STEPS = tuple(hours * 3600.0 for hours in (4, 6, 8, 12, 16))
"""The seconds of observation at which the first decreases start and may go further.

Between them the minimum stays: each new one would be a new recommendation, and a change of the pods.
"""
EARLY_HEADROOM: Mapping[ResourceName, tuple[float, float]] = {
    "cpu": (CPU_HEADROOM, 1.0),
    "memory": (MEMORY_HEADROOM, 0.28),
}
"""The headroom after a day, and its growth with the logarithm of the missing part of the day.

Measured: with it, usage of the next week is above a decrease as rarely as after a day (`docs/research/backtest.md`)."""
HISTORY = "history"
"""The name of the minimum that a short history demands."""
_HISTORY_SOURCE = "policy metricsConfig.minimumHistory"
HEAP_OVERHEAD, MIN_HEAP_OVERHEAD = 0.25, 64 * MIB
"""The memory that a process needs beside its heap, as a share of the heap: code, threads, buffers."""
OOM_FACTOR, OOM_MIN_INCREASE = 1.2, 100 * MIB
"""The factor by which memory grows after an OOM kill, and the least bytes."""
OOM_KILLS_SOURCE = "OOM kills"


class SizedResource(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One resource of one container, with its evidence and the rules of its policy."""

    resource: ResourceName
    request: int | None
    """The effective request: the limit if only a limit is set, None if neither is."""
    limit: int | None
    rule: ResourceRules
    rules: PolicyRules
    evidence: Evidence
    now: float
    restarts_container: bool = False
    """True if a change of this resource restarts the container."""


class SafeMinimum(msgspec.Struct, frozen=True, gc=False):
    """One reason why a container must not have less than this amount."""

    name: str
    """The name of the reason, as an explanation shows it: `peak`."""
    amount: int
    """The amount in millicores or bytes, or `NO_DECREASE`."""
    why: str
    source: str
    binds_limit: bool = True
    """True if the limit must not be lower either: a limit below the need throttles or kills."""
    binds_request: bool = True
    """True if the request must not be lower. A CPU request below a peak takes nothing away."""


def sized_resource(
    container: Container, resource: ResourceName, *, evidence: Evidence, rules: PolicyRules, now: float
) -> SizedResource:
    """Gather the input of the question; `rules` are the policy's, of which those of this container are used."""
    own = rules.for_container(container.name)
    # Kubernetes takes a limit without a request as the request: read as unset, the container would seem to reserve
    # nothing.
    counted = container.resources.select(resource).with_implied_request()
    return SizedResource(
        resource=resource,
        request=counted.request or None,
        limit=counted.limit,
        rule=own.cpu if resource == "cpu" else own.memory,
        rules=own,
        evidence=evidence,
        now=now,
        restarts_container=own.restarts_pods or container.restarts_on_resize(resource),
    )


def safe_minimums(sized: SizedResource) -> tuple[SafeMinimum, ...]:
    """List every reason against a smaller amount of this resource."""
    reasons = CPU_CHECKS if sized.resource == "cpu" else MEMORY_CHECKS
    return tuple(found for reason in reasons if (found := reason(sized)) is not None)


def safe_minimum(sized: SizedResource) -> SafeMinimum | None:
    """Return the reason that demands the largest request; None if there is none."""
    found = (each for each in safe_minimums(sized) if each.binds_request)
    return max(found, key=lambda each: each.amount, default=None)


def safe_limit(sized: SizedResource) -> SafeMinimum | None:
    """Return the reason that demands the largest limit; None if there is none."""
    found = (each for each in safe_minimums(sized) if each.binds_limit)
    return max(found, key=lambda each: each.amount, default=None)


def needed_memory(container: Container, *, evidence: Evidence, rules: PolicyRules, now: float) -> int | None:
    """Return the bytes that a container is known to need; None if its usage was never measured.

    A short history or a gap in the samples is no amount, so it is not part of this answer: it forbids a new
    decrease, but must not stop a revert to an earlier size.
    """
    if not evidence.has_measured_memory:
        return None
    return largest_known(
        safe_minimums(sized_resource(container, "memory", evidence=evidence, rules=rules, now=now))
    )


def largest_known(found: Iterable[SafeMinimum]) -> int:
    """Return the largest amount below which a limit must not be; reasons without an amount do not count."""
    return max(
        (
            each.amount
            for each in found
            if each.binds_limit and each.name != HISTORY and each.amount != NO_DECREASE
        ),
        default=0,
    )


def add_headroom(peak: int, share: float = MEMORY_HEADROOM) -> int:
    """Return a peak with its headroom above it, in whole bytes."""
    return peak + ceil(peak * share)


def check_history(sized: SizedResource) -> SafeMinimum | None:
    """Limit decreases while little was observed: one quiet night does not show what a container needs.

    They start after a fixed time, or after some hours; then, the shorter the history is, the more stays above its peak.
    """
    known, start = (
        sized.evidence.observed_seconds,
        first_decrease(sized.evidence, sized.rules, restarts=sized.restarts_container),
    )
    if known < start:
        why = f"observed for {known / 3600:.1f} h; decreases start after {start / 3600:.1f} h"
        return SafeMinimum("history", NO_DECREASE, why, _HISTORY_SOURCE)
    if sized.rules.minimum_history is not None or known >= LEARNING_PERIOD:
        return None
    peak, progress = _highest_peak(sized), f"{known / 3600:.1f} of {LEARNING_PERIOD / 3600:g} h"
    if peak is None:
        why = f"observed for {progress}, and the peak of the last week is unknown"
        return SafeMinimum("history", NO_DECREASE, why, _HISTORY_SOURCE)
    share = early_headroom(sized.resource, known)
    why = f"peak of {format_step(sized.resource, peak)} plus {share:.0%}, because {progress} were observed"
    return SafeMinimum("history", add_headroom(peak, share), why, _HISTORY_SOURCE)


def first_decrease(evidence: Evidence, rules: PolicyRules, *, restarts: bool = False) -> float:
    """Return the seconds of observation before which nothing is lowered; `restarts` if a change restarts the container."""
    if rules.minimum_history is not None:
        return rules.minimum_history
    # What restarts is changed once, not at each step; and two runs of a Job are no hours of observation.
    waits = restarts or rules.restarts_pods or not evidence.is_long_running
    return LEARNING_PERIOD if waits else EARLY_STEPS[0]


def early_headroom(resource: ResourceName, observed: float) -> float:
    """Return the share above the peak of a short history that makes a decrease no riskier than one after a day.

    It is that of the last step which the history reached.
    """
    least, growth = EARLY_HEADROOM[resource]
    return least + growth * log(LEARNING_PERIOD / max(each for each in EARLY_STEPS if each <= observed))


def _highest_peak(sized: SizedResource) -> int | None:
    evidence = sized.evidence
    if sized.resource == "memory":
        return evidence.memory_peak
    return max(
        (each for each in (evidence.cpu_peak, evidence.cpu_peak_week) if each is not None), default=None
    )


def find_usage_shifts(evidence: Mapping[str, Evidence], rules: PolicyRules) -> Mapping[str, UsageShift]:
    """Return the shifts in effect by container, of those that the policy reports."""
    if rules.usage_shift is UsageShiftMode.IGNORE:
        return NO_SHIFTS
    return {name: each.usage_shift for name, each in evidence.items() if each.usage_shift} or NO_SHIFTS


def describe_usage_shifts(shifts: Mapping[str, UsageShift], rules: PolicyRules) -> str:
    """Describe the shifts of a workload and what they lead to; empty if there are none."""
    if not shifts:
        return ""
    found = "; ".join(f"{name}: {each}" for name, each in sorted(shifts.items()))
    return f"{found}; nothing is lowered until it is learned" if rules.holds_shifted else found


def describe_learning(
    evidence: Collection[Evidence],
    rules: PolicyRules,
    *,
    restarts: bool = False,
    partly: Collection[ResourceName] = (),
) -> str:
    """Describe how much of the history that decreases need was observed, of the container observed least; empty if all.

    `restarts` if changes restart the containers; otherwise `partly` names the resources of which some do. In whole hours,
    because each new text is written to a status.
    """
    if not evidence:
        return ""
    least = min(evidence, key=lambda each: each.observed_seconds)
    known, start = least.observed_seconds, first_decrease(least, rules, restarts=restarts)
    needed = LEARNING_PERIOD if rules.minimum_history is None else start
    if known >= needed:
        return ""
    progress = f"learning: {known // 3600:.0f} of {needed / 3600:g} h observed"
    if start == needed:
        return f"{progress}; nothing is lowered before"
    resources = " or ".join("CPU" if each == "cpu" else each for each in partly)
    where = (
        f"; where a change of {resources} restarts its container, it is not lowered before" if partly else ""
    )
    if known < start:
        progress += f"; nothing is lowered in the first {start / 3600:g} h"
    else:
        progress += "; decreases leave more above the peak until then"
    return f"{progress}{where}"


def check_coverage(sized: SizedResource) -> SafeMinimum | None:
    """Forbid a decrease while many samples are missing: peaks may lie in the gaps."""
    share = sized.evidence.coverage
    if share >= MIN_COVERAGE:
        return None
    why = f"{share:.0%} of the samples exist, {MIN_COVERAGE:.0%} are needed"
    return SafeMinimum("coverage", NO_DECREASE, why, "usage")


def check_throttling(sized: SizedResource) -> SafeMinimum | None:
    """Forbid a decrease of CPU while it is throttled: usage under a limit does not show the need."""
    share = sized.evidence.throttled_share
    if share is None or share <= MAX_THROTTLED_SHARE:
        return None
    return SafeMinimum("throttling", NO_DECREASE, f"CPU is throttled in {share:.0%} of periods", "usage")


def check_usage_shift(sized: SizedResource) -> SafeMinimum | None:
    """Forbid a decrease for the days in which a sudden change of the usage pattern is learned."""
    shift = sized.evidence.usage_shift
    if shift is None or not sized.rules.holds_shifted:
        return None
    return SafeMinimum(
        "usage shift",
        NO_DECREASE,
        f"{shift}; nothing is lowered until it is learned",
        "policy changes.usageShift",
    )


def check_memory_peak(sized: SizedResource) -> SafeMinimum | None:
    """Keep memory above its peak of the last week and some headroom: a job may need it once a day, or once a week."""
    highest = sized.evidence.memory_peak
    if highest is None:
        return SafeMinimum("peak", NO_DECREASE, "the peak of the last week is unknown", "usage")
    why = f"peak of {format_step('memory', highest)} in the last week plus {MEMORY_HEADROOM:.0%}"
    return SafeMinimum("peak", add_headroom(highest), why, "usage")


def check_cpu_peak(sized: SizedResource) -> SafeMinimum | None:
    """Keep a CPU limit above the peak of the last week: below it the container is throttled just when it is busy."""
    highest, share = _highest_peak(sized), CPU_HEADROOM
    if highest is None or sized.rule.limit_below_peak:
        return None
    why = f"recent peak of {format_step('cpu', highest)} plus {share:.0%}"
    return SafeMinimum("peak", add_headroom(highest, share), why, "usage", binds_request=False)


def check_oom_kills(sized: SizedResource) -> SafeMinimum | None:
    """Keep more than the size at which the container was last OOM killed.

    The kernel killed it at its limit, whatever the samples show: the peak lies between two of them.
    """
    size = killed_size(sized)
    if not size:
        return None
    return SafeMinimum(
        "kills", oom_minimum(sized), f"OOM killed with {format_step('memory', size)}", OOM_KILLS_SOURCE
    )


def check_oom_recovery(sized: SizedResource) -> SafeMinimum | None:
    """Keep the request while an OOM kill counts: what the container got since has shown to be enough."""
    if not killed_size(sized):
        return None
    days = sized.rules.safety.oom_history / 86400
    why = f"OOM killed within the last {days:g} days"
    return SafeMinimum("recovery", NO_DECREASE, why, OOM_KILLS_SOURCE, binds_limit=False)


def killed_size(sized: SizedResource) -> int:
    """Return the most memory with which the container was killed while that counts; 0 if it was not."""
    if sized.resource != "memory" or not sized.evidence.kills:
        return 0
    since = sized.now - sized.rules.safety.oom_history
    return max((each.memory for each in sized.evidence.kills if each.last >= since), default=0)


def oom_minimum(sized: SizedResource) -> int:
    """Return the memory with which the container would not have been killed, as far as is known; 0 if it was
    not.
    """
    size = killed_size(sized)
    return max(ceil(size * OOM_FACTOR), size + OOM_MIN_INCREASE) if size else 0


def is_oom_prone(sized: SizedResource) -> bool:
    """Return whether an OOM killed container still has too little memory."""
    if not sized.evidence.kills:  # nearly all containers, and each guard may ask
        return False
    need = oom_minimum(sized)
    if not need:
        return False
    # Without a limit the kernel kills only when the node is full, so that the former size says little.
    is_limit_gone = sized.limit is None and sized.rule.limit is LimitMode.REMOVE
    if is_limit_gone and killed_size(sized) > (sized.request or 0):
        return False  # The limit that killed the container is gone.
    return (sized.limit or sized.request or 0) < need


def check_heap(sized: SizedResource) -> SafeMinimum | None:
    """Keep space for a whole heap and the memory beside it: a collected heap fills up to its own bound."""
    heap = sized.evidence.heap
    if heap is None:
        return None
    overhead = max(ceil(heap.max_bytes * HEAP_OVERHEAD), MIN_HEAP_OVERHEAD)
    why = f"heap of up to {format_step('memory', heap.max_bytes)} plus {format_step('memory', overhead)} for everything else"
    return SafeMinimum("heap", heap.max_bytes + overhead, why, heap.source)


def check_policy_bound(sized: SizedResource) -> SafeMinimum | None:
    """Keep the policy's lower bound on requests."""
    rule = sized.rule
    if rule.min_request <= 1:
        return None
    why = f"at least {format_step(sized.resource, rule.min_request)}"
    source = f"policy {rule.bounds_field}.{sized.resource}"
    return SafeMinimum("bounds", rule.min_request, why, source, binds_limit=False)


MinimumCheck = Callable[[SizedResource], SafeMinimum | None]
CPU_CHECKS: tuple[MinimumCheck, ...] = (
    check_history,
    check_coverage,
    check_usage_shift,
    check_throttling,
    check_cpu_peak,
    check_policy_bound,
)
MEMORY_CHECKS: tuple[MinimumCheck, ...] = (
    check_history,
    check_coverage,
    check_usage_shift,
    check_oom_recovery,
    check_oom_kills,
    check_memory_peak,
    check_heap,
    check_policy_bound,
)

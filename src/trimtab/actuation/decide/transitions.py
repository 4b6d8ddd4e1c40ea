"""The life-cycle of a change as one ordered table: in each state, the first row whose condition holds is carried out.

`decide` is pure. It gets the current state, including the annotations on the workload, and remembers nothing, so that
it can be called at any time, twice, or by another process after a crash. A change is recorded before the first pod is
touched, and no other action is taken before annotations that are to be written are there.

The page `docs/reference/transitions.md` is generated from this table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trimtab.actuation.actions import ChangeAction, EmitEvent, Skip, Wait, WriteAnnotations
from trimtab.actuation.change_annotations import Phase, UpdateMethod, clamp_future_times
from trimtab.actuation.deadlines import DEADLINES
from trimtab.actuation.decide import advance, conflicts, revert, stalls, start, sync_pods
from trimtab.actuation.decide.maintenance_windows import next_opening
from trimtab.actuation.decide.observation import Observation, State
from trimtab.api.fields import format_time

Condition = Callable[[Observation], object]
Actions = Callable[[Observation], list[ChangeAction]]

IDLE = frozenset({State.IDLE})
CANARY = frozenset({State.CANARY})
PROMOTING = frozenset({State.PROMOTING})
VERIFYING = frozenset({State.VERIFYING})
REVERTING = frozenset({State.REVERTING})
BEFORE_VERIFYING = CANARY | PROMOTING
AFTER_CANARY = PROMOTING | VERIFYING
WATCHED = CANARY | VERIFYING
FORWARD = CANARY | PROMOTING | VERIFYING
ANY = FORWARD | IDLE | REVERTING


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A row of the table."""

    id: str
    """The stable name of the row, in logs, metrics and history."""
    states: frozenset[State]
    """The states in which the row applies."""
    condition: Condition
    actions: Actions
    targets: frozenset[State] = frozenset()
    """The states afterwards; empty if the state stays."""
    when: str
    """The condition in words."""
    then: str
    """The actions in words."""
    deadlines: tuple[str, ...] = ()
    """The times after which the row applies: fields of `Deadlines`, or settings of `updateStrategy`."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The row that applies, and its actions in order; a Wait or Skip among them says why there is nothing more."""

    transition: Transition
    actions: list[ChangeAction]
    source: State

    @property
    def target(self) -> State:
        """The state after the actions: that of the annotations that they write."""
        for action in self.actions:
            if isinstance(action, WriteAnnotations):
                change = action.annotations.change
                return State(change.phase) if change else State.IDLE
        return self.source


def decide(observation: Observation) -> Decision:
    """Return the first row of the table that applies, and its actions."""
    source = observation.state
    transition = next(row for row in _ROWS[source] if row.condition(observation))
    actions = transition.actions(observation)
    if not any(isinstance(action, WriteAnnotations) for action in actions) and transition.states != ANY:
        actions = [*actions, *sync_pods.sync_during_change(observation)]
    return Decision(transition, actions, source)


def next_actions(observation: Observation) -> list[ChangeAction]:
    """Return the actions of this step in order."""
    return decide(observation).actions


# Conditions and actions that need no module of their own


def _always(_: Observation) -> bool:
    return True


def _skip(why: Callable[[Observation], str]) -> Actions:
    return lambda observation: [Skip(why(observation))]


def _recheck(why: Callable[[Observation], str]) -> Actions:
    return lambda observation: [Wait(observation.now + DEADLINES.recheck, why(observation))]


def _poll(why: Callable[[Observation], str]) -> Actions:
    return lambda observation: advance.poll(observation, why(observation))


def _has_future_times(observation: Observation) -> object:
    right = clamp_future_times(observation.annotations, now=observation.now)
    return right if right != observation.annotations else None


def _describe_block(observation: Observation) -> str:
    left = "; the change in progress stays as it is" if observation.annotations.change else ""
    return observation.desired.blocked_reason + left


def _has_no_pods(observation: Observation) -> bool:
    # A CronJob has pods only while one of its Jobs runs, and is sized by its template.
    return not observation.live and observation.workload.kind != "CronJob"


def _unless_urgent(condition: Condition) -> Condition:
    """Return the condition for changes other than more memory after an OOM kill, which waits only for what would
    block the change itself: the very kills that it ends may break guardrails.
    """
    return lambda observation: not observation.desired.is_urgent and condition(observation)


def _is_in_revert_cooldown(observation: Observation) -> bool:
    return observation.now < start.cooldown_end(observation)


def _wait_for_revert_cooldown(observation: Observation) -> list[ChangeAction]:
    reverted = observation.annotations.reverted
    if reverted and reverted.refused:
        return [Skip(f"the workload cannot be sized: {reverted.why}")]
    until = start.cooldown_end(observation)
    why = (
        f"the last change was reverted: {reverted.why}; next attempt at {format_time(until)}"
        if reverted
        else ""
    )
    return [Wait(until, why)]


def _wait_for_interval(observation: Observation) -> list[ChangeAction]:
    wait = start.wait_for_interval(observation)
    return [wait] if wait else []


def _next_opening(observation: Observation) -> int | None:
    return next_opening(observation.strategy.windows, now=observation.now)


def _wait_for_window(observation: Observation) -> list[ChangeAction]:
    opening = _next_opening(observation)
    return [] if opening is None else [Wait(opening, conflicts.describe_closed_windows(opening))]


def _has_no_method(observation: Observation) -> bool:
    return start.plan_start(observation).method is None


def _is_in_sync(observation: Observation) -> bool:
    """Return whether nothing would change: also where a change did what is possible, and the rest never will be."""
    plan = start.plan_start(observation)
    return plan.is_in_sync or bool(plan.fixed_reason and observation.annotations.applied)


def _is_in_sync_without_method(observation: Observation) -> bool:
    plan = start.plan_start(observation)
    return plan.method is None and bool(observation.annotations.applied) and plan.after == plan.before


def _decline(observation: Observation) -> list[ChangeAction]:
    choice = start.plan_start(observation).choice
    if isinstance(choice, Skip):
        return [choice, EmitEvent("Warning", "Skipped", choice.reason)]
    return [choice] if isinstance(choice, Wait) else []


def _if_pending(condition: Condition) -> Condition:
    """Return the condition for work on pods or template, which ends where the change goes on without them."""
    return lambda observation: advance.has_pending_work(observation) and condition(observation)


def _if_awaited(condition: Condition) -> Condition:
    return lambda observation: advance.is_awaited(observation) and condition(observation)


def _reverting_row(
    row_id: str,
    states: frozenset[State],
    reason: Callable[[Observation], str],
    when: str,
    *,
    condition: Condition | None = None,
    not_at_fault: bool = False,
    deadlines: tuple[str, ...] = (),
) -> Transition:
    """Return a row that starts a revert for a reason."""
    fault = ", without a fault" if not_at_fault else ""
    return Transition(
        id=row_id,
        states=states,
        condition=condition or reason,
        actions=lambda observation: advance.start_revert(
            observation, reason(observation), not_at_fault=not_at_fault
        ),
        targets=REVERTING,
        when=when,
        then=f"start to revert{fault}",
        deadlines=deadlines,
    )


# The table


_ALWAYS_FIRST = (
    # Before everything else: a change that cannot be read may be under way, and a second one would forget the sizes
    # to which the first goes back.
    Transition(
        id="AnnotationsUnreadable",
        states=ANY,
        condition=lambda observation: observation.unreadable_reason,
        actions=_skip(lambda observation: observation.unreadable_reason),
        when="an annotation of ours cannot be read",
        then="do nothing until somebody removes it",
    ),
    # A change under way is not even reverted: with a dry run or mode Recommend, nothing at all may be written.
    Transition(
        id="Blocked",
        states=ANY,
        condition=lambda observation: observation.desired.blocked_reason,
        actions=_skip(_describe_block),
        when="the policy's mode, a dry run, a VPA or an Intent forbids changes",
        then="do nothing; a change under way stays where it is",
    ),
    Transition(
        id="Deleting",
        states=ANY,
        condition=lambda observation: observation.workload.deleting,
        actions=lambda _: [],
        when="the workload is being deleted",
        then="do nothing",
    ),
    # Before all rows that compare times: a wait until a time of a clock that ran ahead would last until the true
    # time reaches it.
    Transition(
        id="ClockCorrected",
        states=ANY,
        condition=_has_future_times,
        actions=lambda observation: [
            WriteAnnotations(clamp_future_times(observation.annotations, now=observation.now))
        ],
        when="a time in the annotations lies in the future, written by a clock that ran ahead",
        then="set it to now",
        deadlines=("clock_skew",),
    ),
)

_IDLE = (
    # Before PodsSynced, which would request the rejected lower limit again and again for each new pod.
    Transition(
        id="MemoryLimitKept",
        states=IDLE,
        condition=sync_pods.raised_limits,
        actions=sync_pods.record_raised_limits,
        when="new pods have a higher memory limit than the workload, and the cluster lowers none in place",
        then="record the higher limit as the workload's",
    ),
    # Before Held and all cooldowns: a new pod with the size of its template has less than all others, and waits for
    # no window, interval or person.
    Transition(
        id="PodsSynced",
        states=IDLE,
        condition=lambda observation: sync_pods.sync_work(observation).resizes,
        actions=lambda observation: sync_pods.sync_work(observation).resizes,
        when="new pods have the size of their template, or a startup boost begins or ends",
        then="resize them to the size of the workload",
    ),
    Transition(
        id="PodsStarting",
        states=IDLE,
        condition=sync_pods.waits_for_boosts,
        actions=sync_pods.wait_for_boosts,
        when="pods are starting with more CPU",
        then="wait for the end of the boost",
    ),
    Transition(
        id="Held",
        states=IDLE,
        condition=lambda observation: observation.desired.hold_reason,
        actions=_skip(lambda observation: observation.desired.hold_reason),
        when="a person holds the workload",
        then="start nothing",
    ),
    Transition(
        id="NoRecommendation",
        states=IDLE,
        condition=lambda observation: not observation.desired.sizes,
        actions=_skip(
            lambda observation: observation.desired.no_sizes_reason or "there is no recommendation yet"
        ),
        when="there is no recommendation",
        then="start nothing",
    ),
    Transition(
        id="NoPods",
        states=IDLE,
        condition=_has_no_pods,
        actions=_skip(
            lambda observation: (
                f"the {observation.workload.kind} has finished"
                if observation.workload.finished
                else "the workload has no running pods"
            )
        ),
        when="no pod runs, and the workload is no CronJob",
        then="start nothing",
    ),
    # A recommendation is a step from the size that it was computed from: from any other, the change would go too
    # far or the wrong way.
    Transition(
        id="RecommendationOutdated",
        states=IDLE,
        condition=lambda observation: start.is_outdated(observation.desired, observation.effective),
        actions=lambda observation: [
            Wait(
                observation.now + DEADLINES.outdated_retry,
                "the sizes of the pods have changed since the recommendation; Trimtab waits for the next one",
            )
        ],
        when="the recommendation was computed from other sizes than those in effect",
        then="wait for the next one",
    ),
    Transition(
        id="InSync",
        states=IDLE,
        condition=_is_in_sync,
        actions=sync_pods.report_unsynced,
        when="pods have the recommended size, as far as it is safe and possible",
        then="nothing; name pods that pod sync could not resize",
    ),
    Transition(
        id="OnlyByReplacement",
        states=IDLE,
        condition=lambda observation: start.plan_start(observation).fixed_reason,
        actions=_skip(lambda observation: start.plan_start(observation).fixed_reason),
        when="no part of the change is possible in place, and `allowRecreate` is false",
        then="start nothing",
    ),
    # From here on the most lasting obstacle comes first, because it is the one in the status.
    Transition(
        id="RestingAfterRevert",
        states=IDLE,
        condition=_is_in_revert_cooldown,
        actions=_wait_for_revert_cooldown,
        when="the cooldown after a revert is not over",
        then="wait for its end",
    ),
    Transition(
        id="RolloutInProgress",
        states=IDLE,
        condition=start.waits_for_rollout,
        actions=_recheck(lambda _: "a rollout of the workload is in progress; Trimtab waits for its end"),
        when="somebody else's rollout goes on; a resize after an OOM kill does not wait for it",
        then="wait",
    ),
    Transition(
        id="GuardrailBroken",
        states=IDLE,
        condition=_unless_urgent(start.broken_guardrails),
        actions=_recheck(
            lambda observation: (
                f"guardrail {start.broken_guardrails(observation)} does not hold or cannot be evaluated; no change starts until it holds"
            )
        ),
        when="a guardrail does not hold or is unknown",
        then="wait",
    ),
    Transition(
        id="UsageUnknown",
        states=IDLE,
        condition=_unless_urgent(lambda observation: observation.desired.usage_error),
        actions=_recheck(
            lambda observation: (
                f"usage cannot be read, so a change could not be verified: {observation.desired.usage_error}"
            )
        ),
        when="usage cannot be read",
        then="wait",
    ),
    Transition(
        id="Cooldown",
        states=IDLE,
        condition=_unless_urgent(start.wait_for_interval),
        actions=_wait_for_interval,
        when="`minInterval` since the last change is not over, or a day where somebody set its template back",
        then="wait for its end",
    ),
    Transition(
        id="NoWindowOpens",
        states=IDLE,
        condition=_unless_urgent(lambda observation: _next_opening(observation) is None),
        actions=_skip(lambda _: conflicts.NO_WINDOW_OPENS),
        when="no maintenance window ever opens",
        then="start nothing",
    ),
    Transition(
        id="OutsideWindow",
        states=IDLE,
        condition=_unless_urgent(lambda observation: _next_opening(observation) != observation.now),
        actions=_wait_for_window,
        when="no maintenance window is open",
        then="wait for the next one",
    ),
    Transition(
        id="Unhealthy",
        states=IDLE,
        condition=_unless_urgent(
            lambda observation: (
                observation.workload.is_long_running and advance.unavailable_reason(observation)
            )
        ),
        actions=_recheck(advance.unavailable_reason),
        when="more than a tenth of the pods are missing or not ready",
        then="wait",
    ),
    Transition(
        id="InSyncWithoutMethod",
        states=IDLE,
        condition=_is_in_sync_without_method,
        actions=sync_pods.report_unsynced,
        when="no allowed method changes what is left",
        then="nothing; name pods that pod sync could not resize",
    ),
    Transition(
        id="NoMethod",
        states=IDLE,
        condition=_has_no_method,
        actions=_decline,
        when="no method is possible and allowed, or pods restarted for a change not long ago",
        then="start nothing, and say why",
    ),
    Transition(
        id="TooManySizes",
        states=IDLE,
        condition=start.exceeds_annotation_size,
        actions=_skip(
            lambda _: (
                "the pods have too many different sizes to record them all for a revert; restart the workload so "
                "that all pods have one size"
            )
        ),
        when="the sizes of the pods before the change do not fit in an annotation",
        then="start nothing",
    ),
    Transition(
        id="Started",
        states=IDLE,
        condition=_always,
        actions=start.start_change,
        targets=BEFORE_VERIFYING,
        when="nothing speaks against the change",
        then="record the change; no pod is touched before",
    ),
)

_CONFLICTS = (
    # Before Harmful: pods that fail after somebody else's rollout are no fault of the size, and the change is soon
    # tried again.
    _reverting_row(
        "Superseded",
        FORWARD,
        conflicts.superseded_reason,
        "others changed the template or started a rollout, no pods are left, or no window ever opens",
        not_at_fault=True,
        deadlines=("no_pods",),
    ),
    _reverting_row(
        "LimitsExceeded",
        FORWARD,
        lambda _: conflicts.LIMITS_EXCEEDED,
        "the change exceeds the limits that apply now, lowered ones or those of another owner",
        condition=conflicts.exceeds_limits,
        not_at_fault=True,
    ),
    # A canary is reverted, because most pods still have the size at which the workload is held. A change that covers
    # all pods is finished.
    _reverting_row(
        "CanaryHeld",
        CANARY,
        lambda observation: observation.desired.hold_reason,
        "a person holds the workload",
        not_at_fault=True,
    ),
    # The template was to follow only because that restarts nothing. Pods get their size without it, later ones too.
    Transition(
        id="TemplateDropped",
        states=FORWARD,
        condition=lambda observation: (
            observation.change.method is UpdateMethod.IN_PLACE
            and conflicts.template_rejection_reason(observation)
        ),
        actions=lambda observation: [advance.update_change(observation, patches_template=False)],
        when="pods are resized in place, and the template was rejected or set back",
        then="go on without the template",
    ),
    _reverting_row(
        "YieldedToOomRelief",
        BEFORE_VERIFYING,
        lambda _: "a pod was OOM killed, and more memory for it goes first",
        "pods are OOM killed while the change is a canary or waits for a window, and it adds no memory",
        condition=conflicts.must_yield_to_oom_relief,
        not_at_fault=True,
    ),
    # Before Rejected: there is nothing to revert, and a template that belongs to a GitOps tool is no harm to report.
    Transition(
        id="TemplateRefused",
        states=AFTER_CANARY,
        condition=revert.refused_template,
        actions=revert.record_refusal,
        targets=IDLE,
        when="a CronJob is sized by its template, and the template was rejected or set back",
        then="record the refusal and the time of the next attempt",
    ),
    # After TemplateDropped: where pods are resized in place, only the template is given up, and not the change.
    _reverting_row(
        "Rejected",
        FORWARD,
        conflicts.rejection_reason,
        "the API server rejected the size, or others set the template back",
    ),
    _reverting_row(
        "Harmful",
        FORWARD,
        lambda observation: conflicts.assess_change(observation).worse,
        "pods are worse off than before",
    ),
    # Before PodMoved: while one evicted pod finds no node, another one must not be evicted, too.
    _reverting_row(
        "EvictionFailed",
        BEFORE_VERIFYING,
        stalls.eviction_failure,
        "an evicted pod found no node or did not come back, or no eviction was allowed",
        deadlines=("unscheduled", "progress", "max_duration"),
    ),
    # Before Stalled: a full node is a stall as well, and a revert is only for changes that cannot go on in another
    # way.
    Transition(
        id="Replaced",
        states=BEFORE_VERIFYING,
        condition=advance.replacement,
        actions=advance.replacement,
        targets=PROMOTING,
        when="a node has no capacity or a pod crashes before it can be resized, and new pods may get the size",
        then="replace pods by a rollout or by evictions",
        deadlines=("deferred", "crash_loop"),
    ),
    _reverting_row(
        "Stalled",
        BEFORE_VERIFYING,
        advance.unresolved_stall,
        "a pod, its runtime or its controller makes no progress",
        deadlines=("deferred", "unscheduled", "progress", "never_resized", "max_duration"),
    ),
)

_CANARIES = (
    Transition(
        id="CanariesGone",
        states=CANARY,
        condition=lambda observation: (
            not advance.phase_pods(observation) and advance.canary_wait_reason(observation)
        ),
        actions=_poll(advance.canary_wait_reason),
        when="no canary is left, and others cannot be chosen while pods are missing",
        then="wait",
    ),
    # Before others are chosen: each new canary would be evicted for the same reason.
    Transition(
        id="CanariesMoved",
        states=CANARY,
        condition=lambda observation: (
            not advance.phase_pods(observation) and advance.moved_canaries(observation)
        ),
        actions=lambda observation: [
            advance.update_change(observation, canaries=advance.moved_canaries(observation), settled=0)
        ],
        when="all canaries were evicted because their node had no capacity",
        then="go on with the pods that replaced them",
    ),
    Transition(
        id="CanariesChosenAgain",
        states=CANARY,
        condition=lambda observation: not advance.phase_pods(observation),
        actions=advance.choose_other_canaries,
        targets=BEFORE_VERIFYING,
        when="all canaries were scaled in or replaced",
        then="choose others; without any, all pods go at once",
    ),
)

_WORK = (
    # Before all work on pods and template, which would otherwise be done outside windows.
    Transition(
        id="PromotionOutsideWindow",
        states=PROMOTING,
        condition=advance.is_promotion_outside_window,
        actions=advance.work_outside_window,
        when="pods or the template do not have the size, and no window is open",
        then="wait for one; pods created since the start are resized at once",
    ),
    Transition(
        id="TemplatePatched",
        states=AFTER_CANARY,
        condition=_if_pending(advance.template_update),
        actions=advance.patch_template,
        when="the template is to follow and does not have the size",
        then="patch the template",
    ),
    # Before PodsChanged: an evicted pod would be created from the old template, and be evicted again.
    Transition(
        id="TemplateUnobserved",
        states=AFTER_CANARY,
        condition=_if_pending(advance.awaits_controller),
        actions=_poll(lambda _: "the workload's controller has not observed the changed template yet"),
        when="pods are to be evicted, and their controller has yet to see the template",
        then="wait",
    ),
    Transition(
        id="RenewalRecorded",
        states=PROMOTING,
        condition=_if_pending(advance.needs_renewal),
        actions=lambda observation: [advance.update_change(observation, renewed_at=observation.now)],
        when="for the first time, a recreated pod came with another size, maybe from the template before",
        then="record that pods must have the size from now on",
    ),
    Transition(
        id="PodsChanged",
        states=FORWARD,
        condition=_if_pending(advance.pod_work),
        actions=lambda observation: [*advance.pod_work(observation)],
        when="pods do not have the size",
        then="resize them; or evict one, where pods are recreated or a StatefulSet skips it",
    ),
)

_MOVES = (
    # After PodsChanged: evictions go one by one, and the other pods need not wait for them.
    Transition(
        id="MoveRecorded",
        states=BEFORE_VERIFYING,
        condition=lambda observation: stalls.pods_to_move(observation) and not observation.change.evicts_pods,
        actions=lambda observation: [advance.update_change(observation, evicts_pods=True)],
        when="the node of a pod has no capacity, and the pod may be evicted and returns large enough",
        then="record that pods are evicted",
        deadlines=("deferred",),
    ),
    Transition(
        id="MoveOutsideWindow",
        states=BEFORE_VERIFYING,
        condition=lambda observation: (
            stalls.pods_to_move(observation) and not conflicts.is_window_open(observation)
        ),
        actions=lambda observation: [conflicts.wait_for_window(observation)],
        when="a pod is to be evicted, and no window is open",
        then="wait for one",
    ),
    Transition(
        id="MoveUnhealthy",
        states=BEFORE_VERIFYING,
        condition=lambda observation: stalls.pods_to_move(observation) and observation.unavailable_pods,
        actions=_poll(advance.unavailable_reason),
        when="a pod is to be evicted, and more than a tenth of the pods are missing or not ready",
        then="wait",
    ),
    Transition(
        id="PodMoved",
        states=BEFORE_VERIFYING,
        condition=stalls.pods_to_move,
        actions=advance.evict_for_capacity,
        when="a pod is to be evicted",
        then="evict one pod, once each",
        deadlines=("deferred",),
    ),
)

_SETTLING = (
    # After the rows that act: only what is left waits for kubelets and controllers.
    Transition(
        id="Settling",
        states=BEFORE_VERIFYING,
        condition=_if_awaited(lambda observation: not advance.crashing_pods(observation)),
        actions=_poll(advance.unsettled_reason),
        when="pods do not have the size in effect yet",
        then="wait",
    ),
    Transition(
        id="CrashLooping",
        states=BEFORE_VERIFYING,
        condition=_if_awaited(lambda observation: not advance.is_crash_overdue(observation)),
        actions=_poll(advance.crash_wait_reason),
        when="the remaining pods crash before they can be resized",
        then="wait for a moment in which they run",
    ),
    _reverting_row(
        "AllCrashLooping",
        BEFORE_VERIFYING,
        advance.crash_wait_reason,
        "all pods crash before they can be resized",
        condition=_if_awaited(
            lambda observation: (
                len(advance.crashing_pods(observation)) == len(advance.phase_pods(observation))
            )
        ),
        not_at_fault=True,
        deadlines=("canary.observation", "canary.evidenceTimeout"),
    ),
    Transition(
        id="LatePodSettling",
        states=VERIFYING,
        condition=lambda observation: (
            advance.unsettled_reason(observation) and not advance.is_overdue(observation)
        ),
        actions=_poll(advance.unsettled_reason),
        when="a pod created later does not have the size in effect yet",
        then="wait",
    ),
    # In place, a later pod is resized as soon as it can be, and is no reason to take from the others what keeps them
    # alive.
    _reverting_row(
        "LatePodUnsettled",
        VERIFYING,
        lambda observation: (
            f"{advance.unsettled_reason(observation)}, after the deadline for pods created during the change"
        ),
        "a pod created later does not get the size, and the change was neither in place nor OOM relief",
        condition=lambda observation: (
            advance.unsettled_reason(observation)
            and observation.change.method is not UpdateMethod.IN_PLACE
            and not observation.change.relief
        ),
        deadlines=("canary.observation", "canary.evidenceTimeout", "late_pods"),
    ),
)

_WATCHING = (
    Transition(
        id="AllPodsSettled",
        states=PROMOTING,
        condition=_always,
        actions=lambda observation: [advance.record_settled(observation, phase=Phase.VERIFYING)],
        targets=VERIFYING,
        when="all pods have the size in effect, but those that crash",
        then="start to observe all pods",
    ),
    # Before the observation, which counts from the time at which the last pod had its size.
    Transition(
        id="CanariesSettled",
        states=WATCHED,
        condition=lambda observation: not observation.change.settled,
        actions=lambda observation: [advance.record_settled(observation)],
        when="all canaries have the size in effect, but those that crash",
        then="start to observe them",
    ),
    Transition(
        id="Observing",
        states=WATCHED,
        condition=lambda observation: observation.now < advance.observed_until(observation),
        actions=advance.wait_for_observation,
        when="the observation is not over",
        then="wait",
    ),
    Transition(
        id="EvidenceAwaited",
        states=WATCHED,
        condition=lambda observation: (
            advance.missing_evidence(observation) and not advance.is_evidence_overdue(observation)
        ),
        actions=advance.wait_for_evidence,
        when="throttling or a guardrail is unknown, or all observed pods were replaced",
        then="wait",
    ),
    _reverting_row(
        "EvidenceMissing",
        WATCHED,
        lambda observation: (
            f"the change could not be verified within canary.evidenceTimeout: {advance.missing_evidence(observation)}"
        ),
        "evidence is still missing",
        condition=advance.missing_evidence,
        deadlines=("canary.observation", "canary.evidenceTimeout"),
    ),
    Transition(
        id="CanaryOutsideWindow",
        states=CANARY,
        condition=lambda observation: not conflicts.is_window_open(observation),
        actions=lambda observation: [conflicts.wait_for_window(observation)],
        when="the canaries are healthy, and no window is open",
        then="wait for one",
    ),
    Transition(
        id="CanaryHealthy",
        states=CANARY,
        condition=_always,
        actions=lambda observation: [advance.enter_phase(observation, phase=Phase.PROMOTING)],
        targets=PROMOTING,
        when="the canaries are healthy",
        then="give the size to all pods",
    ),
    Transition(
        id="Applied",
        states=VERIFYING,
        condition=_always,
        actions=advance.record_applied,
        targets=IDLE,
        when="all pods are healthy",
        then="record the size in effect",
    ),
)

_REVERT = (
    # Before the end of the revert: pods that still ask for more than their node has would wait for ever, with
    # nobody to resize them.
    Transition(
        id="FittingPartResized",
        states=REVERTING,
        condition=lambda observation: observation.change.abandoned_at and revert.fitting_resizes(observation),
        actions=revert.fitting_resizes,
        when="the revert was given up, and pods wait for more than their node has",
        then="resize them to the part that fits",
    ),
    Transition(
        id="RevertedInPart",
        states=REVERTING,
        condition=lambda observation: observation.change.abandoned_at,
        actions=revert.finish_revert,
        targets=IDLE,
        when="the revert was given up",
        then="record the end and the cooldown, and name what was not restored",
        deadlines=("final_resize",),
    ),
    # Before the rows that act: they would be repeated as long as a node or server does not let them succeed.
    Transition(
        id="RevertGivenUp",
        states=REVERTING,
        condition=revert.give_up_reason,
        actions=revert.abandon_revert,
        when="the rest will not be restored, or not soon; or pods are OOM killed and need more memory than before",
        then="record that it is given up",
        deadlines=(
            "deferred",
            "unscheduled",
            "progress",
            "max_duration",
            "oom_relief_grace",
        ),
    ),
    Transition(
        id="TemplateRestored",
        states=REVERTING,
        condition=revert.restores_template,
        actions=revert.restore_template,
        when="the template has our sizes",
        then="patch the template",
    ),
    # Before RollingBack, which would wait for a controller that waits for this pod.
    Transition(
        id="SkippedPodEvicted",
        states=REVERTING,
        condition=revert.skipped_pods,
        actions=lambda observation: [revert.evict_skipped_pod(observation)],
        when="the controller of a StatefulSet skips a pod that is not ready",
        then="evict it",
    ),
    Transition(
        id="RollingBack",
        states=REVERTING,
        condition=revert.waits_for_controller,
        actions=_poll(lambda _: "the workload's controller is rolling back to the previous template"),
        when="the controller rolls back",
        then="wait",
    ),
    Transition(
        id="PodRecreated",
        states=REVERTING,
        condition=revert.must_recreate_pods,
        actions=revert.recreate_next_pod,
        when="pods were recreated by evictions and have the new size",
        then="evict one, unready ones first; a ready one only while few are missing",
    ),
    Transition(
        id="PodsResizedBack",
        states=REVERTING,
        condition=revert.resizes_back,
        actions=revert.resizes_back,
        when="pods have the new size",
        then="resize them to the size that each had",
    ),
    # Recorded first, so that the next leader also waits for the pods that were evicted.
    Transition(
        id="EvictionRecorded",
        states=REVERTING,
        condition=lambda observation: revert.stuck_pods(observation) and not observation.change.evicts_pods,
        actions=lambda observation: [advance.update_change(observation, evicts_pods=True)],
        when="a pod cannot go back where it is, and may be evicted",
        then="record that pods are evicted",
        deadlines=("deferred", "crash_loop"),
    ),
    Transition(
        id="StuckPodEvicted",
        states=REVERTING,
        condition=revert.stuck_pods,
        actions=revert.evict_stuck_pod,
        when="a pod cannot go back where it is",
        then="evict it; a ready one only while few are missing",
        deadlines=("deferred", "crash_loop"),
    ),
    Transition(
        id="RevertSettling",
        states=REVERTING,
        condition=revert.revert_wait_reason,
        actions=_poll(revert.revert_wait_reason),
        when="pods crash, are missing, or do not have their previous size in effect",
        then="wait",
    ),
    Transition(
        id="Reverted",
        states=REVERTING,
        condition=_always,
        actions=revert.finish_revert,
        targets=IDLE,
        when="all is as before, as far as it is safe",
        then="record the end and the cooldown",
    ),
)

TRANSITIONS: tuple[Transition, ...] = (
    *_ALWAYS_FIRST,
    *_IDLE,
    *_CONFLICTS,
    *_CANARIES,
    *_WORK,
    *_MOVES,
    *_SETTLING,
    *_WATCHING,
    *_REVERT,
)
"""All rows, in order."""

_ROWS = {state: [row for row in TRANSITIONS if state in row.states] for state in State}


def list_moves() -> list[tuple[State, State, str]]:
    """Return each change of state, with the row that causes it, in the order of the table."""
    return [
        (source, target, row.id)
        for row in TRANSITIONS
        for source in State
        for target in State
        if source in row.states and target in row.targets and source is not target
    ]

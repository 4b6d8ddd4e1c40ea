"""Carry out what `decide` chooses, from the informers' records: decide, write, and decide again from what was written.

Nothing is read from the server to decide. Every write carries the version of the record on which it was decided, so that
an old record costs a conflict (409) and another reconcile soon. Records that writes return are shown at once
(`RecordPort.update`): otherwise each write would be repeated, and be a conflict, until the informers have it.

Errors are handled as in the tables of the OptiPod seed. A rejection (403, 422, a field owned by another manager) is not
retried but reported in the server's words. Transient errors are retried later. Before every write the executor asks
whether it still may: a leader that lost its lease stops at once, and the next one continues from the annotations.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field, replace

import structlog

from trimtab.actuation.actions import (
    ChangeAction,
    EmitEvent,
    EvictPod,
    PatchTemplate,
    Priority,
    ResizePod,
    Skip,
    Wait,
    WriteAnnotations,
)
from trimtab.actuation.change_annotations import (
    ChangeAnnotations,
    OngoingChange,
    encode_change_annotations,
)
from trimtab.actuation.deadlines import DEADLINES
from trimtab.actuation.decide.health import HarmSignals
from trimtab.actuation.decide.observation import (
    DesiredChange,
    LocalObservations,
    Observation,
    Rejection,
    State,
    rejection_key,
)
from trimtab.actuation.decide.transitions import Decision, decide
from trimtab.actuation.hold import HOLD_ANNOTATION
from trimtab.actuation.port import ClusterPort, RecordPort
from trimtab.actuation.rate_limiter import DisruptionLimiter, LimitScope
from trimtab.api.optimizationpolicy import WorkloadState
from trimtab.kube.errors import (
    ApiError,
    Conflict,
    DisruptionBlocked,
    FieldManagerConflict,
    KubeError,
    NotFound,
    Status,
    Unauthorized,
    describe,
    is_lost_race,
)
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.timing import Backoff

log = structlog.get_logger(__name__)

MAX_ROUNDS = 8
"""The most decisions of one reconcile; a workload that needs more is queued again."""
MANY_CONFLICTS = 5
"""The number of conflicts in a row that old records do not explain."""

_CONFLICT = "the workload changed since its record was read (409); Trimtab retries with a newer record"
_ALWAYS_CONFLICT = (
    "the server answered every write with a conflict (409); check admission webhooks that change the workload"
)
_IN_FLIGHT = "another write to the workload is in progress; Trimtab retries"
_HOLD_CHANGED = "somebody held or released the workload meanwhile; Trimtab decides again"
_NO_LEADER = "this replica lost its leader lease; the new leader goes on"
_RATE_LIMITED = (
    "the limit on concurrent changes is reached; the change waits for a slot (setting disruptionLimits)"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Requester:
    """The policy or Intent that asks for a change, and its reason."""

    policy: str = ""
    intent: str = ""
    reason: str = ""

    def __str__(self) -> str:
        return f"Intent {self.intent}" if self.intent else f"policy {self.policy}"


UNKNOWN_REQUESTER = Requester()


@dataclass(frozen=True, slots=True)
class WrittenTransition:
    """A row of the table whose annotations are on the workload."""

    id: str
    source: State
    target: State
    before: ChangeAnnotations
    after: ChangeAnnotations
    requester: Requester
    """The requester that started the change, where this process knows it, even if another one completed it."""
    at: int
    """The time of that reconcile, in seconds since 1970."""

    @property
    def change(self) -> OngoingChange | None:
        """The change that started, went on or ended."""
        return self.before.change or self.after.change


@dataclass(frozen=True, kw_only=True, slots=True)
class ReconcileResult:
    """The state of a workload after a reconcile, its reason, and the latest time for the next one."""

    state: WorkloadState
    reason: str = ""
    requeue_at: int | None = None
    annotations: ChangeAnnotations | None = None
    actions: tuple[ChangeAction, ...] = ()
    transitions: tuple[WrittenTransition, ...] = ()
    """The rows of the table whose annotations were written, in order."""


@dataclass(slots=True)
class _Memory:
    """The knowledge about one workload, besides its records. Losing it costs time, never correctness."""

    local: LocalObservations = field(default_factory=LocalObservations)
    slots: set[Hashable] = field(default_factory=set)
    failures: int = 0
    """The number of failures since the last write that succeeded."""
    annotations: ChangeAnnotations | None = None
    """The last known annotations."""
    transitions: list[WrittenTransition] = field(default_factory=list)
    """The rows whose annotations were written in this reconcile."""
    requester: Requester = UNKNOWN_REQUESTER
    """The requester of this reconcile."""
    started: tuple[str, Requester] | None = None
    """The change that this process started last, and its requester."""
    unconfirmed: tuple[WrittenTransition, int] | None = None
    """The row whose annotations were sent, and to which version, while it is unknown whether they arrived."""
    is_current: bool = False
    """True if this process has written the workload, or read it live, and so knows of all annotations before."""

    @property
    def is_needed(self) -> bool:
        """True if the next reconcile may do something else without it."""
        has_change = self.annotations is not None and self.annotations.change is not None
        waits = self.local.unsettled_since or self.local.rejections or self.slots or self.failures
        return bool(has_change or waits or self.is_current or self.unconfirmed)

    def find_requester(self, before: ChangeAnnotations, after: ChangeAnnotations) -> Requester:
        """Return who asked for the change of a transition, and remember it where the change starts."""
        if before.change is None and after.change is not None:
            self.started = after.change.id, self.requester
        if before.change is not None and self.started and self.started[0] == before.change.id:
            return self.started[1]
        return self.requester

    def record_failure(self, *, first: int) -> int:
        """Count a failure and return the seconds until the next attempt, after the first failure `first`."""
        self.failures += 1
        return int(Backoff(first=first, ceiling=DEADLINES.max_retry).delay(self.failures))

    def record_written(self, transition: WrittenTransition, workload: Workload) -> None:
        """Record and log that the annotations of a row are on the workload."""
        self.unconfirmed = None
        self.transitions.append(transition)
        log.info(
            "actuation.transition",
            workload=str(workload.key),
            transition=transition.id,
            source=transition.source.value,
            target=transition.target.value,
        )

    def record_read(self, annotations: ChangeAnnotations, workload: Workload) -> None:
        """Record the annotations that the workload has, and with them a write whose response was lost."""
        self.annotations = annotations
        if self.unconfirmed and self.unconfirmed[1] != workload.version:
            transition, self.unconfirmed = self.unconfirmed[0], None
            if transition.after == annotations:
                self.record_written(transition, workload)


class ChangeExecutor:
    """Brings workloads to their sizes, one reconcile of each at a time, whoever asks for it.

    Policies and Intents share one executor, so that they never write to the same workload at once.
    """

    def __init__(
        self,
        cluster: ClusterPort,
        records: RecordPort,
        *,
        may_write: Callable[[], bool],
        limiter: DisruptionLimiter | None = None,
    ) -> None:
        self._cluster = cluster
        self._records = records
        self._may_write = may_write
        self._limiter = limiter or DisruptionLimiter()
        self._memories: dict[WorkloadKey, _Memory] = {}
        self._in_flight: set[WorkloadKey] = set()

    async def reconcile(
        self,
        key: WorkloadKey,
        desired: DesiredChange,
        *,
        now: int,
        requester: Requester = UNKNOWN_REQUESTER,
        collect_signals: Callable[[], Awaitable[HarmSignals]] | None = None,
    ) -> ReconcileResult | None:
        """Bring one workload as far as possible now; return None if it is gone.

        The requester is for records: it changes no decision.
        `collect_signals` is called only if a change is under way or would start: its queries would be a burden for each
        of thousands of workloads without a change.
        """
        # The result where all rounds are used: the rest waits a second, so that one workload does not hold up the
        # others.
        result = ReconcileResult(state=WorkloadState.APPLYING, requeue_at=now + 1)
        if key in self._in_flight:
            return replace(result, reason=_IN_FLIGHT)
        memory = self._memories.setdefault(key, _Memory())
        memory.transitions.clear()
        memory.requester = requester
        done: list[ChangeAction] = []
        # Of the record that `desired` was computed from: nothing was awaited since.
        held = self._find_hold(key)
        self._in_flight.add(key)
        try:
            for _ in range(MAX_ROUNDS):
                observation = self._observe(key, desired, memory, now)
                if observation is None:
                    self.forget(key)
                    return None
                if self._find_hold(key) != held:
                    result = replace(result, reason=_HOLD_CHANGED)
                    break
                decision = decide(observation)
                if collect_signals and self._needs_signals(decision, observation):
                    desired = replace(desired, harm_signals=await collect_signals())
                    # Once for each reconcile: a decision that needs signals needs them in every round.
                    collect_signals = None
                elif found := await self._carry_out(decision, observation, memory, done):
                    result = found
                    break
        except KubeError as error:
            again = now + memory.record_failure(first=DEADLINES.first_retry)
            result = ReconcileResult(state=WorkloadState.FAILED, reason=describe(error), requeue_at=again)
        finally:
            self._in_flight.discard(key)
            # Most workloads are in sync, and there may be tens of thousands of them.
            if not memory.is_needed:
                self._memories.pop(key, None)
        # A reconcile that failed half-way reports the last annotations that it knows.
        annotations = result.annotations or memory.annotations
        written = tuple(memory.transitions)
        return replace(result, annotations=annotations, actions=tuple(done), transitions=written)

    async def write(
        self, key: WorkloadKey, request: Callable[[ClusterPort], Awaitable[Workload | Pod]]
    ) -> None:
        """Send a write about a workload that no reconcile decides; it is a Conflict while another one is in progress."""
        if key in self._in_flight:
            raise Conflict(Status(message=_IN_FLIGHT, reason="Conflict", code=Conflict.code))
        self._in_flight.add(key)
        try:
            self._records.update(await request(self._cluster))
        finally:
            self._in_flight.discard(key)

    def forget(self, key: WorkloadKey) -> None:
        """Forget a workload that is no longer managed."""
        if memory := self._memories.pop(key, None):
            self._limiter.release(memory.slots)

    def _find_hold(self, key: WorkloadKey) -> str:
        """Return the hold that the present record of a workload has; empty if it has none."""
        workload = self._records.get(key)
        return dict(workload.annotations).get(HOLD_ANNOTATION, "") if workload else ""

    def _observe(
        self, key: WorkloadKey, desired: DesiredChange, memory: _Memory, now: int
    ) -> Observation | None:
        workload = self._records.get(key)
        if workload is None:
            return None
        pods = self._records.list_pods(workload)
        memory.local = memory.local.observe(pods, now)
        self._limiter.release(settled := memory.slots - memory.local.unsettled_since.keys())
        memory.slots -= settled
        observation = Observation(workload=workload, pods=pods, desired=desired, now=now, local=memory.local)
        if not observation.unreadable_reason:
            memory.record_read(observation.annotations, workload)
        return observation

    def _needs_signals(self, decision: Decision, observation: Observation) -> bool:
        """Return whether a change is under way, or would start now."""
        if observation.desired.blocked_reason or observation.annotations.change:
            return not observation.desired.blocked_reason
        starts = [action for action in decision.actions if isinstance(action, WriteAnnotations)]
        return any(self._slot_time(action, observation) <= observation.now for action in starts)

    async def _carry_out(
        self, decision: Decision, observation: Observation, memory: _Memory, done: list[ChangeAction]
    ) -> ReconcileResult | None:
        """Carry out the actions of a decision; return None if the next decision may find more to do now."""
        has_written = False
        slot_times: list[int] = []
        remaining: Wait | Skip | None = None
        for action in decision.actions:
            if isinstance(action, Wait | Skip):
                remaining = action
            elif isinstance(action, EmitEvent):
                # An event of an action that waits for a slot would report what is not done yet.
                if not slot_times:
                    self._emit(
                        observation,
                        action,
                        transition=decision.transition.id,
                        requester=_describe_requester(decision, memory),
                    )
            elif (slot_time := self._slot_time(action, observation, memory)) > observation.now:
                slot_times.append(slot_time)
            else:
                has_written = True
                is_done, wait = await self._attempt(action, decision, observation, memory)
                if wait:
                    return wait
                # The record was old, and the other actions were decided on it, too.
                if not is_done:
                    break
                done.append(action)
        if has_written:
            return None
        memory.failures = 0
        if slot_times:
            return _wait(observation, _RATE_LIMITED, min(slot_times) - observation.now)
        return _build_result(observation, remaining)

    def _slot_time(
        self, action: ChangeAction, observation: Observation, memory: _Memory | None = None
    ) -> int:
        """Return the time at which an action gets a slot, now or later; with a memory, take the slot if it is free."""
        workload, now = observation.workload, observation.now
        match action:
            case ResizePod(pod=pod, priority=priority) | EvictPod(pod=pod, priority=priority):
                holder, scope = pod.uid, LimitScope(pod.namespace, pod.node)
            case WriteAnnotations(start_priority=Priority() as priority):
                holder, scope = workload.uid, LimitScope(workload.namespace)
            case _:
                return now
        ask = self._limiter.next_slot if memory is None else self._limiter.acquire
        slot_time = math.ceil(ask(holder, scope, priority=priority, now=now))
        if memory and slot_time <= now:
            memory.slots.add(holder)
        return slot_time

    async def _attempt(
        self, action: ChangeAction, decision: Decision, observation: Observation, memory: _Memory
    ) -> tuple[bool, ReconcileResult | None]:
        """Carry out one action; return whether it is done, and a result if there is nothing more to do for now."""
        if not self._may_write():
            return False, _wait(observation, _NO_LEADER, DEADLINES.first_retry)
        # A conflict shows that a record is old, but not that other pods do worse than their records say.
        if why := self._records.outdated_reason(observation.workload):
            return False, _wait(observation, why, DEADLINES.first_retry)
        try:
            if not await self._is_current(action, observation, memory):
                return False, None
            await self._write(action, decision, observation, memory)
        except ApiError as error:
            return False, self._handle_error(error, action, observation, memory)
        return True, None

    async def _is_current(self, action: ChangeAction, observation: Observation, memory: _Memory) -> bool:
        """Return whether the record of the workload has all annotations, where no conflict would show that it does not.

        This is the only live read, of one object: before the first write to a pod in a leader session, because the
        version of a pod does not show what the last leader wrote to its workload; and after a response that was lost,
        because the next write would be decided as if the annotations had not arrived.
        """
        workload = observation.workload
        if memory.is_current or not (isinstance(action, ResizePod | EvictPod) or memory.unconfirmed):
            return True
        found = await self._cluster.get_workload(workload.key)
        if found is None:
            raise NotFound(Status(message=f"{workload.key} no longer exists", code=NotFound.code))
        memory.is_current = True
        self._records.update(found)
        return (found.uid, found.version) == (workload.uid, workload.version)

    async def _write(
        self, action: ChangeAction, decision: Decision, observation: Observation, memory: _Memory
    ) -> None:
        workload = observation.workload
        record: Workload | Pod | None = None
        memory.is_current &= isinstance(
            action, ResizePod | EvictPod
        )  # until the response shows what was written
        match action:
            case ResizePod(pod=pod, sizes=sizes):
                record = await self._cluster.resize(pod, sizes)
            case EvictPod(pod=pod):
                record = await self._cluster.evict(pod)
            case PatchTemplate(sizes=sizes, take_ownership=take_ownership):
                record = await self._cluster.patch_template(workload, sizes, take_ownership=take_ownership)
                memory.local = replace(memory.local, patched_change=observation.change.id)
            case WriteAnnotations(annotations=after):
                written = WrittenTransition(
                    decision.transition.id,
                    decision.source,
                    decision.target,
                    observation.annotations,
                    after,
                    memory.find_requester(observation.annotations, after),
                    observation.now,
                )
                # Before the request: its response may be lost although the server wrote the annotations.
                memory.unconfirmed = written, workload.version
                text = encode_change_annotations(after, uid=workload.uid)
                record = await self._cluster.annotate(workload, text)
                memory.record_written(written, workload)
        if record is not None:
            self._records.update(record)
        memory.is_current, memory.failures = True, 0

    def _handle_error(
        self, error: ApiError, action: ChangeAction, observation: Observation, memory: _Memory
    ) -> ReconcileResult | None:
        """Return how to go on after a write that failed; None to decide again, because a rejection is remembered."""
        if isinstance(error, DisruptionBlocked):
            blocked = f"{_describe_write(action)} is blocked for now: {error.message}"
            return _wait(observation, blocked, error.retry_after or DEADLINES.poll)
        if isinstance(error, NotFound):
            # The object is gone, and its record soon will be; or one of several API servers cannot resize pods yet.
            return _wait(observation, f"{_describe_write(action)} failed: {error.message}", DEADLINES.poll)
        if is_lost_race(error):
            # Nearly always the informer was a moment behind, so that the next attempt need not wait long.
            seconds = memory.record_failure(first=1)
            many = memory.failures >= MANY_CONFLICTS
            waiting = _wait(observation, _ALWAYS_CONFLICT if many else _CONFLICT, seconds)
            return replace(waiting, state=WorkloadState.FAILED) if many else waiting
        if error.transient or isinstance(error, Unauthorized):
            raise error
        message = f"{_describe_write(action)} failed: {' '.join(error.message.split())}"
        # The status of a quota is that of a missing permission (403): only the text tells them apart.
        if "exceeded quota" in message:
            message += "; raise the quota or lower resourceBounds"
        if isinstance(error, FieldManagerConflict) and "takeOwnership" not in message:
            message += (
                "; Trimtab leaves the template to that manager unless updateStrategy.takeOwnership is true"
            )
        self._emit(observation, EmitEvent("Warning", "Refused", message), transition="")
        match action:
            case ResizePod(pod=pod, sizes=sizes):
                key = rejection_key(pod.uid, sizes)
            case PatchTemplate(sizes=sizes):
                key = rejection_key(observation.workload.uid, sizes)
            case _:
                return ReconcileResult(state=WorkloadState.FAILED, reason=message)
        rejections = {**memory.local.rejections, key: Rejection(message, observation.now)}
        memory.local = replace(memory.local, rejections=rejections)
        return None

    def _emit(
        self, observation: Observation, emit: EmitEvent, *, transition: str, requester: str = ""
    ) -> None:
        workload, reason = observation.workload, emit.reason
        # `kubectl get events -o jsonpath` and alerts on Events show the message without its object.
        message = f"{workload.kind} {workload.name}: {emit.message}{requester}"
        log.info(
            "actuation.event",
            workload=str(workload.key),
            reason=reason,
            message=message,
            transition=transition,
        )
        self._cluster.emit(workload, type=emit.type, reason=reason, message=message)


def _describe_requester(decision: Decision, memory: _Memory) -> str:
    """Return who asks for a change that starts, for its Event."""
    starts = decision.source is State.IDLE and decision.target is not State.IDLE
    return f"; requested by {memory.requester}" if starts and memory.requester != UNKNOWN_REQUESTER else ""


def _describe_write(action: ChangeAction) -> str:
    match action:
        case ResizePod(pod=pod):
            return f"the resize of pod {pod.name}"
        case EvictPod(pod=pod):
            return f"the eviction of pod {pod.name}"
        case PatchTemplate():
            return "the change of the template"
        case _:
            return "the annotation of the workload"


def _wait(observation: Observation, reason: str, seconds: float) -> ReconcileResult:
    return _build_result(observation, Wait(observation.now + math.ceil(seconds), reason))


def _build_result(observation: Observation, remaining: Wait | Skip | None) -> ReconcileResult:
    """Return the result of a workload whose remaining action is `remaining`."""
    return ReconcileResult(
        state=_workload_state(observation, remaining),
        reason=remaining.reason if remaining else "",
        requeue_at=remaining.until if isinstance(remaining, Wait) else None,
        annotations=None if observation.unreadable_reason else observation.annotations,
    )


def _workload_state(observation: Observation, remaining: Wait | Skip | None) -> WorkloadState:
    annotations = observation.annotations
    if observation.desired.blocked_reason:
        return WorkloadState.RECOMMENDED
    if annotations.change:
        return WorkloadState.APPLYING
    if observation.desired.hold_reason:
        return WorkloadState.RECOMMENDED
    if isinstance(remaining, Skip):
        return WorkloadState.SKIPPED
    if annotations.reverted and observation.now < annotations.reverted.until:
        return WorkloadState.REVERTED
    return WorkloadState.PENDING if remaining else WorkloadState.APPLIED

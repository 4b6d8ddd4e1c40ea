"""Carry out what `decide` chooses: read, decide, act and read again, until there is nothing to do but wait.

Errors are handled as in the tables of the OptiPod seed. A rejection (403, 422, a field owned by another
manager) is not retried but reported in the server's words. An object that is gone (404) is dropped. A
conflict (409) is read again. Transient errors are retried later. Before every write the executor asks whether
it still may: a leader that lost its lease stops at once, and the next one continues from the annotations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

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
    read_change_annotations,
)
from trimtab.actuation.deadlines import DEADLINES
from trimtab.actuation.decide.observation import (
    DesiredChange,
    LocalObservations,
    Observation,
    State,
    rejection_key,
)
from trimtab.actuation.decide.transitions import Decision, decide
from trimtab.actuation.port import ClusterPort
from trimtab.actuation.rate_limiter import DisruptionLimiter, LimitScope
from trimtab.actuation.resources import container_sizes, is_settled
from trimtab.api.optimizationpolicy import WorkloadState
from trimtab.kube.errors import (
    ApiError,
    DisruptionBlocked,
    FieldManagerConflict,
    KubeError,
    NotFound,
    Unauthorized,
    describe,
    is_lost_race,
)
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.workloads import Workload, WorkloadKey

log = structlog.get_logger(__name__)

MAX_ROUNDS = 8
"""The most rounds of one reconcile; a workload that needs more is queued again."""

_ALWAYS_CONFLICT = (
    "the server answered every write with a conflict (409); check admission webhooks that change the workload"
)
_RATE_LIMITED = "waiting for a slot: the limit on concurrent changes is reached"


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenTransition:
    """A row of the table whose annotations are on the workload."""

    id: str
    source: State
    target: State
    before: ChangeAnnotations
    after: ChangeAnnotations

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


class _StopReconcile(Exception):
    """Ends the current reconcile with a result."""

    def __init__(self, report: ReconcileResult) -> None:
        super().__init__(report.reason)
        self.result = report


@dataclass(slots=True)
class _LocalState:
    """The memory of one workload between two reconciles."""

    unsettled_since: dict[str, int] = field(default_factory=dict)
    unready_since: dict[str, int] = field(default_factory=dict)
    rejections: dict[str, tuple[str, int]] = field(default_factory=dict)
    slots: set[Hashable] = field(default_factory=set)
    missing_pods: set[str] = field(default_factory=set)
    """The uids of pods that the server did not find in this reconcile."""
    conflicts: int = 0
    """The number of conflicts (409) in this reconcile."""
    patched_change: str = ""
    observed_since: int = 0
    failures: int = 0
    annotations: ChangeAnnotations | None = None
    """The last known annotations."""
    transitions: list[WrittenTransition] = field(default_factory=list)
    """The rows whose annotations were written in this reconcile."""
    unconfirmed: WrittenTransition | None = None
    """The row whose annotations were sent, while it is unknown whether they arrived: the response was lost."""

    def record_failure(self) -> int:
        """Count a failure and return the seconds until the next attempt."""
        self.failures += 1
        return min(DEADLINES.max_retry, DEADLINES.first_retry << min(self.failures - 1, 10))

    def record_written(self, transition: WrittenTransition, workload: Workload) -> None:
        """Record and log that the annotations of a row are on the workload."""
        self.annotations = transition.after
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
        if self.unconfirmed and self.unconfirmed.after == annotations:
            self.record_written(self.unconfirmed, workload)
        self.unconfirmed = None
        self.annotations = annotations

    def observe(self, pods: Sequence[Pod], now: int) -> LocalObservations:
        """Record which pods are not settled or not ready, and forget those that are again."""
        live = [pod for pod in pods if pod.phase not in {"Succeeded", "Failed"}]
        waiting = [pod.uid for pod in live if not is_settled(pod, container_sizes(pod.containers))]
        self.unsettled_since = {uid: min(self.unsettled_since.get(uid, now), now) for uid in waiting}
        unready = [pod.uid for pod in live if not pod.ready]
        self.unready_since = {uid: min(self.unready_since.get(uid, now), now) for uid in unready}
        self.observed_since = min(self.observed_since or now, now)
        # The absolute age: with a signed one, a clock that was set back would keep a rejection for as long as
        # that.
        self.rejections = {
            key: rejection
            for key, rejection in self.rejections.items()
            if abs(now - rejection[1]) < DEADLINES.rejection
        }
        return LocalObservations(
            unsettled_since=dict(self.unsettled_since),
            unready_since=dict(self.unready_since),
            rejections={key: message for key, (message, _) in self.rejections.items()},
            patched_change=self.patched_change,
            observed_since=self.observed_since,
        )


class _Slot(NamedTuple):
    holder: str
    scope: LimitScope
    priority: Priority


class ChangeExecutor:
    """Brings workloads to their sizes, one reconcile at a time. Reconciles of different workloads may
    overlap.
    """

    def __init__(
        self, cluster: ClusterPort, *, may_write: Callable[[], bool], limiter: DisruptionLimiter | None = None
    ) -> None:
        self._cluster = cluster
        self._may_write = may_write
        self._limiter = limiter or DisruptionLimiter()
        self._local_states: dict[WorkloadKey, _LocalState] = {}

    def check_cached(
        self, workload: Workload, pods: Sequence[Pod], desired: DesiredChange, *, now: int
    ) -> ReconcileResult | None:
        """Return the state of a workload from cached records, without a request; None if it needs a
        reconcile.

        A change under way always does, because its health is judged by current records.
        """
        memory = self._local_states.get(workload.key) or _LocalState()
        observation = Observation(
            workload=workload, pods=pods, desired=desired, now=now, local=memory.observe(pods, now)
        )
        if memory.unsettled_since:
            self._local_states[workload.key] = memory
        actions = decide(observation).actions
        remaining = next((action for action in actions if isinstance(action, Wait | Skip)), None)
        report = _build_result(observation, remaining)
        if report.state is WorkloadState.APPLYING:
            return None
        if actions and remaining is None:
            slot_times = [
                self._next_slot(action, observation)
                for action in actions
                if not isinstance(action, EmitEvent)
            ]
            if min(slot_times) <= now:
                return None
            return replace(
                report, state=WorkloadState.PENDING, reason=_RATE_LIMITED, requeue_at=min(slot_times)
            )
        for action in actions:
            if isinstance(action, EmitEvent):
                self._emit(workload, action)
        return report

    async def reconcile(
        self, key: WorkloadKey, desired: DesiredChange, *, now: int
    ) -> ReconcileResult | None:
        """Bring one workload as far as possible now; return None if it is gone."""
        memory = self._local_states.setdefault(key, _LocalState())
        memory.missing_pods.clear()
        memory.conflicts = 0
        memory.transitions.clear()
        done: list[ChangeAction] = []
        report = ReconcileResult(state=WorkloadState.APPLYING, requeue_at=now + 1)
        try:
            for _ in range(MAX_ROUNDS):
                observation = await self._read_context(key, desired, memory, now)
                if observation is None:
                    self.forget(key)
                    return None
                if not observation.unreadable_reason:
                    memory.record_read(observation.annotations, observation.workload)
                if found := await self._run_round(observation, memory, done):
                    memory.failures = 0
                    report = found
                    break
            else:
                if memory.conflicts == MAX_ROUNDS and not done:
                    report = ReconcileResult(
                        state=WorkloadState.FAILED,
                        reason=_ALWAYS_CONFLICT,
                        requeue_at=now + memory.record_failure(),
                    )
        except _StopReconcile as stop:
            report = stop.result
        except KubeError as error:
            report = ReconcileResult(
                state=WorkloadState.FAILED, reason=describe(error), requeue_at=now + memory.record_failure()
            )
        # A reconcile that failed half-way reports the last annotations that it knows.
        return replace(
            report,
            annotations=report.annotations or memory.annotations,
            actions=tuple(done),
            transitions=tuple(memory.transitions),
        )

    def forget(self, key: WorkloadKey) -> bool:
        """Forget a workload that is no longer managed; return whether it was known."""
        memory = self._local_states.pop(key, None)
        if memory:
            self._limiter.release(memory.slots)
        return memory is not None

    async def _read_context(
        self, key: WorkloadKey, desired: DesiredChange, memory: _LocalState, now: int
    ) -> Observation | None:
        workload = await self._cluster.get_workload(key)
        if workload is None:
            return None
        pods = await self._cluster.list_pods(workload)
        local = memory.observe(pods, now)
        self._limiter.release(settled := memory.slots - memory.unsettled_since.keys())
        memory.slots -= settled
        return Observation(workload=workload, pods=pods, desired=desired, now=now, local=local)

    async def _run_round(
        self, observation: Observation, memory: _LocalState, done: list[ChangeAction]
    ) -> ReconcileResult | None:
        """Carry out the actions of one decision; return a result when there is nothing more to do for now."""
        has_acted = False
        slot_times: list[int] = []
        remaining: Wait | Skip | None = None
        decision = decide(observation)
        for action in decision.actions:
            if isinstance(action, Wait | Skip):
                remaining = action
            elif isinstance(action, EmitEvent):
                # An event of an action that waits for a slot would report what is not done yet.
                if not slot_times:
                    self._log_and_emit(observation.workload, action, transition=decision.transition.id)
            elif (slot_time := self._acquire_slot(action, observation, memory)) > observation.now:
                slot_times.append(slot_time)
            else:
                has_acted = True
                if not await self._execute(action, decision, observation, memory):
                    break
                done.append(action)
        if has_acted:
            return None
        if slot_times:
            return replace(
                _build_result(observation, remaining), reason=_RATE_LIMITED, requeue_at=min(slot_times)
            )
        return _build_result(observation, remaining)

    def _next_slot(self, action: ChangeAction, observation: Observation) -> int:
        """Return the time at which this action gets a slot: now, or later."""
        slot = _required_slot(action, observation.workload)
        if slot is None:
            return observation.now
        return math.ceil(
            self._limiter.next_slot(slot.holder, slot.scope, priority=slot.priority, now=observation.now)
        )

    def _acquire_slot(self, action: ChangeAction, observation: Observation, memory: _LocalState) -> int:
        """Acquire a slot for this action; return now, or the time at which to ask again."""
        slot = _required_slot(action, observation.workload)
        if slot is None:
            return observation.now
        slot_time = self._limiter.acquire(
            slot.holder, slot.scope, priority=slot.priority, now=observation.now
        )
        if slot_time <= observation.now:
            memory.slots.add(slot.holder)
        return math.ceil(slot_time)

    async def _execute(
        self, action: ChangeAction, decision: Decision, observation: Observation, memory: _LocalState
    ) -> bool:
        """Carry out one action; return False if it was rejected or outdated. Transient errors are raised."""
        if not self._may_write():
            raise _StopReconcile(
                replace(
                    _build_result(observation, None),
                    reason="this process lost its leader lease and stopped writing",
                )
            )
        try:
            await self._apply(action, decision, observation, memory)
        except NotFound as error:
            if isinstance(action, ResizePod):
                # A pod that was listed in between and is missing twice exists: the server does not know the
                # resize subresource.
                if action.pod.uid in memory.missing_pods:
                    raise _StopReconcile(_retry_later(observation, error, DEADLINES.poll)) from error
                memory.missing_pods.add(action.pod.uid)
            return False
        except DisruptionBlocked as blocked:
            raise _StopReconcile(
                _retry_later(observation, blocked, blocked.retry_after or DEADLINES.poll)
            ) from blocked
        except ApiError as error:
            if error.transient or isinstance(error, Unauthorized):
                raise
            if is_lost_race(error):
                memory.conflicts += 1
                return False
            self._record_rejection(action, observation, memory, error)
            return False
        return True

    async def _apply(
        self, action: ChangeAction, decision: Decision, observation: Observation, memory: _LocalState
    ) -> None:
        cluster, workload = self._cluster, observation.workload
        match action:
            case ResizePod(pod=pod, sizes=sizes):
                await cluster.resize(pod, sizes)
            case EvictPod(pod=pod):
                await cluster.evict(pod)
            case PatchTemplate(sizes=sizes, take_ownership=take_ownership):
                await cluster.patch_template(workload, sizes, take_ownership=take_ownership)
                memory.patched_change = _change_id(workload)
            case WriteAnnotations(annotations=annotations):
                written = WrittenTransition(
                    id=decision.transition.id,
                    source=decision.source,
                    target=decision.target,
                    before=observation.annotations,
                    after=annotations,
                )
                # If the response is lost, the next read shows whether the annotations arrived.
                memory.unconfirmed = written
                await cluster.annotate(workload, encode_change_annotations(annotations, uid=workload.uid))
                memory.record_written(written, workload)
                memory.unconfirmed = None

    def _record_rejection(
        self, action: ChangeAction, observation: Observation, memory: _LocalState, error: ApiError
    ) -> None:
        """Remember a rejection and report it in the server's words."""
        message = " ".join(error.message.split())
        if "exceeded quota" in message:
            message += "; raise the quota or lower resourceBounds"
        if isinstance(error, FieldManagerConflict) and "takeOwnership" not in message:
            message += "; the template is left to them, see updateStrategy.takeOwnership"
        self._log_and_emit(observation.workload, EmitEvent("Warning", "Refused", message), transition="")
        match action:
            case ResizePod(pod=pod, sizes=sizes):
                memory.rejections[rejection_key(pod.uid, sizes)] = message, observation.now
            case PatchTemplate(sizes=sizes):
                memory.rejections[rejection_key(observation.workload.uid, sizes)] = message, observation.now
            case _:
                raise _StopReconcile(ReconcileResult(state=WorkloadState.FAILED, reason=message)) from error

    def _log_and_emit(self, workload: Workload, emit: EmitEvent, *, transition: str) -> None:
        log.info(
            "actuation.event",
            workload=str(workload.key),
            reason=emit.reason,
            message=emit.message,
            transition=transition,
        )
        self._emit(workload, emit)

    def _emit(self, workload: Workload, emit: EmitEvent) -> None:
        self._cluster.emit(workload, type=emit.type, reason=emit.reason, message=emit.message)


def _required_slot(action: ChangeAction, workload: Workload) -> _Slot | None:
    """Return the slot that an action needs; None if it needs none."""
    match action:
        case ResizePod(pod=pod, priority=priority) | EvictPod(pod=pod, priority=priority):
            return _Slot(pod.uid, LimitScope(pod.namespace, pod.node), priority)
        case WriteAnnotations(start_priority=Priority() as priority):
            return _Slot(workload.uid, LimitScope(workload.namespace), priority)
    return None


def _change_id(workload: Workload) -> str:
    annotations = read_change_annotations(workload)
    return annotations.change.id if annotations and annotations.change else ""


def _retry_later(observation: Observation, error: ApiError, seconds: float) -> ReconcileResult:
    """Return the unchanged state with the server's message and the time of the next attempt."""
    again = observation.now + math.ceil(seconds)
    return replace(_build_result(observation, None), reason=error.message, requeue_at=again)


def _build_result(observation: Observation, remaining: Wait | Skip | None) -> ReconcileResult:
    """Return the result of a workload whose remaining action is `remaining`."""
    known = read_change_annotations(observation.workload)
    again = remaining.until if isinstance(remaining, Wait) else None
    return ReconcileResult(
        state=_workload_state(observation, known, remaining),
        reason=remaining.reason if remaining else "",
        requeue_at=again,
        annotations=known,
    )


def _workload_state(
    observation: Observation, annotations: ChangeAnnotations | None, remaining: Wait | Skip | None
) -> WorkloadState:
    if observation.desired.blocked_reason:
        return WorkloadState.RECOMMENDED
    if annotations and annotations.change:
        return WorkloadState.APPLYING
    if observation.desired.hold_reason:
        return WorkloadState.RECOMMENDED
    if isinstance(remaining, Skip):
        return WorkloadState.SKIPPED
    if annotations and annotations.reverted and observation.now < annotations.reverted.until:
        return WorkloadState.REVERTED
    return WorkloadState.PENDING if remaining else WorkloadState.APPLIED

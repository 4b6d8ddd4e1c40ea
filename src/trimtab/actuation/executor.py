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
    encode_change_annotations,
    read_change_annotations,
)
from trimtab.actuation.deadlines import DEADLINES
from trimtab.actuation.decide.observation import DesiredChange, LocalObservations, Observation, rejection_key
from trimtab.actuation.decide.transitions import decide
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
class ReconcileResult:
    """The state of a workload after a reconcile, its reason, and the latest time for the next one."""

    state: WorkloadState
    reason: str = ""
    requeue_at: int | None = None
    annotations: ChangeAnnotations | None = None
    actions: tuple[ChangeAction, ...] = ()
    annotation_history: tuple[ChangeAnnotations, ...] = ()
    """The annotations before this reconcile and every change of them since. After a write whose response was
    lost, only these show what was written.
    """


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
    annotation_history: list[ChangeAnnotations] = field(default_factory=list)
    """The annotations at the start of this reconcile, or at the end of the last one, and every change since.
    """

    def record_failure(self) -> int:
        """Count a failure and return the seconds until the next attempt."""
        self.failures += 1
        return min(DEADLINES.max_retry, DEADLINES.first_retry << min(self.failures - 1, 10))

    def record_annotations(self, marks: ChangeAnnotations | None) -> None:
        if marks is not None and marks not in self.annotation_history[-1:]:
            self.annotation_history.append(marks)

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
            key: said for key, said in self.rejections.items() if abs(now - said[1]) < DEADLINES.rejection
        }
        return LocalObservations(
            unsettled_since=dict(self.unsettled_since),
            unready_since=dict(self.unready_since),
            rejections={key: words for key, (words, _) in self.rejections.items()},
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
        situation = Observation(
            workload=workload, pods=pods, desired=desired, now=now, local=memory.observe(pods, now)
        )
        if memory.unsettled_since:
            self._local_states[workload.key] = memory
        deeds = decide(situation).actions
        rest = next((deed for deed in deeds if isinstance(deed, Wait | Skip)), None)
        report = _build_result(situation, rest)
        if report.state is WorkloadState.APPLYING:
            return None
        if deeds and rest is None:
            turns = [self._next_slot(deed, situation) for deed in deeds if not isinstance(deed, EmitEvent)]
            if min(turns) <= now:
                return None
            return replace(report, state=WorkloadState.PENDING, reason=_RATE_LIMITED, requeue_at=min(turns))
        for deed in deeds:
            if isinstance(deed, EmitEvent):
                self._emit(workload, deed)
        return report

    async def reconcile(
        self, key: WorkloadKey, desired: DesiredChange, *, now: int
    ) -> ReconcileResult | None:
        """Bring one workload as far as possible now; return None if it is gone."""
        memory = self._local_states.setdefault(key, _LocalState())
        memory.missing_pods.clear()
        memory.conflicts = 0
        del memory.annotation_history[:-1]
        done: list[ChangeAction] = []
        report = ReconcileResult(state=WorkloadState.APPLYING, requeue_at=now + 1)
        try:
            for _ in range(MAX_ROUNDS):
                situation = await self._read_context(key, desired, memory, now)
                if situation is None:
                    self.forget(key)
                    return None
                memory.record_annotations(read_change_annotations(situation.workload))
                if found := await self._run_round(situation, memory, done):
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
        known = report.annotations or next(reversed(memory.annotation_history), None)
        return replace(
            report,
            annotations=known,
            actions=tuple(done),
            annotation_history=tuple(memory.annotation_history),
        )

    def forget(self, key: WorkloadKey) -> bool:
        """Forget a workload that is no longer managed; return whether it was known."""
        memory = self._local_states.pop(key, None)
        if memory:
            self._limiter.release(memory.slots)
        return memory is not None

    async def _read_context(
        self, key: WorkloadKey, wish: DesiredChange, memory: _LocalState, now: int
    ) -> Observation | None:
        workload = await self._cluster.get_workload(key)
        if workload is None:
            return None
        pods = await self._cluster.list_pods(workload)
        sightings = memory.observe(pods, now)
        self._limiter.release(over := memory.slots - memory.unsettled_since.keys())
        memory.slots -= over
        return Observation(workload=workload, pods=pods, desired=wish, now=now, local=sightings)

    async def _run_round(
        self, situation: Observation, memory: _LocalState, done: list[ChangeAction]
    ) -> ReconcileResult | None:
        """Carry out the actions of one decision; return a result when there is nothing more to do for now."""
        looks_different = False
        turns: list[int] = []
        rest: Wait | Skip | None = None
        for deed in decide(situation).actions:
            if isinstance(deed, Wait | Skip):
                rest = deed
            elif isinstance(deed, EmitEvent):
                # An event of an action that waits for a slot would report what is not done yet.
                if not turns:
                    self._log_and_emit(situation.workload, deed)
            elif (turn := self._acquire_slot(deed, situation, memory)) > situation.now:
                turns.append(turn)
            else:
                looks_different = True
                if not await self._execute(deed, situation, memory):
                    break
                done.append(deed)
        if looks_different:
            return None
        if turns:
            return replace(_build_result(situation, rest), reason=_RATE_LIMITED, requeue_at=min(turns))
        return _build_result(situation, rest)

    def _next_slot(self, deed: ChangeAction, situation: Observation) -> int:
        """Return the time at which this action gets a slot: now, or later."""
        slot = _required_slot(deed, situation.workload)
        if slot is None:
            return situation.now
        return math.ceil(
            self._limiter.next_slot(slot.holder, slot.scope, priority=slot.priority, now=situation.now)
        )

    def _acquire_slot(self, deed: ChangeAction, situation: Observation, memory: _LocalState) -> int:
        """Acquire a slot for this action; return now, or the time at which to ask again."""
        slot = _required_slot(deed, situation.workload)
        if slot is None:
            return situation.now
        turn = self._limiter.acquire(slot.holder, slot.scope, priority=slot.priority, now=situation.now)
        if turn <= situation.now:
            memory.slots.add(slot.holder)
        return math.ceil(turn)

    async def _execute(self, deed: ChangeAction, situation: Observation, memory: _LocalState) -> bool:
        """Carry out one action; return False if it was rejected or outdated. Transient errors are raised."""
        if not self._may_write():
            raise _StopReconcile(
                replace(
                    _build_result(situation, None),
                    reason="this process lost its leader lease and stopped writing",
                )
            )
        try:
            await self._apply(deed, situation.workload, memory)
        except NotFound as missing:
            if isinstance(deed, ResizePod):
                # A pod that was listed in between and is missing twice exists: the server does not know the
                # resize subresource.
                if deed.pod.uid in memory.missing_pods:
                    raise _StopReconcile(_retry_later(situation, missing, DEADLINES.poll)) from missing
                memory.missing_pods.add(deed.pod.uid)
            return False
        except DisruptionBlocked as blocked:
            raise _StopReconcile(
                _retry_later(situation, blocked, blocked.retry_after or DEADLINES.poll)
            ) from blocked
        except ApiError as error:
            if error.transient or isinstance(error, Unauthorized):
                raise
            if is_lost_race(error):
                memory.conflicts += 1
                return False
            self._record_rejection(deed, situation, memory, error)
            return False
        return True

    async def _apply(self, deed: ChangeAction, workload: Workload, memory: _LocalState) -> None:
        cluster = self._cluster
        match deed:
            case ResizePod(pod=pod, sizes=sizes):
                await cluster.resize(pod, sizes)
            case EvictPod(pod=pod):
                await cluster.evict(pod)
            case PatchTemplate(sizes=sizes, take_ownership=take_ownership):
                await cluster.patch_template(workload, sizes, take_ownership=take_ownership)
                memory.patched_change = _change_id(workload)
            case WriteAnnotations(annotations=marks):
                await cluster.annotate(workload, encode_change_annotations(marks, uid=workload.uid))
                memory.record_annotations(marks)

    def _record_rejection(
        self, deed: ChangeAction, situation: Observation, memory: _LocalState, error: ApiError
    ) -> None:
        """Remember a rejection and report it in the server's words."""
        words = " ".join(error.message.split())
        if "exceeded quota" in words:
            words += "; raise the quota or lower resourceBounds"
        if isinstance(error, FieldManagerConflict) and "takeOwnership" not in words:
            words += "; the template is left to them, see updateStrategy.takeOwnership"
        self._log_and_emit(situation.workload, EmitEvent("Warning", "Refused", words))
        match deed:
            case ResizePod(pod=pod, sizes=sizes):
                memory.rejections[rejection_key(pod.uid, sizes)] = words, situation.now
            case PatchTemplate(sizes=sizes):
                memory.rejections[rejection_key(situation.workload.uid, sizes)] = words, situation.now
            case _:
                raise _StopReconcile(ReconcileResult(state=WorkloadState.FAILED, reason=words)) from error

    def _log_and_emit(self, workload: Workload, emit: EmitEvent) -> None:
        log.info("actuation.event", workload=str(workload.key), reason=emit.reason, message=emit.message)
        self._emit(workload, emit)

    def _emit(self, workload: Workload, emit: EmitEvent) -> None:
        self._cluster.emit(workload, type=emit.type, reason=emit.reason, message=emit.message)


def _required_slot(deed: ChangeAction, workload: Workload) -> _Slot | None:
    """Return the slot that an action needs; None if it needs none."""
    match deed:
        case ResizePod(pod=pod, priority=urgency) | EvictPod(pod=pod, priority=urgency):
            return _Slot(pod.uid, LimitScope(pod.namespace, pod.node), urgency)
        case WriteAnnotations(start_priority=Priority() as urgency):
            return _Slot(workload.uid, LimitScope(workload.namespace), urgency)
    return None


def _change_id(workload: Workload) -> str:
    marks = read_change_annotations(workload)
    return marks.change.id if marks and marks.change else ""


def _retry_later(situation: Observation, error: ApiError, seconds: float) -> ReconcileResult:
    """Return the unchanged state with the server's message and the time of the next attempt."""
    again = situation.now + math.ceil(seconds)
    return replace(_build_result(situation, None), reason=error.message, requeue_at=again)


def _build_result(situation: Observation, rest: Wait | Skip | None) -> ReconcileResult:
    """Return the result of a workload whose remaining action is `rest`."""
    known = read_change_annotations(situation.workload)
    again = rest.until if isinstance(rest, Wait) else None
    return ReconcileResult(
        state=_workload_state(situation, known, rest),
        reason=rest.reason if rest else "",
        requeue_at=again,
        annotations=known,
    )


def _workload_state(
    situation: Observation, marks: ChangeAnnotations | None, rest: Wait | Skip | None
) -> WorkloadState:
    if situation.desired.blocked_reason:
        return WorkloadState.RECOMMENDED
    if marks and marks.change:
        return WorkloadState.APPLYING
    if situation.desired.hold_reason:
        return WorkloadState.RECOMMENDED
    if isinstance(rest, Skip):
        return WorkloadState.SKIPPED
    if marks and marks.reverted and situation.now < marks.reverted.until:
        return WorkloadState.REVERTED
    return WorkloadState.PENDING if rest else WorkloadState.APPLIED

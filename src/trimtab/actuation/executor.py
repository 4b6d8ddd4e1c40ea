"""Carries out what `step` decides: look, decide, do, look again, until there is nothing to do but wait.

Errors follow the OptiPod seed's tables: refused (403, 422, a field that another owns) is not tried again but told, in
the server's words; gone (404) is dropped; changed meanwhile (409) is looked at afresh; what may pass by itself is
tried again later. Before every write the actuator asks whether it still may: a leader that lost its lease stops at
once, and the next one goes on from the marks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import structlog

from trimtab.actuation.actions import (
    Deed,
    Emit,
    EvictPod,
    PatchTemplate,
    ResizePod,
    Skip,
    Urgency,
    Wait,
    WriteMarks,
)
from trimtab.actuation.change_annotations import Marks, own_marks, write_marks
from trimtab.actuation.decide.advance import POLL
from trimtab.actuation.decide.context import Sightings, Situation, Wish, refusal_key
from trimtab.actuation.decide.next_actions import next_deeds
from trimtab.actuation.port import Cluster
from trimtab.actuation.rate_limiter import Pacer, Place
from trimtab.actuation.resources import is_settled, sizes_of
from trimtab.api.optimizationpolicy import WorkloadState
from trimtab.kube.errors import (
    ApiError,
    DisruptionBlocked,
    FieldOwned,
    KubeError,
    NotFound,
    Unauthorized,
    describe,
    is_lost_race,
)
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.workloads import Workload, WorkloadKey

log = structlog.get_logger(__name__)

ROUNDS = 8
"""So often a workload is looked at in one go; whatever needs more comes back."""
REFUSAL_HOLDS = 600
"""Seconds after which a refusal may have lost its cause, such as a quota."""
FIRST_RETRY = 5
LONGEST_RETRY = 300

_ALWAYS_LATE = "whatever is written is refused, as if somebody else had just written (409)"
_NOT_ITS_TURN = "waiting for its turn: so many changes are under way as may be"


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """Where a workload stands, why, and when to look again at the latest."""

    state: WorkloadState
    reason: str = ""
    again: int | None = None
    marks: Marks | None = None
    done: tuple[Deed, ...] = ()
    seen: tuple[Marks, ...] = ()
    """What the marks said before, and what each time they were others. Of a write whose answer was lost only this tells."""


class _Stop(Exception):
    """This go is over."""

    def __init__(self, report: Report) -> None:
        super().__init__(report.reason)
        self.report = report


@dataclass(slots=True)
class _Memory:
    """What is remembered of one workload between two looks."""

    unsettled: dict[str, int] = field(default_factory=dict)
    unready: dict[str, int] = field(default_factory=dict)
    refused: dict[str, tuple[str, int]] = field(default_factory=dict)
    holding: set[Hashable] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    """Pods, by uid, of which a server said in this go that they are not there."""
    late: int = 0
    """How often it said in this go that somebody else had written first."""
    patched: str = ""
    since: int = 0
    failures: int = 0
    seen: list[Marks] = field(default_factory=list)
    """What the marks said when this go began, or the last one ended, and since."""

    def fail(self) -> int:
        """It failed once more; the answer is after how many seconds to try again."""
        self.failures += 1
        return min(LONGEST_RETRY, FIRST_RETRY << min(self.failures - 1, 10))

    def see(self, marks: Marks | None) -> None:
        if marks is not None and marks not in self.seen[-1:]:
            self.seen.append(marks)

    def look(self, pods: Sequence[Pod], now: int) -> Sightings:
        """Note which pods are not settled or not ready, and forget what is over."""
        live = [pod for pod in pods if pod.phase not in {"Succeeded", "Failed"}]
        waiting = [pod.uid for pod in live if not is_settled(pod, sizes_of(pod.containers))]
        self.unsettled = {uid: min(self.unsettled.get(uid, now), now) for uid in waiting}
        unready = [pod.uid for pod in live if not pod.ready]
        self.unready = {uid: min(self.unready.get(uid, now), now) for uid in unready}
        self.since = min(self.since or now, now)
        # Or it holds for as long as a clock was set back by.
        self.refused = {key: said for key, said in self.refused.items() if abs(now - said[1]) < REFUSAL_HOLDS}
        return Sightings(
            unsettled=dict(self.unsettled),
            unready=dict(self.unready),
            refused={key: words for key, (words, _) in self.refused.items()},
            patched=self.patched,
            since=self.since,
        )


class _Slot(NamedTuple):
    holder: str
    place: Place
    urgency: Urgency


class Actuator:
    """Brings workloads to their sizes, one reconcile at a time; reconciles of different workloads may overlap."""

    def __init__(
        self, cluster: Cluster, *, may_write: Callable[[], bool], pacer: Pacer | None = None
    ) -> None:
        self._cluster = cluster
        self._may_write = may_write
        self._pacer = pacer or Pacer()
        self._memories: dict[WorkloadKey, _Memory] = {}

    def glance(self, workload: Workload, pods: Sequence[Pod], wish: Wish, *, now: int) -> Report | None:
        """Where a workload stands by cached records, at the cost of no request; None when it is to be reconciled.

        A change under way always is: whether it hurts is judged by what is so now.
        """
        memory = self._memories.get(workload.key) or _Memory()
        situation = Situation(
            workload=workload, pods=pods, wish=wish, now=now, sightings=memory.look(pods, now)
        )
        if memory.unsettled:
            self._memories[workload.key] = memory
        deeds = next_deeds(situation)
        rest = next((deed for deed in deeds if isinstance(deed, Wait | Skip)), None)
        report = _report(situation, rest)
        if report.state is WorkloadState.APPLYING:
            return None
        if deeds and rest is None:
            turns = [self._turn(deed, situation) for deed in deeds if not isinstance(deed, Emit)]
            if min(turns) <= now:
                return None
            return replace(report, state=WorkloadState.PENDING, reason=_NOT_ITS_TURN, again=min(turns))
        for deed in deeds:
            if isinstance(deed, Emit):
                self._emit(workload, deed)
        return report

    async def reconcile(self, key: WorkloadKey, wish: Wish, *, now: int) -> Report | None:
        """Bring one workload as far as it can be brought now; None when it is gone."""
        memory = self._memories.setdefault(key, _Memory())
        memory.gone.clear()
        memory.late = 0
        del memory.seen[:-1]
        done: list[Deed] = []
        report = Report(state=WorkloadState.APPLYING, again=now + 1)
        try:
            for _ in range(ROUNDS):
                situation = await self._look(key, wish, memory, now)
                if situation is None:
                    self.forget(key)
                    return None
                memory.see(own_marks(situation.workload))
                if found := await self._round(situation, memory, done):
                    memory.failures = 0
                    report = found
                    break
            else:
                if memory.late == ROUNDS and not done:
                    report = Report(
                        state=WorkloadState.FAILED, reason=_ALWAYS_LATE, again=now + memory.fail()
                    )
        except _Stop as stop:
            report = stop.report
        except KubeError as error:
            report = Report(state=WorkloadState.FAILED, reason=describe(error), again=now + memory.fail())
        known = report.marks or next(reversed(memory.seen), None)  # also of one that failed
        return replace(report, marks=known, done=tuple(done), seen=tuple(memory.seen))

    def forget(self, key: WorkloadKey) -> bool:
        """A workload that nobody asks for any more; whether it was dealt with until now."""
        memory = self._memories.pop(key, None)
        if memory:
            self._pacer.give_back(memory.holding)
        return memory is not None

    async def _look(self, key: WorkloadKey, wish: Wish, memory: _Memory, now: int) -> Situation | None:
        workload = await self._cluster.workload(key)
        if workload is None:
            return None
        pods = await self._cluster.pods(workload)
        sightings = memory.look(pods, now)
        self._pacer.give_back(over := memory.holding - memory.unsettled.keys())
        memory.holding -= over
        return Situation(workload=workload, pods=pods, wish=wish, now=now, sightings=sightings)

    async def _round(self, situation: Situation, memory: _Memory, done: list[Deed]) -> Report | None:
        """Carry out the deeds of one step; a report when there is no more to do for now."""
        looks_different = False
        turns: list[int] = []
        rest: Wait | Skip | None = None
        for deed in next_deeds(situation):
            if isinstance(deed, Wait | Skip):
                rest = deed
            elif isinstance(deed, Emit):
                if not turns:  # else what it tells of is yet to be done
                    self._tell(situation.workload, deed)
            elif (turn := self._book(deed, situation, memory)) > situation.now:
                turns.append(turn)
            else:
                looks_different = True
                if not await self._do(deed, situation, memory):
                    break
                done.append(deed)
        if looks_different:
            return None
        if turns:
            return replace(_report(situation, rest), reason=_NOT_ITS_TURN, again=min(turns))
        return _report(situation, rest)

    def _turn(self, deed: Deed, situation: Situation) -> int:
        """When it is this deed's turn: now, or later."""
        slot = _slot(deed, situation.workload)
        if slot is None:
            return situation.now
        return math.ceil(self._pacer.turn(slot.holder, slot.place, urgency=slot.urgency, now=situation.now))

    def _book(self, deed: Deed, situation: Situation, memory: _Memory) -> int:
        """Take a slot for it: now, or when to ask again."""
        slot = _slot(deed, situation.workload)
        if slot is None:
            return situation.now
        turn = self._pacer.take(slot.holder, slot.place, urgency=slot.urgency, now=situation.now)
        if turn <= situation.now:
            memory.holding.add(slot.holder)
        return math.ceil(turn)

    async def _do(self, deed: Deed, situation: Situation, memory: _Memory) -> bool:
        """Do it; False when it was refused, or the world has changed. What may pass by itself is raised."""
        if not self._may_write():
            raise _Stop(replace(_report(situation, None), reason="this process may not write any more"))
        try:
            await self._write(deed, situation.workload, memory)
        except NotFound as missing:
            if isinstance(deed, ResizePod):
                # Twice, though it was seen in between: this server knows nothing of resizing.
                if deed.pod.uid in memory.gone:
                    raise _Stop(_later(situation, missing, POLL)) from missing
                memory.gone.add(deed.pod.uid)
            return False
        except DisruptionBlocked as blocked:
            raise _Stop(_later(situation, blocked, blocked.retry_after or POLL)) from blocked
        except ApiError as error:
            if error.transient or isinstance(error, Unauthorized):
                raise
            if is_lost_race(error):
                memory.late += 1
                return False
            self._refuse(deed, situation, memory, error)
            return False
        return True

    async def _write(self, deed: Deed, workload: Workload, memory: _Memory) -> None:
        cluster = self._cluster
        match deed:
            case ResizePod(pod=pod, sizes=sizes):
                await cluster.resize(pod, sizes)
            case EvictPod(pod=pod):
                await cluster.evict(pod)
            case PatchTemplate(sizes=sizes, take_ownership=take_ownership):
                await cluster.patch_template(workload, sizes, take_ownership=take_ownership)
                memory.patched = _change_id(workload)
            case WriteMarks(marks=marks):
                await cluster.annotate(workload, write_marks(marks, uid=workload.uid))
                memory.see(marks)

    def _refuse(self, deed: Deed, situation: Situation, memory: _Memory, error: ApiError) -> None:
        """Remember that the server said no, and tell in its own words."""
        words = " ".join(error.message.split())
        if "exceeded quota" in words:
            words += "; raise the quota or lower resourceBounds"
        if isinstance(error, FieldOwned) and "takeOwnership" not in words:
            words += "; the template is left to them, see updateStrategy.takeOwnership"
        self._tell(situation.workload, Emit("Warning", "Refused", words))
        match deed:
            case ResizePod(pod=pod, sizes=sizes):
                memory.refused[refusal_key(pod.uid, sizes)] = words, situation.now
            case PatchTemplate(sizes=sizes):
                memory.refused[refusal_key(situation.workload.uid, sizes)] = words, situation.now
            case _:
                raise _Stop(Report(state=WorkloadState.FAILED, reason=words)) from error

    def _tell(self, workload: Workload, emit: Emit) -> None:
        log.info("actuation", workload=str(workload.key), did=emit.reason, why=emit.message)
        self._emit(workload, emit)

    def _emit(self, workload: Workload, emit: Emit) -> None:
        self._cluster.emit(workload, type=emit.type, reason=emit.reason, message=emit.message)


def _slot(deed: Deed, workload: Workload) -> _Slot | None:
    """What a deed takes up; None where it may go at any time."""
    match deed:
        case ResizePod(pod=pod, urgency=urgency) | EvictPod(pod=pod, urgency=urgency):
            return _Slot(pod.uid, Place(pod.namespace, pod.node), urgency)
        case WriteMarks(begins=Urgency() as urgency):
            return _Slot(workload.uid, Place(workload.namespace), urgency)
    return None


def _change_id(workload: Workload) -> str:
    marks = own_marks(workload)
    return marks.change.id if marks and marks.change else ""


def _later(situation: Situation, error: ApiError, seconds: float) -> Report:
    """That it stands where it stood, in the server's words, and is looked at again."""
    again = situation.now + math.ceil(seconds)
    return replace(_report(situation, None), reason=error.message, again=again)


def _report(situation: Situation, rest: Wait | Skip | None) -> Report:
    """Where the workload stands when this is what is left to do."""
    known = own_marks(situation.workload)
    again = rest.until if isinstance(rest, Wait) else None
    return Report(
        state=_state(situation, known, rest), reason=rest.reason if rest else "", again=again, marks=known
    )


def _state(situation: Situation, marks: Marks | None, rest: Wait | Skip | None) -> WorkloadState:
    if situation.wish.withheld:
        return WorkloadState.RECOMMENDED
    if marks and marks.change:
        return WorkloadState.APPLYING
    if situation.wish.on_hold:
        return WorkloadState.RECOMMENDED
    if isinstance(rest, Skip):
        return WorkloadState.SKIPPED
    if marks and marks.reverted and situation.now < marks.reverted.until:
        return WorkloadState.REVERTED
    return WorkloadState.PENDING if rest else WorkloadState.APPLIED

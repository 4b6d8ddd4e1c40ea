"""Does what a plan says: scales, has a pod replaced, resizes, chooses options, or has a plugin do it.

What is done is the state that a deed promises, which was held against the limits, and not what its parameters say.
Sizes go the way that sizing's go, with marks, pace, verification and the way back, so a policy and an intent never
pull at one pod. Every deed is looked at afresh: it is done to the workload as it is now, or not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import structlog

from trimtab.actuation.change_annotations import own_marks
from trimtab.actuation.decide.advance import POLL
from trimtab.actuation.decide.conflicts import falls
from trimtab.actuation.decide.context import Wish
from trimtab.actuation.effective_size import effective_sizes
from trimtab.actuation.executor import Actuator, Report
from trimtab.actuation.hold import read_hold
from trimtab.actuation.pod_options import Options, Phase, changed, followed_up
from trimtab.actuation.port import Cluster
from trimtab.actuation.resources import Sizes, has_size, said
from trimtab.api.duration import Duration
from trimtab.api.optimizationpolicy import Canary, UpdateStrategy
from trimtab.intents.action import Deed
from trimtab.intents.actuators.resizing import ResizeCpu
from trimtab.intents.constraints import Limits
from trimtab.intents.plan import Plan
from trimtab.intents.plugins.client import RemoteActuator
from trimtab.intents.state import Size, State
from trimtab.kube.errors import Conflict, KubeError, NotFound, describe, is_lost_race
from trimtab.kube.kinds.pods import Pod, Resources
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.operator.intents.guardrails import CHOOSING, RESIZING, SCALING
from trimtab.operator.intents.observer import Observation
from trimtab.sizing.safe_minimum import with_headroom

log = structlog.get_logger(__name__)

REMOVING = "rmPod"


@dataclass(frozen=True, slots=True)
class Performed:
    """What was done of a plan, and why the rest was not."""

    done: tuple[Deed, ...] = ()
    refused: str = ""
    passes: bool = False
    """Whether that may well have passed by the next turn, as that somebody else wrote first."""


class _NotYet(str):
    """Why something was not done, which may well have passed by the next turn: as that it is not its turn."""

    __slots__ = ()


class Performer:
    """Carries out plans by way of the port to the cluster."""

    def __init__(
        self,
        cluster: Cluster,
        actuator: Actuator,
        *,
        may_write: Callable[[], bool],
        resizes_in_place: Callable[[], bool],
        memory_limits_stay: Callable[[Iterable[Pod]], bool] = lambda _: False,
        watched: Callable[[], float],
    ) -> None:
        self._cluster = cluster
        self._actuator = actuator
        self._may_write = may_write
        self._resizes_in_place = resizes_in_place
        self._memory_limits_stay = memory_limits_stay
        self._watched = watched
        self._resized: set[WorkloadKey] = set()

    async def perform(
        self,
        plan: Plan,
        observation: Observation,
        *,
        limits: Limits,
        plugins: Mapping[str, RemoteActuator],
        now: float,
    ) -> Performed:
        """Do them in order, up to the first that cannot be done."""
        state = observation.state
        assert state is not None
        done: list[Deed] = []
        for deed in plan.deeds:
            if breach := limits.breach(state, deed.after):
                return Performed(tuple(done), f"{deed.actuator}: {breach}")
            if not self._may_write():
                return Performed(tuple(done), "this process may not write any more")
            if deed.actuator in CHOOSING and any(each.actuator in RESIZING for each in done):
                return Performed(tuple(done), f"{deed.actuator}: the change of size comes first")
            if deed.actuator in RESIZING and any(each.actuator in RESIZING for each in done):
                done.append(deed)  # it went with the first: a pod is changed once
                continue
            try:
                refused = await self._do(deed, plan, observation, plugins, now)
            except NotFound:
                refused = "it is gone"
            except KubeError as error:
                passes = error.transient or is_lost_race(error)
                return Performed(tuple(done), f"{deed.actuator}: {describe(error)}", passes)
            if refused:
                words = f"{deed.actuator}: {refused}"
                return Performed(tuple(done), words, passes=isinstance(refused, _NotYet))
            done.append(deed)
        return Performed(tuple(done))

    async def tend(self, observation: Observation, now: float) -> Report | None:
        """Go on with a change that is under way, and bring new pods to the size in effect, also while it is held."""
        workload = observation.workload
        if workload is None or not observation.pods:
            return None
        marks, hold = own_marks(workload), read_hold(workload.annotations)
        if marks is None or not (marks.change or marks.applied):
            return None
        if marks.change and hold and hold.sizes:
            return None  # to a size that a person chose: the policy carries that out
        return await self._resize(observation, workload, marks.change.after if marks.change else {}, now)

    async def relieve(self, observation: Observation, sizes: Sizes, now: float) -> Report | None:
        """Give containers more memory after an OOM kill."""
        workload = observation.workload
        return await self._resize(observation, workload, sizes, now, urgent=True) if workload else None

    def forget_all_but(
        self, owned: Collection[WorkloadKey], known: Callable[[WorkloadKey], Workload | None]
    ) -> None:
        """Let go of workloads that no intent has the say over any more, and tell of a change that nobody watches now."""
        for key in self._resized.difference(owned):
            self._resized.remove(key)
            self._actuator.forget(key)
            workload = known(key)
            marks = own_marks(workload) if workload else None
            if workload and marks and marks.change and self._may_write():
                message = (
                    f"no active Intent is about it any more; the change to {said(marks.change.after)} is left to a policy that is, "
                    "and else as it is"
                )
                self._cluster.emit(workload, type="Warning", reason="ChangeLeft", message=message)

    async def _do(
        self,
        deed: Deed,
        plan: Plan,
        observation: Observation,
        plugins: Mapping[str, RemoteActuator],
        now: float,
    ) -> str:
        """Why it was not done; empty when it was."""
        workload, state = observation.workload, observation.state
        assert workload is not None
        assert state is not None
        if deed.actuator in plugins:
            plugin = plugins[deed.actuator]
            return await asyncio.to_thread(plugin.perform, deed, target=workload.key, state=state)
        if deed.actuator in SCALING:
            return await self._scale(workload, state, deed.after.replicas)
        if deed.actuator in RESIZING:
            sizes = {size.container: _resources(size) for size in _resized(state, plan.deeds)}
            effective = effective_sizes(workload, observation.pods)
            report = await self._resize(
                observation, workload, sizes, now, urgent=plan.urgent, effective=effective
            )
            return _refusal(report, now)
        if deed.actuator in CHOOSING:
            return await self._choose(observation, workload, deed.after, now)
        if deed.actuator == REMOVING:
            return await self._remove(observation, str(deed.parameters.get("name", "")))
        return "nothing in this cluster does it"

    async def _scale(self, workload: Workload, state: State, replicas: int) -> str:
        present = await self._cluster.workload(workload.key)
        if present is None or present.uid != workload.uid:
            return "it is gone"
        if present.replicas != state.replicas:
            return f"it has been scaled to {present.replicas} meanwhile"
        try:
            await self._cluster.scale(present, replicas)
        except Conflict:
            # Asked again because its answer was lost, a server says so of what it has done itself.
            found = await self._cluster.workload(workload.key)
            if found is None or found.replicas != replicas:
                raise
        return ""

    async def _choose(self, observation: Observation, workload: Workload, after: State, now: float) -> str:
        state, present = observation.state, await self._cluster.workload(workload.key)
        assert state is not None
        if present is None or present.uid != workload.uid:
            return "it is gone"
        mark = changed(
            present,
            Options(after.cache_class, after.power_profile),
            had=Options(state.cache_class, state.power_profile),
            container=observation.main,
            cores=after.cpu or 1.0,
            now=now,
        )
        await self._cluster.patch_options(present, mark)
        return ""

    async def follow_up(self, workload: Workload, now: float) -> None:
        """Say of options that a rollout has brought that it has, and take them back where it cannot.

        Whether an intent still speaks for the workload or not: what was begun comes to an end.
        """
        mark = followed_up(workload, now=now)
        if mark is None or not self._may_write():
            return
        await self._cluster.patch_options(workload, mark)
        if mark.phase is Phase.ROLLING:
            return
        if mark.phase is Phase.REVERTED:
            message = f"{mark.after} could not be had in time, so it is back at {mark.before}"
            self._cluster.emit(workload, type="Warning", reason="OptionsReverted", message=message)
        else:
            message = f"its pods have {mark.after}, instead of {mark.before}"
            self._cluster.emit(workload, type="Normal", reason="OptionsChanged", message=message)

    async def _remove(self, observation: Observation, name: str) -> str:
        pod = next((pod for pod in observation.pods if pod.name == name), None)
        if pod is None:
            return f"pod {name} is not there"
        await self._cluster.evict(pod)
        return ""

    async def _resize(
        self,
        observation: Observation,
        workload: Workload,
        sizes: Sizes,
        now: float,
        *,
        urgent: bool = False,
        effective: Sizes | None = None,
    ) -> Report | None:
        """Bring a workload to these sizes, which were planned from the effective ones."""
        used = observation.state.memory_used if observation.state else None
        watched = Duration.parse(f"{max(1, round(self._watched()))}s")
        wish = Wish(
            sizes=sizes,
            strategy=UpdateStrategy(
                min_interval=Duration.parse("0s"),
                canary=Canary(percent=100, observation=watched),
                update_requests_only=False,
            ),
            resizes_in_place=self._resizes_in_place(),
            memory_limits_stay=self._memory_limits_stay(observation.pods),
            need={} if used is None else {observation.main: with_headroom(int(used))},
            urgent=urgent,
            on_hold=str(read_hold(workload.annotations) or ""),
            effective=effective,
        )
        if not self._may_write():
            return None
        self._resized.add(workload.key)
        # Only where there is something to do: to look afresh at all that were ever resized would be a burden every turn.
        report = self._actuator.glance(workload, observation.pods, wish, now=int(now))
        return report or await self._actuator.reconcile(workload.key, wish, now=int(now))


def runs_without(workload: Workload, pods: Iterable[Pod]) -> bool:
    """Whether a change is under way and a pod that can be resized now does not have its size."""
    marks = own_marks(workload)
    change = marks.change if marks else None
    return change is not None and any(not falls(pod) and not has_size(pod, change.after) for pod in pods)


def _refusal(report: Report | None, now: float) -> str:
    """Why a resize was not done, by what came of it; empty when it was."""
    if report is None:
        return "it is gone"
    if report.done:
        return ""
    is_next = report.again is not None and report.again <= now + POLL
    return _NotYet(report.reason) if is_next else report.reason


def _resized(state: State, plan: Sequence[Deed]) -> Sequence[Size]:
    """The sizes that the resizes of a plan ask for together. Each has a say over one resource of the main container, whatever
    else a planner that is a plugin may promise of it.
    """
    sizes = list(state.sizes)
    for deed in plan:
        size = deed.after.size
        if size is None or deed.actuator not in RESIZING:
            continue
        fields = (
            ("cpu_request", "cpu_limit")
            if deed.actuator == ResizeCpu.name
            else ("memory_request", "memory_limit")
        )
        asked = {name: getattr(size, name) for name in fields}
        sizes[state.main] = msgspec.structs.replace(sizes[state.main], **asked)
    return sizes


def _resources(size: Size) -> Resources:
    def millicores(cores: float | None) -> int | None:
        return None if cores is None else max(1, round(cores * 1000))

    def whole(amount: float | None) -> int | None:
        return None if amount is None else round(amount)

    return Resources(
        millicores(size.cpu_request),
        millicores(size.cpu_limit),
        whole(size.memory_request),
        whole(size.memory_limit),
    )

"""Execution of plans: scale, replace a pod, resize, set options, or call a plugin.

The executor applies the state after an action, which was checked against the constraints, and not the action's
parameters. Resizes use the same change executor as sizing, with annotations, rate limits, verification and revert,
so that a policy and an Intent never compete for a pod. Every action is checked against the current workload first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import structlog

from trimtab.actuation.change_annotations import read_change_annotations
from trimtab.actuation.deadlines import DEADLINES
from trimtab.actuation.decide.observation import DesiredChange
from trimtab.actuation.decide.stalls import is_crash_looping
from trimtab.actuation.effective_size import PodSync, effective_sizes
from trimtab.actuation.executor import ChangeExecutor, ReconcileResult, Requester
from trimtab.actuation.hold import Hold, read_hold
from trimtab.actuation.pod_options import (
    OptionsPhase,
    PodOptions,
    advance_options_change,
    start_options_change,
)
from trimtab.actuation.port import ClusterPort, RecordPort
from trimtab.actuation.resources import NO_LIMITS, SizeLimits, Sizes, has_size
from trimtab.api.duration import Duration
from trimtab.api.optimizationpolicy import Canary, UpdateStrategy
from trimtab.intents.actuator import IntentAction
from trimtab.intents.actuators.resizing import ResizeCpu
from trimtab.intents.constraints import PlanConstraints
from trimtab.intents.planner import Plan
from trimtab.intents.plugins.client import RemoteActuator
from trimtab.intents.state import ContainerSize, TargetState
from trimtab.kube.errors import Conflict, KubeError, NotFound, describe, is_lost_race
from trimtab.kube.kinds.pods import Pod, Resources
from trimtab.kube.kinds.workloads import Workload
from trimtab.operator.intents.guardrails import OPTION_ACTUATORS, RESIZING_ACTUATORS, SCALING_ACTUATORS
from trimtab.operator.intents.observer import IntentObservation
from trimtab.sizing.evidence import add_headroom

log = structlog.get_logger(__name__)

REMOVE_POD_ACTUATOR = "rmPod"


@dataclass(frozen=True, slots=True)
class ExecutionResult:
    """The executed actions of a plan, and the reason why the rest was not executed."""

    done: tuple[IntentAction, ...] = ()
    blocked_reason: str = ""
    is_transient: bool = False
    """True if the reason may be gone in the next cycle, such as a write conflict."""


class _TransientRefusal(str):
    """A reason that may be gone in the next cycle, such as a rate limit."""

    __slots__ = ()


class ResultRecorder(Protocol):
    """A recorder of changes, for users and for the store."""

    def record_result(self, workload: Workload, result: ReconcileResult) -> None: ...


class PlanExecutor:
    """The executor of plans. Everything that it writes to workloads goes through the change executor."""

    def __init__(
        self,
        cluster: ClusterPort,
        records: RecordPort,
        executor: ChangeExecutor,
        *,
        recorder: ResultRecorder,
        may_write: Callable[[], bool],
        can_resize_in_place: Callable[[], bool],
        memory_limits_fixed: Callable[[Iterable[Pod]], bool] = lambda _: False,
        observation_period: Callable[[], float],
        size_limits: Callable[[str], SizeLimits] = lambda _: NO_LIMITS,
    ) -> None:
        self._cluster = cluster
        self._records = records
        self._executor = executor
        self._recorder = recorder
        self._may_write = may_write
        self._can_resize_in_place = can_resize_in_place
        self._memory_limits_fixed = memory_limits_fixed
        self._observation_period = observation_period
        self._size_limits = size_limits

    async def execute(
        self,
        plan: Plan,
        observation: IntentObservation,
        *,
        limits: PlanConstraints,
        plugins: Mapping[str, RemoteActuator],
        now: float,
    ) -> ExecutionResult:
        """Execute the actions in order, up to the first that fails."""
        state = observation.state
        assert state is not None
        done: list[IntentAction] = []
        for action in plan.actions:
            # Checked before every write: a plan that violates a guardrail is not executed, whoever made it.
            if violation := limits.find_violation(state, action.after):
                return ExecutionResult(tuple(done), f"{action.actuator}: {violation}")
            if not self._may_write():
                return ExecutionResult(tuple(done), "this process lost its leader lease")
            if action.actuator in OPTION_ACTUATORS and any(
                each.actuator in RESIZING_ACTUATORS for each in done
            ):
                return ExecutionResult(tuple(done), f"{action.actuator}: the resize comes first")
            if action.actuator in RESIZING_ACTUATORS and any(
                each.actuator in RESIZING_ACTUATORS for each in done
            ):
                done.append(action)  # it was part of the first resize, because a pod is changed once
                continue
            try:
                refusal = await self._execute_action(action, plan, observation, plugins, now)
            # Not transient: a deleted workload does not come back, so the action is not tried again in
            # every cycle.
            except NotFound:
                refusal = "the workload no longer exists"
            except KubeError as error:
                passes = error.transient or is_lost_race(error)
                return ExecutionResult(tuple(done), f"{action.actuator}: {describe(error)}", passes)
            if refusal:
                reason = f"{action.actuator}: {refusal}"
                return ExecutionResult(
                    tuple(done), reason, is_transient=isinstance(refusal, _TransientRefusal)
                )
            done.append(action)
        return ExecutionResult(tuple(done))

    async def sync_pods(self, observation: IntentObservation, now: float) -> ReconcileResult | None:
        """Continue a change in progress, and resize new pods to the effective size, even under a hold."""
        workload = observation.workload
        if workload is None or not observation.pods:
            return None
        hold = self._read_hold(workload)
        annotations = read_change_annotations(workload, self._size_limits(workload.namespace))
        if annotations is None or not (annotations.change or annotations.applied):
            return None
        if annotations.change and hold and hold.sizes:
            return None  # a user chose this size, and the policy applies it
        return await self._resize(
            observation,
            workload,
            annotations.change.after if annotations.change else {},
            now,
            reason="pods are brought to the size in effect",
        )

    async def relieve_oom(
        self, observation: IntentObservation, sizes: Sizes, now: float
    ) -> ReconcileResult | None:
        """Give containers more memory after an OOM kill."""
        workload = observation.workload
        if workload is None:
            return None
        return await self._resize(
            observation, workload, sizes, now, reason="an OOM kill: more memory", urgent=True
        )

    async def _execute_action(
        self,
        action: IntentAction,
        plan: Plan,
        observation: IntentObservation,
        plugins: Mapping[str, RemoteActuator],
        now: float,
    ) -> str:
        """Execute one action; return the reason if it was not executed."""
        workload, state = observation.workload, observation.state
        assert workload is not None
        assert state is not None
        if hold := self._read_hold(workload):
            return _TransientRefusal(hold)
        # A plugin may have the name of an actuator.
        if action.actuator in RESIZING_ACTUATORS and action.actuator not in plugins:
            sizes = {size.container: _to_resources(size) for size in _merge_resizes(state, plan.actions)}
            # The plan started from these sizes: if somebody changes them meanwhile, the resize must not
            # overwrite that.
            sync = PodSync(limits=self._size_limits(workload.namespace))
            effective = effective_sizes(workload, observation.pods, sync)
            result = await self._resize(
                observation,
                workload,
                sizes,
                now,
                reason="; ".join(plan.why),
                urgent=plan.is_urgent,
                effective=effective,
            )
            return _refusal_reason(result, now)
        return await self._execute_without_resize(action, observation, workload, state, plugins, now)

    async def _execute_without_resize(
        self,
        action: IntentAction,
        observation: IntentObservation,
        workload: Workload,
        state: TargetState,
        plugins: Mapping[str, RemoteActuator],
        now: float,
    ) -> str:
        """Execute an action other than a resize, for which the change executor checks the same."""
        present = self._records.get(workload.key)
        # A new workload of the same name has another load: the plan was not made for it.
        if present is None or present.uid != workload.uid:
            return "the workload no longer exists"
        if outdated := _TransientRefusal(self._records.outdated_reason(present)):
            return outdated
        if action.actuator in plugins:
            plugin = plugins[action.actuator]
            # In a thread: a plugin has up to half a minute, during which the Lease must be renewed.
            return await asyncio.to_thread(plugin.execute, action, target=workload.key, state=state)
        refusal = "no actuator with this name is available"
        if action.actuator in SCALING_ACTUATORS:
            refusal = await self._scale(present, state, action.after.replicas)
        elif action.actuator in OPTION_ACTUATORS:
            refusal = await self._set_options(observation, present, action.after, now)
        elif action.actuator == REMOVE_POD_ACTUATOR:
            refusal = await self._remove_pod(observation, str(action.parameters.get("name", "")))
        return refusal

    async def _scale(self, present: Workload, state: TargetState, replicas: int) -> str:
        if present.replicas != state.replicas:
            return f"somebody scaled the workload to {present.replicas} since the plan; Trimtab plans again"
        try:
            await self._executor.write(present.key, lambda cluster: cluster.scale(present, replicas))
        except Conflict:
            # If the response was lost, the retry of a successful write conflicts with itself. Only a live read shows
            # whether it is done, and starts the cool-down: the records may lag behind.
            found = await self._cluster.get_workload(present.key)
            if found is None or found.replicas != replicas:
                raise
        return ""

    async def _set_options(
        self, observation: IntentObservation, present: Workload, after: TargetState, now: float
    ) -> str:
        state = observation.state
        assert state is not None
        mark = start_options_change(
            present,
            PodOptions(after.cache_class, after.power_profile),
            had=PodOptions(state.cache_class, state.power_profile),
            container=observation.main_container,
            cores=after.cpu or 1.0,
            now=now,
        )
        await self._executor.write(present.key, lambda cluster: cluster.patch_options(present, mark))
        return ""

    async def finish_rollout(self, workload: Workload, now: float) -> None:
        """Report options whose rollout is complete, and revert those that could not be rolled out.

        This does not depend on an Intent: a started rollout is always finished.
        """
        mark = advance_options_change(workload, now=now)
        if mark is None or not self._may_write():
            return
        await self._executor.write(workload.key, lambda cluster: cluster.patch_options(workload, mark))
        if mark.phase is OptionsPhase.ROLLING:
            return
        if mark.phase is OptionsPhase.REVERTED:
            message = (
                f"The rollout to {mark.after} did not complete in time, so it was reverted to {mark.before}"
            )
            self._cluster.emit(workload, type="Warning", reason="OptionsReverted", message=message)
        else:
            message = f"All pods now have {mark.after} instead of {mark.before}"
            self._cluster.emit(workload, type="Normal", reason="OptionsChanged", message=message)

    async def _remove_pod(self, observation: IntentObservation, name: str) -> str:
        pod = next((pod for pod in observation.pods if pod.name == name), None)
        # The pod may have been deleted since the plan; another one must not be evicted instead.
        if pod is None:
            return f"pod {name} no longer exists"
        assert observation.workload is not None
        await self._executor.write(observation.workload.key, lambda cluster: cluster.evict(pod))
        return ""

    def _read_hold(self, workload: Workload) -> Hold | None:
        """Return the present hold on a workload: somebody may have held it since it was observed."""
        return read_hold((self._records.get(workload.key) or workload).annotations)

    async def _resize(
        self,
        observation: IntentObservation,
        workload: Workload,
        sizes: Sizes,
        now: float,
        *,
        reason: str,
        urgent: bool = False,
        effective: Sizes | None = None,
    ) -> ReconcileResult | None:
        """Resize a workload to these sizes, which were planned from the effective ones."""
        used = observation.state.memory_used if observation.state else None
        watched = Duration.parse(f"{max(1, round(self._observation_period()))}s")
        desired = DesiredChange(
            sizes=sizes,
            strategy=UpdateStrategy(
                # Intents have a cool-down of their own, so the policy's interval must not delay them a
                # second time.
                min_interval=Duration.parse("0s"),
                # All pods at once: an Intent that is missed needs the new size everywhere, and its KPI
                # shows harm.
                canary=Canary(percent=100, observation=watched),
                update_requests_only=False,
            ),
            can_resize_in_place=self._can_resize_in_place(),
            memory_limits_fixed=self._memory_limits_fixed(observation.pods),
            # A memory limit below the usage would get the container OOM-killed.
            needed_memory={} if used is None else {observation.main_container: add_headroom(int(used))},
            is_urgent=urgent,
            hold_reason=str(self._read_hold(workload) or ""),
            computed_from=effective,
            size_limits=self._size_limits(workload.namespace),
        )
        if not self._may_write():
            return None
        requester = Requester(intent=str(observation.intent), reason=reason)
        result = await self._executor.reconcile(workload.key, desired, now=int(now), requester=requester)
        if result is not None:
            self._recorder.record_result(workload, result)
        return result


def has_running_pod_to_resize(workload: Workload, pods: Iterable[Pod], limits: SizeLimits) -> bool:
    """Return whether a change is in progress and a pod that can be resized now does not have its size."""
    annotations = read_change_annotations(workload, limits)
    change = annotations.change if annotations else None
    return change is not None and any(
        not is_crash_looping(pod) and not has_size(pod, change.after) for pod in pods
    )


def _refusal_reason(result: ReconcileResult | None, now: float) -> str:
    """Return the reason why a resize was not executed; empty if it was."""
    if result is None:
        return "the workload no longer exists"
    if result.actions:
        return ""
    is_next = result.requeue_at is not None and result.requeue_at <= now + DEADLINES.poll
    return _TransientRefusal(result.reason) if is_next else result.reason


def _merge_resizes(state: TargetState, plan: Sequence[IntentAction]) -> Sequence[ContainerSize]:
    """Merge the resizes of a plan. Each controls one resource of the main container, whatever else a planner
    plugin promises.
    """
    sizes = list(state.sizes)
    for action in plan:
        size = action.after.main_size
        if size is None or action.actuator not in RESIZING_ACTUATORS:
            continue
        fields = (
            ("cpu_request", "cpu_limit")
            if action.actuator == ResizeCpu.name
            else ("memory_request", "memory_limit")
        )
        asked = {name: getattr(size, name) for name in fields}
        sizes[state.main] = msgspec.structs.replace(sizes[state.main], **asked)
    return sizes


def _to_resources(size: ContainerSize) -> Resources:
    def millicores(cores: float | None) -> int | None:
        # Never 0: Kubernetes would take a limit of 0 for no limit.
        return None if cores is None else max(1, round(cores * 1000))

    def whole(amount: float | None) -> int | None:
        return None if amount is None else round(amount)

    return Resources(
        millicores(size.cpu_request),
        millicores(size.cpu_limit),
        whole(size.memory_request),
        whole(size.memory_limit),
    )

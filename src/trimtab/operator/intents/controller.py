"""The Intent controller: each cycle observes all Intents, plans where an objective is missed or resources can be
released, executes the plans and writes statuses.

It is level-triggered: a cycle depends on the current state, including the statuses of Intents, and keeps nothing
that a restart must not lose. An Intent that fails does not block the others.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Never

import msgspec
import structlog

from trimtab.actuation.decide.stalls import is_crash_looping
from trimtab.actuation.effective_size import live_pods
from trimtab.aio import take_turns, task_group
from trimtab.api.intent import ObjectiveVerdict
from trimtab.api.meta import Document
from trimtab.intents.arbitration import PlanDecision, PlanRequest
from trimtab.intents.constraints import PlanConstraints
from trimtab.intents.objective import Goal
from trimtab.intents.planner import Plan, Purpose
from trimtab.intents.plugins.client import RemoteActuator
from trimtab.intents.state import TargetState
from trimtab.kube.errors import KubeError, describe
from trimtab.kube.kinds.custom import IntentKey, IntentRecord
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.kube.rest.resources import VPAS
from trimtab.operator.cluster_state import ClusterState
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.intent_index import IntentIndex
from trimtab.operator.intents.capacity import available_capacity
from trimtab.operator.intents.effect_learner import EffectLearner
from trimtab.operator.intents.executor import PlanExecutor, has_running_pod_to_resize
from trimtab.operator.intents.guardrails import (
    AutoscalerConstraints,
    blocked_reason,
    build_constraints,
    explain_no_release,
    protected_reason,
)
from trimtab.operator.intents.observer import IntentObservation, IntentObserver
from trimtab.operator.intents.planning import PlanningService
from trimtab.operator.intents.release_backoff import ReleaseBackoff
from trimtab.operator.intents.safe_sizes import SafeSizeProvider
from trimtab.operator.intents.status import IntentOutcome, objectives_met_since, plan_executed_at
from trimtab.operator.intents.status_writer import IntentStatusWriter
from trimtab.operator.metrics import Metrics
from trimtab.operator.views import IntentViews, PublishedIntent
from trimtab.timing import Cooldown

log = structlog.get_logger(__name__)

MAX_CONCURRENT_OBSERVE_CALLS = 4
"""The most concurrent Observe calls to plugins. Each one blocks a thread, and a process with one CPU has only
five."""


MAX_RESTORED = 50
"""The most Intents of one namespace that are restored from the store in a cycle, one after the other: a tenant may create
new ones all the time."""

CRASHED_POD_POLL_INTERVAL = 0.5
"""The seconds between two checks of the cached pods of a target with crashing containers."""

SCRAPE_DELAY = 30.0
"""The seconds until a sample reaches a query, in addition to the window of the query."""


class IntentController:
    """The reconciler of all Intents of a cluster."""

    def __init__(
        self,
        *,
        cluster_state: ClusterState,
        intent_index: IntentIndex,
        observer: IntentObserver,
        planning_service: PlanningService,
        safe_sizes: SafeSizeProvider,
        executor: PlanExecutor,
        effect_learner: EffectLearner,
        status_writer: IntentStatusWriter,
        config: Callable[[], OperatorConfig],
        can_resize_in_place: Callable[[], bool],
        metrics: Metrics,
        views: IntentViews,
    ) -> None:
        self._cluster_state = cluster_state
        self._intent_index = intent_index
        self._observer = observer
        self._planning_service = planning_service
        self._safe_sizes = safe_sizes
        self._executor = executor
        self._effect_learner = effect_learner
        self._status_writer = status_writer
        self._config = config
        self._can_resize_in_place = can_resize_in_place
        self._metrics = metrics
        self._views = views
        self._last_cycle_at: float | None = None
        self._waiting_since: dict[str, float | None] = {}
        """The time since which Intents have waited for capacity. Losing it costs them time only."""
        self._executed_at: dict[WorkloadKey | None, float] = {}
        """The time of the last action on each target."""
        self._oom_messages: dict[IntentKey, str] = {}
        """The messages about OOM kills of each Intent's target in this cycle."""
        self._restored: Counter[str] = Counter()
        """The Intents of each namespace that were restored in this cycle."""
        self._crashing: list[IntentObservation] = []
        """The Intents whose resize has to wait until a crashed container runs again."""
        self._release_backoff = ReleaseBackoff()
        self._refused = Cooldown[tuple[str, str]](0.0)
        """The Intents and actuators whose last action failed. Losing it costs one attempt only."""

    async def run(self) -> Never:
        while True:
            started = time.monotonic()
            # Checked in every cycle, because the configuration is reloaded while the operator runs.
            if self._config().intents.enabled:
                with self._metrics.intent_cycle_duration.time(), self._isolate_errors():
                    await self.run_once(time.time())
            # Without this, slow cycles would be further apart than the interval that the user configured.
            spent = time.monotonic() - started
            await self._wait_for_next_cycle(max(0.1, self._config().intents.interval.seconds - spent))

    async def _wait_for_next_cycle(self, seconds: float) -> None:
        """Wait for the next cycle; meanwhile resize containers that restart."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(left, CRASHED_POD_POLL_INTERVAL) if self._crashing else left)
            await self.resume_crashed_changes(time.time())

    async def resume_crashed_changes(self, now: float) -> None:
        """Continue changes that wait for crashed containers to run again.

        A container that is killed seconds after its start would rarely run during a cycle, and would never get its
        memory.
        """
        if not self._config().intents.enabled:
            self._crashing = []
        for observation in self._crashing:
            with self._isolate_errors(intent=str(observation.intent)):
                workload = (
                    self._cluster_state.get(observation.intent.target) if observation.intent.target else None
                )
                # All of it may have changed since the cycle that listed this workload: sizing continues the changes
                # of a workload as soon as no Intent controls it.
                if workload is None or blocked_reason(workload, self._config()):
                    continue
                if not self._is_controlling(replace(observation, workload=workload)):
                    continue
                if self._autoscaler_constraints(workload).forbids_resizing:
                    continue
                pods = live_pods(self._cluster_state.list_pods(workload))
                limits = self._config().intents.size_limits(workload.namespace)
                if has_running_pod_to_resize(workload, pods, limits):
                    await self._executor.sync_pods(replace(observation, workload=workload, pods=pods), now)

    async def run_once(self, now: float) -> None:
        """Reconcile every Intent once."""
        self._observer.start_cycle()
        self._restored.clear()
        self._intent_index.limit_namespaces(self._config().intents.max_per_namespace)
        intents = _sort_by_namespace_size(self._intent_index.list_intents())
        goals: list[Goal] = []
        async for intent in take_turns(intents):
            with self._isolate_errors(intent=str(intent)):
                if intent.spec is not None:
                    goals.append(self._observer.build_goal(intent, intent.spec))
                    await self._restore_effects(intent, goals[-1], now)
        self._effect_learner.forget_all_but(goals)
        self._release_backoff.forget_all_but({intent.target for intent in intents})
        self._status_writer.forget_all_but({intent.key for intent in intents})
        await self._finish_rollouts(now)
        observations = await self._observer.observe(
            intents, now=now, isolate=lambda intent: self._isolate_errors(intent=str(intent))
        )
        self._update_metrics(observations, now)
        self._executed_at = self._last_execution_times(intents, now)
        await self._show_to_plugins(observations)
        requests = {}
        self._oom_messages, self._crashing = {}, []
        for observation in observations:
            with self._isolate_errors(intent=str(observation.intent)):
                if request := await self._build_request(observation, now):
                    requests[observation.intent.key] = request
        # All at once and only after every Intent was observed: plans share the capacity of nodes and
        # quotas.
        decisions = await self._plan_requests(requests.values(), observations, now) if requests else {}
        # Replaced, not updated: a deleted Intent must not keep its bonus for waiting if it is created
        # again.
        self._waiting_since = {name: decision.waiting_since for name, decision in decisions.items()}
        for observation in observations:
            with self._isolate_errors(intent=str(observation.intent)):
                request = requests.get(observation.intent.key)
                outcome = (
                    await self._execute_decision(observation, request, decisions, now)
                    if request
                    else self._report_only(observation)
                )
                await self._status_writer.write_observed(observation, outcome, now=now)
        # Last, because nothing depends on them: a namespace may have thousands.
        await self._write_problems(intents, now)
        self._publish_views(intents, goals)

    def _publish_views(self, intents: Iterable[IntentRecord], goals: Iterable[Goal]) -> None:
        goals_by_intent = {goal.intent: goal for goal in goals}
        self._views.published.replace_all(
            {
                intent.key: PublishedIntent(
                    record=intent, goal=goal, effects=self._effect_learner.learned_effects(goal)
                )
                for intent in intents
                if (goal := goals_by_intent.get(str(intent)))
            }
        )

    async def _write_problems(self, intents: Iterable[IntentRecord], now: float) -> None:
        """Write statuses of profiles and of invalid Intents."""
        async for profile in take_turns(self._intent_index.list_profiles()):
            with self._isolate_errors(profile=f"{profile.namespace}/{profile.name}"):
                config = self._config()
                await self._status_writer.write_profile(
                    profile,
                    config.intents.default_queries,
                    config.query_rules,
                    self._observer.check_budget,
                )
        for intent in intents:
            with self._isolate_errors(intent=str(intent)):
                if intent.spec is None:
                    await self._status_writer.write_invalid(intent, now=now)

    async def _finish_rollouts(self, now: float) -> None:
        """Finish rollouts of options."""
        for workload in list(self._cluster_state.list_workloads()):
            with self._isolate_errors(workload=str(workload.key)):
                # Also workloads that no Intent targets any more: a rollout that has started must not stay
                # half done.
                if not blocked_reason(workload, self._config()):
                    await self._executor.finish_rollout(workload, now)

    @contextmanager
    def _isolate_errors(self, **fields: str) -> Iterator[None]:
        """Log and count an error, so that it affects neither other Intents nor the next cycle."""
        try:
            yield
        # Without a stack trace: the API server's answer says enough, and such errors repeat in every cycle.
        except KubeError as error:
            self._metrics.intent_errors.labels(type(error).__name__).inc()
            log.warning("intent.failed", error=describe(error), **fields)
        except Exception as error:
            self._metrics.intent_errors.labels(type(error).__name__).inc()
            log.exception("intent.failed", **fields)

    async def _show_to_plugins(self, observations: Iterable[IntentObservation]) -> None:
        """Pass the current states to plugins concurrently, so that a slow one does not delay each Intent."""
        free = asyncio.Semaphore(MAX_CONCURRENT_OBSERVE_CALLS)

        async def show(plugin: RemoteActuator, observation: IntentObservation) -> None:
            state, workload, goal = observation.state, observation.workload, observation.goal
            if state is None or workload is None:
                return
            with self._isolate_errors(intent=str(observation.intent), plugin=plugin.name):
                async with free:
                    # In a thread, because the calls block: a slow plugin would stop the renewal of the
                    # Lease.
                    await asyncio.to_thread(plugin.observe, state, goal=goal, target=workload.key)

        async with task_group() as group:
            for plugin in self._planning_service.plugin_actuators().values():
                for observation in filter(self._is_controlling, observations):
                    group.create_task(show(plugin, observation))

    def _is_controlling(self, observation: IntentObservation) -> bool:
        workload = observation.workload
        owner = self._intent_index.controlling_intent(workload.key) if workload else None
        return owner is not None and owner.key == observation.intent.key

    async def _build_request(self, observation: IntentObservation, now: float) -> PlanRequest | None:
        """Build the planning input of an Intent; None if there is nothing to plan."""
        state, workload, goal = observation.state, observation.workload, observation.goal
        if state is None or workload is None:
            return None
        if not self._is_controlling(observation):
            # An Intent that only observes learns too, so that it can plan well as soon as it becomes
            # active.
            await self._effect_learner.record(goal, state, None, now=now)
            return None
        others = self._autoscaler_constraints(workload)
        # Not `blocked_reason`: a hold stops new plans, but new pods still get the size in effect.
        if not protected_reason(workload, self._config()) and not others.forbids_resizing:
            await self._executor.sync_pods(observation, now)
            if any(map(is_crash_looping, observation.pods)):
                self._crashing.append(observation)
        safe = await self._safe_sizes.get_safe_size(
            workload, observation.pods, observation.main_container, now=now
        )
        kept = blocked_reason(workload, self._config()) or (
            others.forbids_resizing and "; ".join(others.explain())
        )
        self._oom_messages[observation.intent.key] = (
            # Users must learn that a container is killed again and again although Trimtab may not act.
            f"{safe.oom_message}; not done: {kept}" if safe.oom_relief and kept else safe.oom_message
        )
        if safe.oom_relief and not kept:
            # OOM relief comes before any objective and for any container: a container that is killed repeatedly
            # serves nobody.
            await self._executor.relieve_oom(observation, safe.oom_relief, now)
        await self._effect_learner.refit(goal, now=now)
        limits = build_constraints(
            observation,
            config=self._config(),
            autoscalers=others,
            safe=safe,
            cooldown_until=self._cooldown_until(observation),
        )
        return PlanRequest(
            goal=goal,
            state=state,
            effects=self._effect_learner.get_effects(goal, state),
            constraints=msgspec.structs.replace(limits, refused_until=self._refused_until(goal.intent, now)),
            waiting_since=self._waiting_since.get(goal.intent),
        )

    def _report_only(self, observation: IntentObservation) -> IntentOutcome:
        """Return the outcome of an Intent that only reports."""
        workload = observation.workload
        owner = self._intent_index.controlling_intent(workload.key) if workload else None
        if owner is None or owner.key == observation.intent.key or not observation.spec.active:
            return IntentOutcome(oom_message=self._oom_messages.get(observation.intent.key, ""))
        return IntentOutcome(remarks=(f"Intent {owner} has the same target and comes first",))

    async def _execute_decision(
        self,
        observation: IntentObservation,
        request: PlanRequest,
        decisions: Mapping[str, PlanDecision],
        now: float,
    ) -> IntentOutcome:
        goal, workload = observation.goal, observation.workload
        assert workload is not None
        plan = decisions[goal.intent].plan
        before = self._status_writer.last_status(observation.intent)
        self._metrics.intent_plans.labels(goal.namespace, plan.purpose.value).inc()
        outcome = IntentOutcome(
            plan=plan,
            planner=self._planning_service.planner_name(goal.namespace),
            is_cooling_down=now < self._cooldown_until(observation),
            remarks=(
                *self._autoscaler_constraints(workload).explain(),
                *explain_no_release(request.state, goal),
            ),
            oom_message=self._oom_messages.get(observation.intent.key, ""),
        )
        outcome = await self._execute_plan(observation, outcome, plan, request.constraints, before, now)
        # A plan that was not executed has no effect: learning from it would teach that its actions do
        # nothing.
        await self._effect_learner.record(goal, request.state, plan if outcome.done else None, now=now)
        return outcome

    async def _plan_requests(
        self, requests: Iterable[PlanRequest], observations: Sequence[IntentObservation], now: float
    ) -> dict[str, PlanDecision]:
        """Plan for each request within the shared capacity."""
        cluster_state = self._cluster_state
        capacity = available_capacity(
            nodes=cluster_state.nodes,
            pods=cluster_state.pods,
            quotas=cluster_state.quotas,
            targets=_group_states_by_namespace(filter(self._is_controlling, observations)),
            settings=self._config().intents,
        )
        return await self._planning_service.plan_requests(list(requests), capacity=capacity, now=now)

    async def _execute_plan(
        self,
        observation: IntentObservation,
        outcome: IntentOutcome,
        plan: Plan,
        limits: PlanConstraints,
        before: Document,
        now: float,
    ) -> IntentOutcome:
        if not plan.actions:
            return outcome
        # A release in the first quiet minutes would be reversed at the next peak, with two disruptions.
        target, is_release = observation.intent.target, plan.purpose is Purpose.RELEASE
        if is_release and (wait := self._release_blocked_reason(target, before, now)):
            return replace(outcome, blocked_reason=wait)
        # Record the start first: if this process ends before it writes the status, the action must not be repeated.
        await self._status_writer.write_started(observation, outcome, now=now)
        plugins = self._planning_service.plugin_actuators()
        result = await self._executor.execute(plan, observation, limits=limits, plugins=plugins, now=now)
        if result.blocked_reason and not result.is_transient:
            # Otherwise the best plan would be the refused one in every cycle.
            self._refused.start((observation.goal.intent, plan.actions[len(result.done)].actuator), now)
        if result.done:
            release_after = self._config().intents.release_after.seconds
            self._release_backoff.record(target, is_release=is_release, now=now, release_after=release_after)
        for action in plan.actions:
            label = "done" if action in result.done else "blocked"
            self._metrics.intent_actions.labels(observation.goal.namespace, action.actuator, label).inc()
        return replace(outcome, done=result.done, blocked_reason=result.blocked_reason)

    def _release_blocked_reason(self, target: WorkloadKey | None, before: Document, now: float) -> str:
        """Return the reason why no resources are released yet; empty if they may be."""
        least, longer = self._config().intents.release_after.seconds, self._release_backoff.wait(target)
        since = objectives_met_since(before, now=now)
        if since is not None and now - since >= max(least, longer):
            return ""
        more = " (longer than releaseAfter, because objectives were missed soon after earlier releases)"
        return (
            f"resources are released once all objectives have been met for {max(least, longer):g} s"
            f"{more if longer > least else ''}"
        )

    def _cooldown_until(self, observation: IntentObservation) -> float:
        """Return until when nothing more is done to a target: its KPIs must show what was done last, by any Intent.

        A KPI that averages over longer than the cool-down still shows what was before it, and would be answered twice.
        """
        done = self._executed_at.get(observation.intent.target)
        rest = max(self._config().intents.cool_down.seconds, observation.kpi_window + SCRAPE_DELAY)
        return 0.0 if done is None else done + rest

    def _last_execution_times(
        self, intents: Iterable[IntentRecord], now: float
    ) -> dict[WorkloadKey | None, float]:
        """Return when something was last done to each target, by whichever Intent."""
        found: dict[WorkloadKey | None, float] = {}
        for intent in intents:
            if (at := plan_executed_at(self._status_writer.last_status(intent), now=now)) is not None:
                found[intent.target] = max(found.get(intent.target, at), at)
        return found

    def _refused_until(self, intent: str, now: float) -> dict[str, float]:
        """Return the time until which failed actions are not retried, so that other actions can be planned."""
        # Read each time, because the configuration may be reloaded.
        self._refused.seconds = self._config().intents.cool_down.seconds
        refused = self._refused.active(now)
        return {actuator: until for (name, actuator), until in refused.items() if name == intent}

    def _autoscaler_constraints(self, workload: Workload) -> AutoscalerConstraints:
        return AutoscalerConstraints(
            workload,
            hpas=self._cluster_state.list_hpas(workload),
            vpa=self._cluster_state.active_vpa(workload.key),
            vpas_unsynced_reason=self._cluster_state.unsynced_reason(VPAS, workload.namespace),
            bounds_unsynced_reason=self._cluster_state.unsynced_bounds_reason(workload.namespace),
            can_resize_in_place=self._can_resize_in_place(),
        )

    async def _restore_effects(self, intent: IntentRecord, goal: Goal, now: float) -> None:
        """Restore the stored effects of an Intent that is new to this process, of a few per namespace and cycle."""
        if self._effect_learner.is_restored(goal) or self._restored[goal.namespace] >= MAX_RESTORED:
            return
        self._restored[goal.namespace] += 1
        past = await self._effect_learner.restore(goal, now=now)
        if past is not None and intent.target is not None:
            self._observer.restore_history(intent.target, past)

    def _update_metrics(self, observations: Sequence[IntentObservation], now: float) -> None:
        counts: dict[tuple[str, str], int] = {}
        passed = 0.0 if self._last_cycle_at is None else max(0.0, now - self._last_cycle_at)
        self._last_cycle_at = now
        for each in observations:
            verdicts = [one.evaluate(each.readings[one.name].value) for one in each.goal.objectives]
            for verdict in verdicts:
                labels = each.goal.namespace, verdict.value
                counts[labels] = counts.get(labels, 0) + 1
            if ObjectiveVerdict.MISSED in verdicts:
                self._metrics.intent_violation.labels(each.goal.namespace).inc(passed)
        # Cleared first, or namespaces without Intents would keep their last counts.
        self._metrics.intent_objectives.clear()
        for (namespace, verdict_name), count in counts.items():
            self._metrics.intent_objectives.labels(namespace, verdict_name).set(count)


def _sort_by_namespace_size(intents: Sequence[IntentRecord]) -> list[IntentRecord]:
    """Sort the Intents so that namespaces with few of them do not wait for those with many."""
    counts = Counter(intent.namespace for intent in intents)
    return sorted(intents, key=lambda intent: counts[intent.namespace])


def _group_states_by_namespace(observations: Iterable[IntentObservation]) -> dict[str, list[TargetState]]:
    """Return the states of targets by namespace; each workload has one intent that controls it, and counts once."""
    found: dict[str, list[TargetState]] = {}
    for each in observations:
        if each.state is not None:
            found.setdefault(each.goal.namespace, []).append(each.state)
    return found

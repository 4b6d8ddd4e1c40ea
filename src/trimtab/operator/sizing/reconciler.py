"""The sizing reconciler: recommend, apply and report for one workload at a time.

It gets a key and reads the current state: the cluster state, the recommender's estimates, the annotations of the workload.
Therefore a lost event, a restart or another leader cost time and nothing else. Time is an argument.

A workload is sized by its effective policy and, independently, by each VPA that names Trimtab (`vpa.recommender`).
`ingest_cycle` reads usage.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Protocol, get_args

from trimtab.actuation.actions import EvictPod, PatchTemplate, ResizePod
from trimtab.actuation.change_annotations import read_change_annotations
from trimtab.actuation.decide.health import HarmSignals
from trimtab.actuation.executor import ChangeExecutor, ReconcileResult, Requester
from trimtab.api.optimizationpolicy import PolicyMode, WorkloadState
from trimtab.api.quantity import ResourceName
from trimtab.kube.kinds.hpas import HorizontalPodAutoscaler
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.operator.cluster_state import ClusterState
from trimtab.operator.config.model import Guardrail
from trimtab.operator.logs import bind_workload
from trimtab.operator.metrics import Metrics
from trimtab.operator.policy.resolver import (
    EffectivePolicy,
    PolicyResolver,
    resolve_hold,
    size_limits,
)
from trimtab.operator.policy.status import SkipReason, WorkloadOutcome
from trimtab.operator.policy.status_writer import PolicyStatusWriter
from trimtab.operator.sizing.harm_signals import read_throttling
from trimtab.operator.views import WorkloadViewPublisher
from trimtab.operator.vpa.recommender import VpaRecommender
from trimtab.recommender.cohort import ContainerEstimate
from trimtab.recommender.oom_kills import OomKill
from trimtab.recommender.recommender import Recommender
from trimtab.recommender.workload import (
    ClusterConstraints,
    WorkloadRecommendation,
    explain_estimates,
    list_sized_containers,
    recommend_workload,
)
from trimtab.sizing.evidence import (
    NO_SHIFTS,
    Evidence,
    UsageShift,
    describe_learning,
    describe_usage_shifts,
    find_usage_shifts,
)
from trimtab.sizing.policy_rules import PolicyRules
from trimtab.sizing.recommendation import have_same_targets
from trimtab.usage.pod_ownership import WorkloadContainer

METHODS = {ResizePod: "InPlace", EvictPod: "Recreate", PatchTemplate: "Template"}
NEW_OOM_WINDOW = 3600.0
"""The seconds for which an OOM kill that was not known before counts as new."""
NEW_SHIFT_WINDOW = 2 * 3600.0
"""The seconds for which a usage shift that was not known before counts as new: it is found at the end of an hour."""
VPA_INTERVAL = 60.0
"""The seconds between two reconciles of a workload that only a VPA targets."""
OWNER_INTERVAL = 60.0
"""The seconds until a workload with a change is reconciled again of which it is unknown who continues the change."""
HEALTHY_STATES = frozenset({WorkloadState.RECOMMENDED, WorkloadState.APPLIED, WorkloadState.PENDING})


class ChangeRecorder(Protocol):
    """A recorder of recommendations and changes, for users and for the store."""

    async def record_recommendation(
        self,
        workload: Workload,
        recommendation: WorkloadRecommendation,
        *,
        changed: bool,
        policy: EffectivePolicy,
        now: float,
    ) -> None: ...

    def record_result(self, workload: Workload, result: ReconcileResult) -> None: ...

    def record_oom_kills(self, workload: Workload, kills: Iterable[OomKill]) -> None: ...

    def record_usage_shifts(self, workload: Workload, description: str) -> None: ...

    def record_abandoned_change(self, workload: Workload) -> None: ...

    def forget_workload(self, key: WorkloadKey) -> None: ...


class GuardrailChecker(Protocol):
    """A checker of guardrails."""

    async def check_guardrails(
        self, workload: Workload, guardrails: Sequence[Guardrail], *, now: float
    ) -> Mapping[str, bool | None]: ...


class SizingReconciler:
    """Reconciles the workloads that policies select, one at a time."""

    def __init__(
        self,
        *,
        cluster_state: ClusterState,
        policy_resolver: PolicyResolver,
        recommender: Recommender,
        executor: ChangeExecutor,
        status_writer: PolicyStatusWriter,
        recorder: ChangeRecorder,
        guardrails: GuardrailChecker,
        vpa_recommender: VpaRecommender,
        view_publisher: WorkloadViewPublisher,
        cluster_constraints: Callable[[], ClusterConstraints],
        can_resize_in_place: Callable[[], bool],
        memory_limits_fixed: Callable[[Iterable[Pod]], bool],
        metrics: Metrics,
        controlling_intent_name: Callable[[WorkloadKey], str],
        unsynced_reason: Callable[[str], str],
    ) -> None:
        self._cluster_state = cluster_state
        self._policy_resolver = policy_resolver
        self._recommender = recommender
        self._executor = executor
        self._status_writer = status_writer
        self._recorder = recorder
        self._guardrails = guardrails
        self._vpa_recommender = vpa_recommender
        self._view_publisher = view_publisher
        self._cluster_constraints = cluster_constraints
        self._can_resize_in_place = can_resize_in_place
        self._memory_limits_fixed = memory_limits_fixed
        self._metrics = metrics
        self._controlling_intent_name = controlling_intent_name
        """Returns the name of the Intent that controls a workload; empty if there is none."""
        self._unsynced_reason = unsynced_reason
        """Returns the reason why what controls or bounds a namespace is unknown; empty if it is known."""

    async def reconcile(self, key: WorkloadKey, now: float) -> float | None:
        """Reconcile one workload and return the seconds until the next reconcile."""
        workload = self._cluster_state.get(key)
        # The pods of a workload that is being deleted end anyway: changing them would only disturb their
        # shutdown.
        policy = self._policy_resolver.resolve(workload) if workload and not workload.deleting else None
        name = policy.name if policy else ""
        with bind_workload(kind=key.kind, namespace=key.namespace, name=key.name, policy=name):
            try:
                again = await self._reconcile(key, workload, policy, now)
                if self._vpa_recommender.has_vpa(key):
                    await self._update_vpas(key, workload, policy, now)
                    # Without a policy nothing else would reconcile the workload again, and its VPA would
                    # keep an old recommendation.
                    again = min(again or VPA_INTERVAL, VPA_INTERVAL) if workload else None
            # Counted here, because the work queue, which retries the workload, does not know its policy.
            except Exception as error:
                self._metrics.reconciliation_errors.labels(name, type(error).__name__).inc()
                raise
            finally:
                # Even after an error: one workload that always fails must not hold back the status of its policy.
                self._status_writer.mark_reconciled(key)
                self._view_publisher.publish(key, policy)
        return again

    async def _update_vpas(
        self, key: WorkloadKey, workload: Workload | None, policy: EffectivePolicy | None, now: float
    ) -> None:
        sizing = self._policy_resolver.resolve_strategy(policy, is_required=True)
        learned: dict[str, ContainerEstimate] = {}
        if workload and sizing:
            pods = self._cluster_state.list_pods(workload)
            ended = self._cluster_state.list_failed_pods(workload)
            names = list_sized_containers(workload, pods)
            async with self._recommender.lock:
                # Without a policy, nothing else records these OOM kills.
                kills = self._recommender.observe_pod_status(workload, pods, names, ended=ended, now=now)
                self._recorder.record_oom_kills(workload, kills)
                for name in names:
                    if found := self._recommender.estimate(
                        name, sizing, now=now, is_long_running=workload.is_long_running
                    ):
                        learned[name.container] = found
        await self._vpa_recommender.update_vpas(key, learned, now, rules=policy.rules if policy else None)

    async def _reconcile(
        self, key: WorkloadKey, workload: Workload | None, policy: EffectivePolicy | None, now: float
    ) -> float | None:
        if workload is None or policy is None:
            self._status_writer.remove_workload(key)
            is_gone = workload is None or workload.deleting
            if is_gone:
                self._recorder.forget_workload(key)
            # What an Intent has under way, it continues.
            if self._controlling_intent_name(key):
                return None
            self._executor.forget(key)
            return None if workload is None or is_gone else self._report_abandoned_change(workload)
        interval = policy.reconciliation_interval
        if policy.problem:
            return min(interval, await self._finish_change(workload, policy, now))
        if policy.spec.mode is PolicyMode.DISABLED:
            disabled = WorkloadOutcome(
                WorkloadState.SKIPPED, "the mode is Disabled", skip_reason=SkipReason.DISABLED
            )
            # A policy that was set to Disabled keeps its last recommendations, so that users can still
            # compare with them.
            before = self._status_writer.get_outcome(key)
            self._status_writer.set_outcome(
                policy.key, key, before if before and before.recommendations else disabled
            )
            async with self._recommender.lock:
                names = [WorkloadContainer.from_workload(key, each.name) for each in workload.containers]
                estimates = self._estimate(names, workload, policy, now)
            evidence = _template_evidence(workload, estimates)
            self._view_publisher.set_evidence(key, evidence)
            return interval
        with self._metrics.reconciliation_duration.labels(policy.name).time():
            return min(interval, await self._recommend_and_apply(workload, policy, now))

    async def _finish_change(self, workload: Workload, policy: EffectivePolicy, now: float) -> float:
        """Continue a change that began before its policy became invalid, and return the seconds until the next step.

        Otherwise some pods would keep another size than the rest, and nobody would see whether it harms them. While it is
        unknown which policy applies, nothing is continued: another one may have stopped the change.
        """
        key, again, annotations = workload.key, inf, read_change_annotations(workload)
        outcome = WorkloadOutcome(
            WorkloadState.SKIPPED, reason=policy.problem, skip_reason=SkipReason.POLICY_INVALID
        )
        is_forbidden = PolicyMode.AUTO in self._policy_resolver.config.limits.forbidden_modes
        if annotations is not None and annotations.change and not is_forbidden:
            if not policy.is_certain:
                again = OWNER_INTERVAL
            else:
                nothing_new = WorkloadRecommendation((), {}, is_urgent=False)
                pods = self._cluster_state.list_pods(workload)
                result = await self._apply(workload, pods, nothing_new, policy, now)
                if result is not None and result.requeue_at is not None:
                    again = max(result.requeue_at - now, 0.5)
                if result is not None and result.annotations and result.annotations.change:
                    reason = f"{policy.problem}; the change that began before is finished: {result.reason}"
                    outcome = replace(outcome, state=result.state, reason=reason)
        self._status_writer.set_outcome(policy.key, key, outcome)
        return again

    def _report_abandoned_change(self, workload: Workload) -> float | None:
        """Report a change that nothing continues: some pods would keep the other size unexplained.

        Return the seconds until the next try where a policy or an Intent may yet be read that continues it.
        """
        found = read_change_annotations(workload)
        if found is None or found.change is None:
            return None
        if self._cluster_state.unknown_owner_reason(workload.namespace):
            return OWNER_INTERVAL
        self._recorder.record_abandoned_change(workload)
        return None

    async def _recommend_and_apply(self, workload: Workload, policy: EffectivePolicy, now: float) -> float:
        key, pods = workload.key, self._cluster_state.list_pods(workload)
        hpas = self._cluster_state.list_hpas(workload)
        # An ingest cycle may run in between and change the estimates: the kills, the recommendation and its
        # evidence must come from the same state.
        async with self._recommender.lock:
            names = self._observe_ooms(workload, pods, policy, now)
            estimates = self._estimate(names, workload, policy, now)
            assessment = self._recommend(workload, pods, policy, hpas, estimates, now)
            before = self._status_writer.get_outcome(key)
            changed = before is None or not have_same_targets(
                before.recommendations, assessment.recommendations
            )
            rules = policy.rules_for(can_resize_in_place=self._can_resize_in_place())
            shifts = find_usage_shifts(assessment.evidence, rules)
            # Of a recommendation that has not changed, the earlier explanation is kept, unless another policy gave it or
            # a sudden change of usage began or ended.
            earlier = before.explained_under if before else None
            explained = (
                changed
                or not earlier
                or earlier.explanation_basis != policy.explanation_basis
                or (before.usage_shifts if before else NO_SHIFTS).keys() != shifts.keys()
            )
            if explained:
                assessment = explain_estimates(
                    assessment,
                    lambda container: self._recommender.explain(
                        WorkloadContainer.from_workload(key, container), policy.strategy_spec, now=now
                    ),
                    source=self._recommender.ingester_for(policy.strategy_spec).name,
                )
        # The risks of a workload that is not sized are shown all the same.
        evidence = assessment.evidence or _template_evidence(workload, estimates)
        self._view_publisher.set_evidence(key, evidence)
        self._report_usage_shifts(workload, shifts, before, policy, now)
        if changed and assessment.sizes:
            self._metrics.recommendations.labels(policy.name).inc()
        if assessment.sizes:
            await self._recorder.record_recommendation(
                workload, assessment, changed=changed, policy=policy, now=now
            )
        result = await self._apply(workload, pods, assessment, policy, now)
        if result is None:
            self._status_writer.remove_workload(key)
            return policy.reconciliation_interval
        applied = result.annotations.applied.at if result.annotations and result.annotations.applied else None
        held = (
            assessment.no_change_reason
            if result.state in HEALTHY_STATES and assessment.no_change_reason
            else ""
        )
        outcome = WorkloadOutcome(
            state=WorkloadState.SKIPPED if held else result.state,
            reason=held
            or result.reason
            or _describe_evidence(result.state, workload, evidence, shifts, rules),
            # Keep the explanation from the time of the recommendation: the evidence grows all the time.
            recommendations=assessment.recommendations if explained or not before else before.recommendations,
            usage_shifts=shifts,
            explained_under=policy,
            recommended_at=now if assessment.sizes else before.recommended_at if before else None,
            applied_at=applied,
            skip_reason=SkipReason.NO_RECOMMENDATION
            if held or not assessment.sizes
            else SkipReason.CANNOT_APPLY,
        )
        # Counted once per failure: a workload that stays failed is reconciled again in every interval.
        if outcome.state is WorkloadState.FAILED and (before is None or before.state is not outcome.state):
            self._metrics.reconciliation_errors.labels(policy.name, "Failed").inc()
        self._status_writer.set_outcome(policy.key, key, outcome)
        return (
            policy.reconciliation_interval
            if result.requeue_at is None
            # A time that has already passed must not reconcile the same workload in a busy loop.
            else max(result.requeue_at - now, 0.5)
        )

    def _report_usage_shifts(
        self,
        workload: Workload,
        shifts: Mapping[str, UsageShift],
        before: WorkloadOutcome | None,
        policy: EffectivePolicy,
        now: float,
    ) -> None:
        """Report the shifts that began since the last reconcile; after a restart, those of `NEW_SHIFT_WINDOW`."""
        known = before.usage_shifts if before else NO_SHIFTS
        earliest = -inf if before else now - NEW_SHIFT_WINDOW
        new = {
            name: each
            for name, each in shifts.items()
            if each.since > (known[name].since if name in known else earliest)
        }
        if new:
            self._metrics.usage_shifts.labels(policy.name).inc()
            self._recorder.record_usage_shifts(workload, describe_usage_shifts(new, policy.rules))

    def _observe_ooms(
        self, workload: Workload, pods: list[Pod], policy: EffectivePolicy, now: float
    ) -> list[WorkloadContainer]:
        """Record OOM kills and sizes in effect, and return the containers that are sized."""
        names = list_sized_containers(workload, pods)
        ended = self._cluster_state.list_failed_pods(workload)
        kills = self._recommender.observe_pod_status(workload, pods, names, ended=ended, now=now)
        self._recorder.record_oom_kills(workload, kills)
        # Pods report their last kill forever, and a new leader would count all of them at once.
        self._metrics.oom_kills.labels(policy.name).inc(sum(now - kill.at < NEW_OOM_WINDOW for kill in kills))
        return names

    def _estimate(
        self,
        names: Iterable[WorkloadContainer],
        workload: Workload,
        policy: EffectivePolicy,
        now: float,
    ) -> dict[str, ContainerEstimate]:
        found = self._recommender.estimate_all(
            names,
            policy.strategy_spec,
            now=now,
            is_long_running=workload.is_long_running,
            explained=False,
        )
        return {name.container: each for name, each in found.items()}

    def _recommend(
        self,
        workload: Workload,
        pods: list[Pod],
        policy: EffectivePolicy,
        hpas: list[HorizontalPodAutoscaler],
        estimates: Mapping[str, ContainerEstimate],
        now: float,
    ) -> WorkloadRecommendation:
        can_resize_in_place = self._can_resize_in_place()
        return recommend_workload(
            workload,
            pods,
            rules=policy.rules_for(can_resize_in_place=can_resize_in_place),
            estimate=estimates.get,
            constraints=self._cluster_constraints().constraints_for(
                workload, replicas=workload.replicas, hpas=hpas
            ),
            source=self._recommender.ingester_for(policy.strategy_spec).name,
            now=now,
            sync=self._policy_resolver.pod_sync(
                workload,
                policy,
                pods,
                intent=self._controlling_intent_name(workload.key),
                can_resize_in_place=can_resize_in_place,
            ),
            find_containers=self._view_publisher.effective.find,
            explained=False,
        )

    async def _apply(
        self,
        workload: Workload,
        pods: list[Pod],
        recommendation: WorkloadRecommendation,
        policy: EffectivePolicy,
        now: float,
    ) -> ReconcileResult | None:
        """Change the workload towards its recommendation, as far as that is permitted."""
        key, config = workload.key, self._policy_resolver.config
        # Somebody may have held it since it was read: the response to the written recommendation shows that.
        workload = self._cluster_state.get(key) or workload
        hold, intent = resolve_hold(workload, config), self._controlling_intent_name(key)
        vpa = self._cluster_state.active_vpa(key)
        desired = recommendation.to_desired_change(
            policy.update_strategy(config, now=now),
            can_resize_in_place=self._can_resize_in_place(),
            blocked_reason=policy.blocked_reason(workload, config, vpa=vpa, intent=intent, hold=hold)
            or self._unsynced_reason(workload.namespace),
            usage_error=self._recommender.ingester_for(policy.strategy_spec).last_error,
            hold_reason=str(hold) if hold else "",
            # Before Kubernetes 1.34 the API server rejects a lower memory limit in place, and with it the whole
            # resize.
            memory_limits_fixed=self._memory_limits_fixed(pods),
            size_limits=size_limits(workload, config, intent=intent),
        )
        # Last, so that a size which a person chose replaces the recommendation instead of being bounded by
        # it.
        if hold and hold.sizes:
            desired = hold.apply_to(desired)
        result = await self._executor.reconcile(
            key,
            desired,
            now=int(now),
            requester=Requester(
                policy=policy.name,
                reason=f"the recommendation of strategy {policy.strategy_spec.strategy}",
            ),
            collect_signals=lambda: self._collect_harm_signals(workload, pods, policy, now),
        )
        if result is not None:
            for action in result.actions:
                if method := METHODS.get(type(action)):
                    self._metrics.applications.labels(policy.name, method).inc()
            self._recorder.record_result(workload, result)
        return result

    async def _collect_harm_signals(
        self, workload: Workload, pods: list[Pod], policy: EffectivePolicy, now: float
    ) -> HarmSignals:
        """Collect the signals of harm from a change, besides the pods themselves."""
        ingester = self._recommender.ingester_for(policy.strategy_spec)
        guardrails, throttled = await asyncio.gather(
            self._guardrails.check_guardrails(
                workload, policy.guardrails(self._policy_resolver.config), now=now
            ),
            read_throttling(
                ingester.source,
                ()
                if ingester.last_error
                else pods,  # if throttling could not be read, do not ask again for each pod
                seconds=policy.spec.update_strategy.canary.observation.seconds,
                step=self._recommender.step,
                now=now,
            ),
        )
        return HarmSignals(guardrails=guardrails, throttled=throttled)


def _template_evidence(workload: Workload, estimates: Mapping[str, ContainerEstimate]) -> dict[str, Evidence]:
    return {
        each.name: estimates[each.name].evidence for each in workload.containers if each.name in estimates
    }


def _describe_evidence(
    state: WorkloadState,
    workload: Workload,
    evidence: Mapping[str, Evidence],
    shifts: Mapping[str, UsageShift],
    rules: PolicyRules,
) -> str:
    """Describe what explains why a healthy workload is not made smaller: shifts of usage, or the progress of learning."""
    if state not in HEALTHY_STATES:
        return ""
    restarts = {
        resource: [each.restarts_on_resize(resource) for each in workload.containers if each.name in evidence]
        for resource in get_args(ResourceName)
    }
    return describe_usage_shifts(shifts, rules) or describe_learning(
        evidence.values(),
        rules,
        restarts=all(map(all, restarts.values())),
        partly=[resource for resource, those in restarts.items() if any(those)],
    )

"""A leader session: ingest usage, reconcile workloads and write statuses until the Lease is lost.

Every session starts from the state of the cluster and the store, because another replica may have led in between.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Never

import structlog

from trimtab.actuation.executor import ChangeExecutor
from trimtab.actuation.kube_cluster import KubeCluster
from trimtab.actuation.rate_limiter import DisruptionLimiter
from trimtab.intents.plugins.registry import PluginRegistry
from trimtab.kube.errors import KubeError, describe
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.policies import Policy
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.capabilities import (
    KubeVersion,
    can_lower_memory_limits,
    get_server_version,
    supports_in_place_resize,
)
from trimtab.kube.rest.client import Client
from trimtab.kube.runtime.event_recorder import EventRecorder
from trimtab.kube.runtime.workqueue import WorkQueue
from trimtab.memory_trim import release_compiler_memory
from trimtab.operator.audit import AuditRecorder
from trimtab.operator.cluster_state import ClusterState
from trimtab.operator.config.reloader import ConfigReloader
from trimtab.operator.intents.intent_index import IntentIndex
from trimtab.operator.intents.safe_sizes import RecommenderSafeSizes
from trimtab.operator.intents.session import IntentSession
from trimtab.operator.metrics import Metrics
from trimtab.operator.nodeqos.status_writer import NodeQosStatusWriter
from trimtab.operator.policy.competing_controllers import CompetingControllers
from trimtab.operator.policy.gauges import WorkloadGauges
from trimtab.operator.policy.resolver import PolicyResolver
from trimtab.operator.policy.status import StatusContext
from trimtab.operator.policy.status_writer import PolicyKey, PolicyStatusWriter
from trimtab.operator.policy_matching import OverlapStats, count_overlaps
from trimtab.operator.sizing.guardrails import PromqlGuardrailChecker
from trimtab.operator.sizing.ingest_cycle import IngestCycle
from trimtab.operator.sizing.reconciler import SizingReconciler
from trimtab.operator.state import OperatorState
from trimtab.operator.store_retention import RetentionTask
from trimtab.operator.vpa.recommender import VpaRecommender
from trimtab.recommender.recommender import Recommender
from trimtab.recommender.source_ingester import IngestSchedule, SourceIngester
from trimtab.store import Store
from trimtab.usage.source import PromqlClient, Source

log = structlog.get_logger(__name__)

WORKERS = 8
"""The number of workloads that are reconciled concurrently."""
SHUTDOWN_TIMEOUT = 5.0
"""The seconds that the end of a session waits for the store to write pending history."""
FEATURE_RETRY_INTERVAL = 5.0
"""The seconds after which feature detection is retried."""
OVERLAP_TTL = 10.0
"""The seconds for which the counted overlaps of policies are reused."""


@dataclass(frozen=True, kw_only=True)
class Dependencies:
    """The parts of the process that all leader sessions share."""

    client: Client
    cluster_state: ClusterState
    events: EventRecorder
    sources: Mapping[str, Source[Any]]
    store: Store
    config: ConfigReloader
    metrics: Metrics
    schedule: IngestSchedule = field(default_factory=IngestSchedule)
    intent_index: IntentIndex | None = None
    """The index of Intents; None if the Intent controller does not run."""
    plugin_registry: PluginRegistry = field(default_factory=PluginRegistry)

    @property
    def promql(self) -> PromqlClient | None:
        """The client of the first source that evaluates PromQL, for all queries other than usage."""
        clients = (each.promql for each in self.sources.values())
        return next((client for client in clients if client is not None), None)


class LeaderSession:
    """The work of a leader; create one for each session and `run` it once."""

    def __init__(self, dependencies: Dependencies, *, may_write: Callable[[], bool]) -> None:
        self._dependencies = dependencies
        self._may_write = may_write
        self._cluster_state = catalog = dependencies.cluster_state
        self._config = config = dependencies.config
        self._can_resize_in_place = False
        self._server_version = KubeVersion(0, 0)
        self._applied_config = config.current
        self._overlaps: dict[PolicyKey, OverlapStats] = {}
        self._overlaps_counted_at = float("-inf")
        self._cluster_name = catalog.cluster_name
        self._cluster = KubeCluster(dependencies.client, dependencies.events, kinds=catalog.workload_kinds)
        self._recommender = Recommender(
            dependencies.sources,
            dependencies.store,
            cluster=self._cluster_name,
            schedule=dependencies.schedule,
            metrics=dependencies.metrics,
        )
        self._policy_resolver = PolicyResolver(catalog, lambda: config.current)
        self._gauges = WorkloadGauges(dependencies.metrics)
        self._limiter = DisruptionLimiter(config.current.disruption_limits.limits)
        self._status_writer = self._build_status_writer()
        self._qos_status_writer = NodeQosStatusWriter(
            dependencies.client,
            policies=catalog.node_policies,
            nodes=catalog.nodes,
            may_write=may_write,
            now=time.time,
        )
        self._retention_task = RetentionTask(dependencies.store, now=time.time)
        self._vpa_recommender = VpaRecommender(
            dependencies.client, catalog, may_write=may_write, dry_run=lambda: config.current.dry_run
        )
        self._competitors = CompetingControllers(catalog, dependencies.intent_index, lambda: config.current)
        self._ingest_cycle = IngestCycle(
            cluster_state=catalog,
            policy_resolver=self._policy_resolver,
            recommender=self._recommender,
            status_writer=self._status_writer,
            vpa_recommender=self._vpa_recommender,
            enqueue=self.enqueue,
            metrics=dependencies.metrics,
            intent_targets=self._competitors.intent_targets,
        )
        self._recorder = AuditRecorder(
            dependencies.client,
            self._cluster,
            dependencies.store,
            cluster_name=self._cluster_name,
            metrics=dependencies.metrics,
            may_annotate=lambda: may_write() and not config.current.dry_run,
        )
        self._reported_config_problem = ""
        """The configuration problem that the statuses of policies report."""
        self._reconciler = self._build_reconciler()
        self._intent_session = (
            self._build_intent_session(dependencies.intent_index) if dependencies.intent_index else None
        )
        self.state = OperatorState(
            cluster_name=self._cluster_name,
            objects=dependencies.client,
            cluster_state=catalog,
            policy_resolver=self._policy_resolver,
            recommender=self._recommender,
            status_writer=self._status_writer,
            store=dependencies.store,
            intents=self._intent_session.state if self._intent_session else None,
        )
        self._workload_queue: WorkQueue[WorkloadKey] = WorkQueue(
            "workloads", lambda key: self._reconciler.reconcile(key, time.time()), workers=WORKERS
        )

    def _build_status_writer(self) -> PolicyStatusWriter:
        return PolicyStatusWriter(
            self._dependencies.client,
            policy=self._find_policy,
            overlap=self._overlap_stats,
            problem=lambda policy: self._policy_resolver.resolve_policy(policy).problem,
            context=self._status_context,
            may_write=self._may_write,
            events=self._dependencies.events,
            gauges=self._gauges,
        )

    def _build_reconciler(self) -> SizingReconciler:
        means = self._dependencies
        rivals = self._competitors
        return SizingReconciler(
            cluster_state=self._cluster_state,
            policy_resolver=self._policy_resolver,
            recommender=self._recommender,
            actuator=ChangeExecutor(self._cluster, may_write=self._may_write, limiter=self._limiter),
            status_writer=self._status_writer,
            recorder=self._recorder,
            guardrails=PromqlGuardrailChecker(means.promql),
            vpa_recommender=self._vpa_recommender,
            cluster_constraints=lambda: self._ingest_cycle.cluster_constraints,
            can_resize_in_place=lambda: self._can_resize_in_place,
            memory_limits_fixed=self._are_memory_limits_fixed,
            metrics=means.metrics,
            controlling_intent_name=rivals.controlling_intent_name,
            unsynced_reason=rivals.unsynced_reason,
        )

    def _build_intent_session(self, intent_index: IntentIndex) -> IntentSession:
        means = self._dependencies
        return IntentSession(
            client=means.client,
            cluster=self._cluster,
            cluster_state=self._cluster_state,
            intent_index=intent_index,
            safe_sizes=RecommenderSafeSizes(
                self._cluster_state,
                self._policy_resolver,
                self._recommender,
                lambda: self._ingest_cycle.cluster_constraints,
            ),
            registry=means.plugin_registry,
            events=means.events,
            promql=means.promql,
            store=means.store,
            cluster_name=self._cluster_name,
            config=self._config,
            metrics=means.metrics,
            limiter=self._limiter,
            may_write=self._may_write,
            can_resize_in_place=lambda: self._can_resize_in_place,
            memory_limits_fixed=self._are_memory_limits_fixed,
        )

    def enqueue(self, key: WorkloadKey) -> None:
        """Reconcile a workload because something about it changed."""
        self._workload_queue.add(key)

    def policy_changed(self, policy: Policy, old: Policy | None) -> None:
        """Update a policy's status because it was created, deleted or changed; it may select no workload."""
        if policy is old or old is None or not policy.is_equivalent_to(old):
            self._status_writer.enqueue(policy.key)

    async def run(self) -> Never:
        """Ingest usage every cycle, and reconcile whatever changed."""
        try:
            async with asyncio.TaskGroup() as group:
                await self._run_tasks(group)
        finally:
            self._gauges.clear()
            self._recommender.clear_gauges()
        raise AssertionError("unreachable")

    async def _run_tasks(self, group: asyncio.TaskGroup) -> Never:
        # Without feature detection, pods would be replaced that can be resized in place.
        while not await self._detect_features():  # noqa: ASYNC110 - the API server must be polled
            await asyncio.sleep(FEATURE_RETRY_INTERVAL)
        group.create_task(self._retention_task.run())
        group.create_task(self._recorder.run())
        group.create_task(self._qos_status_writer.run())
        try:
            if self._intent_session is not None:
                group.create_task(self._intent_session.run())
            await self._vpa_recommender.load_checkpoints(time.time())
            await self._run_ingest_cycle()
            self._enqueue_all()
            # Only now: before the first cycle, a status would report no workloads and no usage.
            group.create_task(self._status_writer.queue.run())
            group.create_task(self._workload_queue.run())
            await self._run_ingest_cycles()
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(SHUTDOWN_TIMEOUT):
                    await asyncio.shield(self._recorder.flush())
            await asyncio.shield(self._recommender.save(time.time()))

    async def _run_ingest_cycles(self) -> Never:
        while True:
            step = self._dependencies.schedule.step
            # Wait until the last step is over and has been scraped.
            await asyncio.sleep(step - time.time() % step + step / 10)
            await self._detect_features()
            await self._run_ingest_cycle()
            if self._config.current is not self._applied_config:
                self._enqueue_all()
            if self._config.problem != self._reported_config_problem:
                self._reported_config_problem = self._config.problem
                for policy in self._cluster_state.policies:
                    self._status_writer.enqueue(policy.key)

    async def _run_ingest_cycle(self) -> None:
        release_compiler_memory()  # left over from imports, or from new strategies of the last cycle
        await self._ingest_cycle.run_once(time.time())
        release_compiler_memory()

    def _enqueue_all(self) -> None:
        """Reconcile all workloads, at the start and after the configuration changed."""
        self._applied_config = self._config.current
        self._limiter.set_limits(self._applied_config.disruption_limits.limits)
        policies = {
            workload.key: self._policy_resolver.resolve(workload)
            for workload in self._cluster_state.list_workloads()
        }
        self._status_writer.hold_until_reconciled(
            {key: policy.key for key, policy in policies.items() if policy}
        )
        for each in self._cluster_state.policies:
            self._status_writer.enqueue(each.key)
        # In order, so that the workloads of a policy are reconciled together.
        for key in sorted(policies.keys() | self._vpa_recommender.targets()):
            self.enqueue(key)

    async def _detect_features(self) -> bool:
        """Detect the cluster's features; return False, keeping the known ones, if the API server does not answer."""
        try:
            self._can_resize_in_place = await supports_in_place_resize(self._dependencies.client)
            self._server_version = (await get_server_version(self._dependencies.client)).version
        except KubeError as error:
            log.warning("operator.feature_detection_failed", error=describe(error))
            return False
        return True

    def _are_memory_limits_fixed(self, pods: Iterable[Pod]) -> bool:
        """Return True if the API server, or a kubelet of these pods, cannot lower memory limits in place."""
        nodes = [self._cluster_state.nodes.get(name) for name in {pod.node for pod in pods}]
        kubelets = [KubeVersion.parse(node.kubelet_version) for node in nodes if node]
        return not can_lower_memory_limits(self._server_version, *kubelets)

    def _find_policy(self, key: PolicyKey) -> Policy | None:
        namespace, name = key
        return self._cluster_state.policies.get(name, namespace)

    def _overlap_stats(self, policy: Policy) -> OverlapStats:
        if time.monotonic() - self._overlaps_counted_at > OVERLAP_TTL:
            found = count_overlaps(self._cluster_state.policy_matcher, self._cluster_state.list_workloads())
            self._overlaps = {each.key: stats for each, stats in found.items()}
            self._overlaps_counted_at = time.monotonic()
        return self._overlaps.get(policy.key) or OverlapStats()

    def _status_context(self, policy: Policy) -> StatusContext:
        ingester = self._recommender.ingester_for(self._policy_resolver.resolve_policy(policy).strategy_spec)
        return StatusContext(
            now=time.time(),
            usage_error=ingester.last_error,
            source=ingester.name,
            first_sample_at=ingester.first_sample_at,
            unsampled=tuple(sorted(self._list_unsampled(ingester, policy))),
            dry_run=self._config.current.dry_run,
            config_problem=self._config.problem,
        )

    def _list_unsampled(self, ingester: SourceIngester, policy: Policy) -> Iterator[str]:
        """List the policy's running containers that have no samples."""
        for namespace, pod, container in ingester.unsampled:
            found = self._cluster_state.pods.get(pod, namespace)
            workload = self._cluster_state.find_workload(found) if found else None
            effective = self._policy_resolver.resolve(workload) if workload else None
            if effective and effective.key == policy.key:
                yield f"{namespace}/{pod} {container}"

"""Put the parts of the operator together: the only place that does, in a cluster, in the simulator and in tests.

`Ports` is what the operator needs from outside. `build_operator` makes the parts that every replica has, and
`Operator.build_controllers` those of one leader session.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Protocol

import structlog

from trimtab.actuation.executor import ChangeExecutor
from trimtab.actuation.port import ClusterPort
from trimtab.actuation.rate_limiter import DisruptionLimiter
from trimtab.intents.kpi.client import KpiClient, PromqlKpiClient
from trimtab.intents.plugins.registry import PluginRegistry
from trimtab.kube.cache.informer_set import InformerPort
from trimtab.kube.kinds.emergency_stop import EmergencyStop, EmergencyStopWatch
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.policies import Policy
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.capabilities import KubeVersion, can_lower_memory_limits
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.object_client import ObjectClient
from trimtab.kube.rest.resources import Resource
from trimtab.kube.runtime.leader_election import LeaderElector, LeaseClient
from trimtab.operator.audit import AuditRecorder
from trimtab.operator.cluster_state import ClusterState
from trimtab.operator.config.intents import IntentSettings
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.cost_gauges import CostGauges
from trimtab.operator.intent_index import CompetingControllers, IntentIndex
from trimtab.operator.intents.controller import IntentController
from trimtab.operator.intents.effect_learner import EffectLearner
from trimtab.operator.intents.executor import PlanExecutor
from trimtab.operator.intents.observer import IntentObserver
from trimtab.operator.intents.planning import PlanningService
from trimtab.operator.intents.safe_sizes import RecommenderSafeSizes, SafeSizeProvider
from trimtab.operator.intents.status_writer import IntentStatusWriter
from trimtab.operator.metrics import Metrics
from trimtab.operator.node_prices import NodePrices
from trimtab.operator.nodeqos_status import NodeQosStatusWriter
from trimtab.operator.policy.resolver import PolicyResolver
from trimtab.operator.policy.status_writer import EventSink, PolicyStatusWriter, WorkloadGauges
from trimtab.operator.savings import SavingsReader
from trimtab.operator.sizing.harm_signals import PromqlGuardrailChecker
from trimtab.operator.sizing.ingest_cycle import IngestCycle
from trimtab.operator.sizing.reconciler import GuardrailChecker, SizingReconciler
from trimtab.operator.views import IntentViews, OperatorViews, WorkloadViewPublisher
from trimtab.operator.vpa.recommender import VpaRecommender
from trimtab.operator.webhook.lifecycle import WebhookLifecycle
from trimtab.operator.webhook.pod_sizing import PodSizer
from trimtab.operator.webhook.server import AdmissionHandlers
from trimtab.recommender.recommender import Recommender
from trimtab.recommender.source_ingester import IngestSchedule, SourceLifecycle
from trimtab.store import Store
from trimtab.usage.source import PromqlClient, Source

log = structlog.get_logger(__name__)

ListKinds = Callable[[], Iterable[Resource]]
"""A function that lists the resources which hold workloads; discovery adds some while the operator runs."""


class ConfigSource(Protocol):
    """The configuration in effect; the attributes are those of `ConfigReloader`."""

    @property
    def current(self) -> OperatorConfig: ...

    @property
    def problem(self) -> str: ...


@dataclass(slots=True)
class FixedConfig:
    """A configuration without a file behind it."""

    current: OperatorConfig = field(default_factory=OperatorConfig)
    problem: str = ""


class ClusterFeatures(Protocol):
    """The features of a cluster; the members are those of `ServerFeatures`."""

    can_resize_in_place: bool
    version: KubeVersion

    async def detect(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionPort:
    """Everything that an election needs from outside."""

    client: LeaseClient
    identity: str
    clock: Callable[[], float] | None = None
    """Returns seconds that nobody sets; None stands for the machine's own clock."""
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    rng: random.Random | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """Everything that the operator needs from outside: a cluster, usage, a store, a configuration, and the time."""

    informers: InformerPort
    objects: ObjectClient
    cluster: Callable[[ListKinds], ClusterPort]
    """Connects to the workloads and pods of the cluster."""
    features: ClusterFeatures
    events: EventSink
    sources: Mapping[str, Source[Any]]
    source_lifecycle: SourceLifecycle | None = None
    """None if all sources are open."""
    store: Store
    config: ConfigSource
    metrics: Metrics
    now: Callable[[], float] = time.time
    """Returns the time in seconds since 1970."""
    schedule: IngestSchedule = field(default_factory=IngestSchedule)
    plugin_registry: PluginRegistry = field(default_factory=PluginRegistry)
    election: ElectionPort | None = None
    """None if there is no election: this replica is the only one."""
    webhook_client: Client | None = None
    """The client that registers the webhook; None if no API server can reach this process."""
    guardrails: GuardrailChecker | None = None
    """None stands for queries to the source that evaluates PromQL; so it does for `kpis`."""
    kpis: KpiClient | None = None
    safe_sizes: SafeSizeProvider | None = None
    """None stands for the evidence of the recommender."""

    @property
    def promql(self) -> PromqlClient | None:
        """The client of the first source that evaluates PromQL, for all queries other than usage."""
        clients = (each.promql for each in self.sources.values())
        # Sources without PromQL, such as metrics-server, cannot evaluate guardrails or KPIs.
        return next((client for client in clients if client is not None), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Controllers:
    """The parts of one leader session. Every session has new ones, because another replica may have led in between."""

    views: OperatorViews
    view_publisher: WorkloadViewPublisher
    limiter: DisruptionLimiter
    gauges: WorkloadGauges
    cost_gauges: CostGauges
    savings: SavingsReader
    node_prices: NodePrices
    recommender: Recommender
    status_writer: PolicyStatusWriter
    qos_status_writer: NodeQosStatusWriter
    vpa_recommender: VpaRecommender
    ingest_cycle: IngestCycle
    recorder: AuditRecorder
    reconciler: SizingReconciler
    intent_controller: IntentController
    effect_learner: EffectLearner
    kpi_connections: AbstractAsyncContextManager[object]
    """Closes the connections to the servers that measure KPIs."""


class RunningSession(Protocol):
    """A leader session, as the rest of the process sees it."""

    views: OperatorViews
    enqueue: Callable[[WorkloadKey], None]

    def enqueue_all(self) -> None: ...

    def policy_changed(self, policy: Policy, old: Policy | None) -> None: ...


class Operator:
    """The parts of one operator process, which every replica has, whether it leads or not."""

    def __init__(self, ports: Ports) -> None:
        def config() -> OperatorConfig:
            return self.config

        self.ports = ports
        self.emergency_stop = EmergencyStopWatch(ports.informers, ports.config.current.namespace)
        self._stopped_config: tuple[OperatorConfig, str, OperatorConfig] | None = None
        self.session: RunningSession | None = None
        """The leader session; None while another replica leads. Nobody then works on the changes of the cluster."""
        self.cluster_state = ClusterState(
            ports.informers,
            operator_namespace=config().namespace,
            reserved_weight=lambda: config().limits.reserved_weight,
            enqueue=self._enqueue,
            annotations=config().cost_annotations,
        )
        self.intent_index = IntentIndex(ports.informers)
        self.intent_index.on_controller_change(self._enqueue)
        self.cluster_state.policies.on_change(self._policy_changed)
        self.emergency_stop.on_change(self._emergency_stop_changed)
        ports.metrics.emergency_stop_unreadable.set_function(lambda: 1 if self.emergency_stop.problem else 0)
        self.cluster = ports.cluster(self.cluster_state.workload_kinds)
        self.policy_resolver = PolicyResolver(self.cluster_state, config)
        self.competitors = CompetingControllers(self.cluster_state, self.intent_index, config)
        self.pod_sizer = PodSizer(self.cluster_state, self.competitors, self.policy_resolver)
        self.admission = AdmissionHandlers(
            config=config,
            policies=lambda: self.cluster_state.policies,
            # Read once: the path of the webhook for pods is served, and registered, from the start or not at all.
            size_pod=self.pod_sizer.size_pod if config().webhook.pods else None,
            metrics=ports.metrics,
        )
        self.webhook = (
            WebhookLifecycle(
                ports.webhook_client,
                config(),
                now=lambda: datetime.fromtimestamp(ports.now(), UTC),
                metrics=ports.metrics,
            )
            if ports.webhook_client
            else None
        )

    @property
    def config(self) -> OperatorConfig:
        """The configuration in effect; during an emergency stop it permits no change."""
        given, reason = self.ports.config.current, self.emergency_stop.reason
        if not reason:
            return given
        # Kept, because a new object makes the policy resolver build all policies again.
        kept = self._stopped_config
        if kept is None or kept[0] is not given or kept[1] != reason:
            kept = self._stopped_config = given, reason, given.with_stop_reason(reason)
        return kept[2]

    def build_elector(self) -> LeaderElector | None:
        """Build a candidate for the leadership; None if there is no election."""
        election, settings = self.ports.election, self.config.leader_election
        if election is None or not settings.enabled:
            return None
        return LeaderElector(
            election.client,
            name=settings.name,
            namespace=self.config.namespace,
            identity=election.identity,
            now=lambda: datetime.fromtimestamp(self.ports.now(), UTC),
            timing=settings.timing,
            rng=election.rng,
            clock=election.clock,
            sleep=election.sleep,
        )

    def build_controllers(
        self, *, may_write: Callable[[], bool], enqueue: Callable[[WorkloadKey], None]
    ) -> Controllers:
        """Build the parts of a leader session; `enqueue` has a workload reconciled soon."""
        ports, cluster_state, resolver = self.ports, self.cluster_state, self.policy_resolver
        cluster_name = cluster_state.cluster_name

        def may_change() -> bool:
            """Return True if the cluster may be changed: an emergency stop holds even between two pods of a change."""
            return may_write() and not self.emergency_stop.reason

        limiter = DisruptionLimiter(self.config.disruption_limits.limits)
        # One for policies and Intents: they never write to one workload at once, and share the disruption limits.
        executor = ChangeExecutor(self.cluster, cluster_state, may_write=may_change, limiter=limiter)
        node_prices = NodePrices(lambda: self.config.prices)
        savings = SavingsReader(ports.store, cluster=cluster_name)
        gauges = WorkloadGauges(ports.metrics)
        cost_gauges = CostGauges(ports.metrics, node_prices, savings.ledger)
        recommender = Recommender(
            ports.sources,
            ports.store,
            cluster=cluster_name,
            schedule=ports.schedule,
            metrics=ports.metrics,
            source_lifecycle=ports.source_lifecycle,
        )
        status_writer = PolicyStatusWriter(
            ports.objects,
            cluster_state=cluster_state,
            policy_resolver=resolver,
            recommender=recommender,
            config_problem=lambda: ports.config.problem,
            stop_problem=lambda: self.emergency_stop.problem,
            may_write=may_write,
            events=ports.events,
            gauges=gauges,
            monthly_cost=cost_gauges.monthly_cost,
            now=ports.now,
        )
        vpa_recommender = VpaRecommender(
            ports.objects,
            cluster_state,
            may_write=may_write,
            is_frozen=lambda: bool(self.config.freeze_reason),
        )
        view_publisher = WorkloadViewPublisher(
            cluster_state,
            resolver,
            status_writer,
            controlling_intent_name=self.competitors.controlling_intent_name,
        )
        # The first ingestion may take minutes: until then the dashboard shows the workloads as pending.
        view_publisher.sync(cluster_state.list_workloads())
        ingest_cycle = IngestCycle(
            cluster_state=cluster_state,
            policy_resolver=resolver,
            recommender=recommender,
            status_writer=status_writer,
            vpa_recommender=vpa_recommender,
            view_publisher=view_publisher,
            enqueue=enqueue,
            metrics=ports.metrics,
            cost_gauges=cost_gauges,
            savings=savings,
            intent_targets=self.competitors.intent_targets,
        )
        recorder = AuditRecorder(
            self.cluster,
            executor,
            ports.store,
            cluster_name=cluster_name,
            metrics=ports.metrics,
            # A dry run, or an emergency stop, writes statuses of policies, but nothing to the workloads themselves.
            may_annotate=lambda: may_write() and not self.config.freeze_reason,
            on_written=savings.entries_written,
        )
        reconciler = SizingReconciler(
            cluster_state=cluster_state,
            policy_resolver=resolver,
            recommender=recommender,
            executor=executor,
            status_writer=status_writer,
            recorder=recorder,
            guardrails=ports.guardrails or PromqlGuardrailChecker(ports.promql),
            vpa_recommender=vpa_recommender,
            view_publisher=view_publisher,
            # Each ingest cycle replaces them.
            cluster_constraints=lambda: ingest_cycle.cluster_constraints,
            can_resize_in_place=self._can_resize_in_place,
            memory_limits_fixed=self._are_memory_limits_fixed,
            metrics=ports.metrics,
            controlling_intent_name=self.competitors.controlling_intent_name,
            unsynced_reason=self.competitors.unsynced_reason,
        )
        intents = self.config.intents
        own_kpis = PromqlKpiClient(
            ports.promql, max_age=intents.max_sample_age.seconds, timeout=intents.timeout.seconds
        )
        observer = IntentObserver(
            cluster_state,
            self.intent_index,
            ports.kpis or own_kpis,
            settings=self._intent_settings,
            query_rules=lambda: self.config.query_rules,
        )
        effect_learner = EffectLearner(ports.store, cluster=cluster_name, settings=self._intent_settings)
        intent_views = IntentViews(self.intent_index.intents)
        intent_controller = IntentController(
            cluster_state=cluster_state,
            intent_index=self.intent_index,
            observer=observer,
            planning_service=PlanningService(
                ports.plugin_registry, settings=self._intent_settings, metrics=ports.metrics
            ),
            safe_sizes=ports.safe_sizes
            or RecommenderSafeSizes(
                cluster_state, resolver, recommender, lambda: ingest_cycle.cluster_constraints
            ),
            executor=PlanExecutor(
                self.cluster,
                cluster_state,
                executor,
                recorder=recorder,
                may_write=may_change,
                can_resize_in_place=self._can_resize_in_place,
                memory_limits_fixed=self._are_memory_limits_fixed,
                observation_period=lambda: self.config.intents.cool_down.seconds / 2,
                size_limits=lambda namespace: self._intent_settings().size_limits(namespace),
            ),
            effect_learner=effect_learner,
            status_writer=IntentStatusWriter(ports.objects, ports.events, may_write=may_write),
            config=lambda: self.config,
            can_resize_in_place=self._can_resize_in_place,
            metrics=ports.metrics,
            views=intent_views,
        )
        return Controllers(
            views=OperatorViews(
                cluster_name=cluster_name,
                store=ports.store,
                objects=ports.objects,
                workloads=view_publisher.views,
                intents=intent_views,
                nodes=cluster_state.nodes,
                node_cost=node_prices.monthly_cost,
                savings=lambda: cost_gauges.savings,
                pods=cluster_state.pods,
                sources=recommender.ingesters,
                step=recommender.step,
                stop_reason=lambda: self.config.stop_reason,
                build_owner_index=cluster_state.build_owner_index,
            ),
            view_publisher=view_publisher,
            limiter=limiter,
            gauges=gauges,
            cost_gauges=cost_gauges,
            savings=savings,
            node_prices=node_prices,
            recommender=recommender,
            status_writer=status_writer,
            qos_status_writer=NodeQosStatusWriter(
                ports.objects,
                policies=cluster_state.node_policies,
                nodes=cluster_state.nodes,
                may_write=may_write,
                now=ports.now,
            ),
            vpa_recommender=vpa_recommender,
            ingest_cycle=ingest_cycle,
            recorder=recorder,
            reconciler=reconciler,
            intent_controller=intent_controller,
            effect_learner=effect_learner,
            kpi_connections=own_kpis,
        )

    def _intent_settings(self) -> IntentSettings:
        return self.config.intents

    def _can_resize_in_place(self) -> bool:
        return self.ports.features.can_resize_in_place

    def _are_memory_limits_fixed(self, pods: Iterable[Pod]) -> bool:
        """Return True if the API server, or a kubelet of these pods, cannot lower memory limits in place."""
        nodes = [self.cluster_state.nodes.get(name) for name in {pod.node for pod in pods}]
        kubelets = [KubeVersion.parse(node.kubelet_version) for node in nodes if node]
        # A kubelet may be older than the API server, and cannot do what that accepts.
        return not can_lower_memory_limits(self.ports.features.version, *kubelets)

    def _enqueue(self, key: WorkloadKey) -> None:
        if self.session is not None:
            self.session.enqueue(key)

    def _emergency_stop_changed(self, stop: EmergencyStop | None) -> None:
        self.ports.metrics.emergency_stop.set(1 if stop else 0)
        if stop is None:
            log.warning("operator.emergency_stop_ended")
        else:
            log.warning("operator.emergency_stop", author=stop.author, reason=stop.reason)
        # Statuses show the stop, and after it changes go on, without waiting for the next interval.
        if self.session is not None:
            self.session.enqueue_all()

    def _policy_changed(self, old: Policy | None, new: Policy | None, /) -> None:
        # On standby replicas nobody would take the changes off a queue; the next session enqueues
        # everything.
        if self.session is not None and (found := new or old):
            self.session.policy_changed(found, old)


def build_operator(ports: Ports) -> Operator:
    """Build one operator on these ports."""
    return Operator(ports)

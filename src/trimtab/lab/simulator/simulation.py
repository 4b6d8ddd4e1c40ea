"""Run the production operator on a simulated cluster, in simulated time.

Nothing is decided here: ingest cycles learn from usage, the sizing reconciler handles workloads, and the change
executor resizes, verifies and reverts, all of them the classes that run in a cluster. The simulation only calls them
when they are due: reconciles between two steps at the second that they asked for, ingest cycles at the end of a step.

    async with Simulation(scenario, policies={"all": OptimizationPolicySpec(mode=PolicyMode.AUTO)}, seed=7) as run:
        run.observe(lambda metrics: print(metrics.cpu_requested))
        await run.run(86400)

Left out: Intents, leader election, the webhook, and everything that waits on a network.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from trimtab.actuation.executor import ChangeExecutor
from trimtab.actuation.rate_limiter import DisruptionLimiter
from trimtab.api.optimizationpolicy import OptimizationPolicySpec
from trimtab.kube.kinds.policies import Policy
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.kube.rest.client import Object
from trimtab.kube.rest.resources import OPTIMIZATION_POLICIES
from trimtab.kube.runtime.delay_heap import DelayHeap
from trimtab.lab.simulator.autoscaler import Autoscaler
from trimtab.lab.simulator.fake_cluster import SimulatedCluster
from trimtab.lab.simulator.metrics import ClusterMetrics, collect_metrics, count_nodes_needed
from trimtab.lab.simulator.objects import derive_uid
from trimtab.lab.simulator.scenario import Scenario
from trimtab.lab.simulator.simulated_informers import SimulatedInformerSet, SimulatedObjectClient
from trimtab.lab.simulator.usage_source import SimulatedUsageSource
from trimtab.lab.simulator.world import SimulatedWorld
from trimtab.operator.audit import AuditRecorder
from trimtab.operator.cluster_state import ClusterState
from trimtab.operator.config.model import Guardrail, OperatorConfig
from trimtab.operator.intents.safe_sizes import RecommenderSafeSizes
from trimtab.operator.metrics import Metrics
from trimtab.operator.policy.gauges import WorkloadGauges
from trimtab.operator.policy.resolver import PolicyResolver
from trimtab.operator.policy.status import StatusContext, WorkloadOutcome
from trimtab.operator.policy.status_writer import NullEventSink, PolicyKey, PolicyStatusWriter
from trimtab.operator.policy_matching import OverlapStats, count_overlaps
from trimtab.operator.sizing.ingest_cycle import IngestCycle
from trimtab.operator.sizing.reconciler import SizingReconciler
from trimtab.operator.state import OperatorState
from trimtab.operator.vpa.recommender import VpaRecommender
from trimtab.recommender.recommender import DEFAULT_SOURCE, Recommender
from trimtab.recommender.source_ingester import IngestSchedule
from trimtab.store import Store

NODE_COUNT_INTERVAL = 3600.0
"""Seconds after which the nodes that are needed are counted again."""
MIN_REQUEUE_DELAY = 60.0
MIN_SAMPLE_RETENTION = 2 * 3600.0
"""Seconds of usage that are kept at least: as long as a change is watched."""

MetricsObserver = Callable[[ClusterMetrics], None]


class Simulation:
    """A scene with an operator on it; without policies there is none, and requests stay as they are."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        policies: Mapping[str, OptimizationPolicySpec] | None = None,
        seed: int = 0,
        step: float | None = None,
        history_seconds: float = 0.0,
        retention: float = MIN_SAMPLE_RETENTION,
        min_requeue_delay: float = MIN_REQUEUE_DELAY,
        pack: bool = False,
        autoscale: bool = False,
        config: OperatorConfig | None = None,
    ) -> None:
        """`step` is that of demand when not given; `past` is for how long usage is known when the operator begins, and
        `keep` for how long it is remembered at least. `patience` is how long at least passes until a workload is
        looked at again that only time could change, and at most half a step; events are answered at once.

        `pack` has the scheduler fill nodes instead of spreading pods, `autoscale` has nodes come and go as needed.
        """
        self.step = step or scenario.demand.step
        self.world = SimulatedWorld(scenario, seed=seed, pack=pack)
        self.config = config or OperatorConfig()
        self._autoscaler = Autoscaler(self.world) if autoscale else None
        self._policies = _build_policy_records(policies or {}, home=self.config.namespace)
        self._history_seconds = history_seconds
        # Usage stays as it is within a step: who only waits for it need not look every few seconds.
        self._min_requeue_delay = min(min_requeue_delay, self.step / 2)
        self._observers: list[MetricsObserver] = []
        self._workqueue: DelayHeap[WorkloadKey] = DelayHeap()
        self._needed, self._counted_at = 0, float("-inf")
        self._exit_stack = contextlib.AsyncExitStack()
        self.metrics = Metrics()
        """The operator's own metrics."""
        self.usage_source = SimulatedUsageSource(
            self.world, retention=max(history_seconds, retention, MIN_SAMPLE_RETENTION) + self.step
        )
        self.cluster = SimulatedCluster(self.world)
        self.informers = SimulatedInformerSet(self.world)
        """The objects that the cluster state watches; an object of another kind added here is watched too."""
        self._objects = SimulatedObjectClient(self.world)

    # Watching

    def subscribe(self, observer: MetricsObserver) -> None:
        """Have it called with every moment from now on."""
        self._observers.append(observer)

    @property
    def now(self) -> float:
        """Simulated seconds since 1970."""
        return self.world.now

    def outcomes(self) -> dict[WorkloadKey, WorkloadOutcome]:
        """The last outcome of each workload: state, reason, recommendations."""
        found = ((key, self._status_writer.get_outcome(key)) for key in self.world.workloads)
        return {key: outcome for key, outcome in found if outcome}

    async def status(self, policy: str) -> Object:
        """The status of a policy, as the operator writes it."""
        key = self.config.namespace, policy
        await self._status_writer.write_status(key)
        return self._objects.statuses.get(("OptimizationPolicy", *key), {})

    # Running

    async def __aenter__(self) -> Self:
        folder = self._exit_stack.enter_context(tempfile.TemporaryDirectory(prefix="trimtab-stage-"))
        self.store = await self._exit_stack.enter_async_context(Store.open(Path(folder) / "stage.db"))
        self._build_operator()
        picture = asyncio.create_task(self.cluster_state.run())
        self._exit_stack.push_async_callback(_cancel_task, picture)
        self.informers.add_static_objects()
        for policy in self._policies:
            self.informers.put(OPTIMIZATION_POLICIES, policy)
        await self.cluster_state.wait_synced()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exit_stack.aclose()

    async def run(self, seconds: float) -> None:
        """Let so much time pass, in whole steps; the past, which the operator does not see happen, comes first."""
        if self._history_seconds and not self.world.steps:
            for _ in range(round(self._history_seconds / self.step)):
                self._step_world()
        if not self.world.steps:
            self._step_world()
            seconds -= self.step
        for _ in range(round(seconds / self.step)):
            if self._policies:
                await self._ingest_cycle.run_once(self.now)
                await self._reconcile_until(self.now + self.step)
                await self._recorder.flush()
            self._step_world()

    def _step_world(self) -> None:
        self.world.step(self.step)
        self.usage_source.record_step()
        if self._autoscaler:
            self._autoscaler.reconcile()
        self.informers.sync()
        if self.now - self._counted_at >= NODE_COUNT_INTERVAL:
            self._needed, self._counted_at = count_nodes_needed(self.world), self.now
        found = collect_metrics(self.world, needed=self._needed)
        for observer in self._observers:
            observer(found)

    async def _reconcile_until(self, end: float) -> None:
        """All looks whose time comes before the next step is over, each at its own time."""
        while (at := self._next_due()) is not None and at < end:
            self.world.process_due(max(at, self.world.control_time))
            self.informers.sync()
            # In order of their names, for who asked first may depend on how a process hashes.
            for key in sorted(self._workqueue.pop_due(self.world.control_time)):
                again = await self._reconciler.reconcile(key, self.world.control_time)
                self.informers.sync()
                if again is not None:
                    self._workqueue.put(key, self.world.control_time + max(again, self._min_requeue_delay))

    def _next_due(self) -> float | None:
        times = (self._workqueue.next_time, self.world.due_times.next_time)
        return min((at for at in times if at is not None), default=None)

    def _enqueue(self, key: WorkloadKey) -> None:
        self._workqueue.put(key, self.world.control_time)

    # Putting it together, as `operator.term` does

    def _build_operator(self) -> None:
        name = "simulation"
        self.cluster_state = ClusterState(
            self.informers, operator_namespace=self.config.namespace, enqueue=self._enqueue
        )
        orders = PolicyResolver(self.cluster_state, lambda: self.config)
        sources = {DEFAULT_SOURCE: self.usage_source}
        learning = Recommender(
            sources, self.store, cluster=name, schedule=self._build_ingest_schedule(), metrics=self.metrics
        )
        self._status_writer = PolicyStatusWriter(
            self._objects,
            policy=self._get_policy,
            overlap=self._get_overlap,
            problem=lambda policy: orders.resolve_policy(policy).problem,
            context=lambda _: StatusContext(
                now=self.now,
                usage_error=learning.errors_by_source.get(DEFAULT_SOURCE, ""),
                source=self.usage_source.name,
            ),
            may_write=lambda: True,
            events=NullEventSink(),
            gauges=WorkloadGauges(self.metrics),
        )
        self.operator_state = OperatorState(
            cluster_name=name,
            objects=self._objects,
            cluster_state=self.cluster_state,
            policy_resolver=orders,
            recommender=learning,
            status_writer=self._status_writer,
            store=self.store,
        )
        vpas = VpaRecommender(
            self._objects, self.cluster_state, may_write=lambda: True, dry_run=lambda: False
        )
        self._ingest_cycle = IngestCycle(
            cluster_state=self.cluster_state,
            policy_resolver=orders,
            recommender=learning,
            status_writer=self._status_writer,
            vpa_recommender=vpas,
            enqueue=self._enqueue,
            metrics=self.metrics,
        )
        self.safe_sizes = RecommenderSafeSizes(
            self.cluster_state, orders, learning, lambda: self._ingest_cycle.cluster_constraints
        )
        """The constraints that Intents on this simulation must respect."""
        self._recorder = AuditRecorder(
            self._objects,
            self.cluster,
            self.store,
            cluster_name=name,
            metrics=self.metrics,
            may_annotate=lambda: True,
        )
        self._reconciler = SizingReconciler(
            cluster_state=self.cluster_state,
            policy_resolver=orders,
            recommender=learning,
            actuator=ChangeExecutor(
                self.cluster,
                may_write=lambda: True,
                limiter=DisruptionLimiter(self.config.disruption_limits.limits),
            ),
            status_writer=self._status_writer,
            recorder=self._recorder,
            guardrails=_LatencyGuardrails(self.world),
            vpa_recommender=vpas,
            cluster_constraints=lambda: self._ingest_cycle.cluster_constraints,
            can_resize_in_place=lambda: True,
            metrics=self.metrics,
        )

    def _build_ingest_schedule(self) -> IngestSchedule:
        past_step = self.step * max(1, round(300.0 / self.step))
        return IngestSchedule(
            step=self.step,
            backfill_step=past_step,
            backfill_period=max(self._history_seconds, past_step),
            save_interval=float("inf"),
        )

    def _get_policy(self, key: PolicyKey) -> Policy | None:
        namespace, name = key
        return self.cluster_state.policies.get(name, namespace)

    def _get_overlap(self, policy: Policy) -> OverlapStats:
        found = count_overlaps(self.cluster_state.policy_matcher, self.cluster_state.list_workloads())
        return found.get(policy) or OverlapStats()


class _LatencyGuardrails:
    """Guardrails in the lab: whatever they ask, they hold while a service meets its objective."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world

    async def check_guardrails(
        self, workload: Workload, guardrails: Sequence[Guardrail], *, now: float
    ) -> Mapping[str, bool | None]:
        del now
        found = self._world.workloads[workload.key]
        service, slowest = found.spec.service, float(self._world.latencies[found.number, -1])
        holds = slowest <= service.latency_objective if service and slowest == slowest else None  # noqa: PLR0124 - NaN
        return {guardrail.name: holds for guardrail in guardrails}


def _build_policy_records(policies: Mapping[str, OptimizationPolicySpec], *, home: str) -> list[Policy]:
    return [
        Policy(
            namespace=home,
            name=name,
            uid=derive_uid("policy", name),
            version=1,
            generation=1,
            created=0,
            spec=spec,
            problem="",
        )
        for name, spec in policies.items()
    ]


async def _cancel_task(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

"""Run the production operator on a simulated cluster, in simulated time.

Nothing is decided here: `operator.wiring` builds the operator as in a cluster, and its own elector leads by a simulated
Lease. The simulation takes the steps of the leader session when they are due: reconciles between two steps at the second
that they asked for, ingest cycles and Intents at the end of a step.

    async with Simulation(scenario, policies={"all": OptimizationPolicySpec(mode=PolicyMode.AUTO)}, seed=7) as run:
        run.subscribe(lambda metrics: print(metrics.cpu_requested))
        await run.run(86400)

Left out: serving and registering the webhook, so that nothing validates policies, plugins, and whatever waits on a network.
"""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from trimtab.api.duration import Duration
from trimtab.api.optimizationpolicy import OptimizationPolicySpec
from trimtab.kube.kinds.policies import Policy
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.capabilities import (
    MEMORY_LIMIT_DECREASE_VERSION,
    KubeVersion,
)
from trimtab.kube.rest.client import Object
from trimtab.kube.rest.resources import OPTIMIZATION_POLICIES, Resource
from trimtab.lab.simulator.election import SimulatedClock, SimulatedLeases
from trimtab.lab.simulator.fake_cluster import SimulatedCluster
from trimtab.lab.simulator.kpis import SimulatedGuardrails, SimulatedKpiClient
from trimtab.lab.simulator.objects import derive_uid
from trimtab.lab.simulator.operator_process import OperatorProcess
from trimtab.lab.simulator.scenario import Scenario
from trimtab.lab.simulator.simulated_informers import SimulatedInformerSet, SimulatedObjectClient
from trimtab.lab.simulator.step_cycle import MetricsObserver, StepCycle
from trimtab.lab.simulator.usage_source import SimulatedUsageSource
from trimtab.lab.simulator.world import SimulatedWorld
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.leader import LeaderSession
from trimtab.operator.metrics import Metrics
from trimtab.operator.policy.status import WorkloadOutcome
from trimtab.operator.policy.status_writer import NullEventSink
from trimtab.operator.wiring import (
    Controllers,
    ElectionPort,
    FixedConfig,
    Operator,
    Ports,
)
from trimtab.recommender.recommender import DEFAULT_SOURCE
from trimtab.recommender.source_ingester import IngestSchedule
from trimtab.store import Store

MIN_REQUEUE_DELAY = 60.0
MIN_SAMPLE_RETENTION = 2 * 3600.0
"""Seconds of usage that are kept at least: as long as a change is watched."""


class Simulation:
    """A cluster with an operator; without policies and other objects the operator idles, and requests stay as they are."""

    def __init__(
        self,
        scenario: Scenario,
        *,
        policies: Mapping[str, OptimizationPolicySpec] | None = None,
        objects: Iterable[tuple[Resource, Any]] = (),
        seed: int = 0,
        step: float | None = None,
        history_seconds: float = 0.0,
        retention: float = MIN_SAMPLE_RETENTION,
        min_requeue_delay: float = MIN_REQUEUE_DELAY,
        pack: bool = False,
        autoscale: bool = False,
        config: OperatorConfig | None = None,
    ) -> None:
        """Create a simulation; nothing runs before `async with`.

        `objects` are records of Intents, KPIProfiles and VPAs, each with its resource. `step` defaults to that of the
        demand. Usage of `history_seconds` is known when the operator starts, and usage is kept for `retention` seconds at
        least. A workload is reconciled again after `min_requeue_delay` at the earliest, or half a step if that is less;
        after an event it is reconciled at once. With `pack` the scheduler fills nodes instead of spreading pods; with
        `autoscale` nodes are added and removed as needed.
        """
        self.step = step or scenario.demand.step
        self.world = SimulatedWorld(scenario, seed=seed, pack=pack)
        self.config = with_simulated_lease(config or OperatorConfig(), self.step)
        self._objects_at_start: list[tuple[Resource, Any]] = [
            *(
                (OPTIMIZATION_POLICIES, each)
                for each in build_policy_records(policies or {}, home=self.config.namespace)
            ),
            *objects,
        ]
        self._history_seconds = history_seconds
        # Usage is constant within a step: a reconcile that only waits for usage would find nothing new any earlier.
        self._min_requeue_delay = min(min_requeue_delay, self.step / 2)
        self._exit_stack = contextlib.AsyncExitStack()
        self.metrics = Metrics()
        """The operator's own metrics."""
        self.usage_source = SimulatedUsageSource(
            self.world, retention=max(history_seconds, retention, MIN_SAMPLE_RETENTION) + self.step
        )
        self._cycle = StepCycle(self.world, self.usage_source, step=self.step, autoscale=autoscale)
        self.cluster = SimulatedCluster(self.world)
        self.informers = SimulatedInformerSet(self.world)
        self._objects = SimulatedObjectClient(self.world, self.informers)
        self._clock = SimulatedClock(lambda: self.world.control_time)
        self.leases = SimulatedLeases()
        """The Leases; while another process holds the operator's, this one does nothing."""
        self._process: OperatorProcess

    # Watching

    def subscribe(self, observer: MetricsObserver) -> None:
        """Call the observer with the metrics of every step from now on."""
        self._cycle.subscribe(observer)

    @property
    def now(self) -> float:
        """The simulated time in seconds since 1970."""
        return self.world.now

    @property
    def operator(self) -> Operator:
        return self._process.operator

    @property
    def session(self) -> LeaderSession | None:
        """The present leader session."""
        return self._process.session

    @property
    def controllers(self) -> Controllers:
        """The controllers of the present or the last session."""
        return self._process.controllers

    def outcomes(self) -> dict[WorkloadKey, WorkloadOutcome]:
        """Return the last outcome of each workload: state, reason, recommendations."""
        status_writer = self.controllers.status_writer
        found = ((key, status_writer.get_outcome(key)) for key in self.world.workloads)
        return {key: outcome for key, outcome in found if outcome}

    async def status(self, policy: str) -> Object:
        """Return the status of a policy, as the operator writes it."""
        key = self.config.namespace, policy
        await self.controllers.status_writer.write_status(key)
        return self._objects.statuses.get(("OptimizationPolicy", *key), {})

    # Running

    async def __aenter__(self) -> Self:
        folder = self._exit_stack.enter_context(tempfile.TemporaryDirectory(prefix="trimtab-stage-"))
        self.store = await self._exit_stack.enter_async_context(Store.open(Path(folder) / "stage.db"))
        self._process = OperatorProcess(
            self.world,
            self._build_ports(),
            clock=self._clock,
            informers=self.informers,
            step=self.step,
            min_requeue_delay=self._min_requeue_delay,
        )
        self.cluster_state = self.operator.cluster_state
        if self.config.webhook.pods:
            self.world.admit_pod = self.operator.pod_sizer.size_pod
        self._exit_stack.push_async_callback(self._process.stop)
        self._process.watch()
        self.informers.add_static_objects()
        for resource, record in self._objects_at_start:
            self.informers.put(resource, record)
        await self._process.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exit_stack.aclose()

    async def run(self, seconds: float) -> None:
        """Run for this time, in whole steps; the history, which the operator does not watch, comes first."""
        if self._history_seconds and not self.world.steps:
            for _ in range(round(self._history_seconds / self.step)):
                await self._step()
        if not self.world.steps:
            await self._step()
            seconds -= self.step
        for _ in range(round(seconds / self.step)):
            # While another process leads, this operator must not act. Without any object it could not, and a comparison
            # with `none` would only take longer.
            if self.session is not None and self._objects_at_start:
                await self._process.ingest()
                await self._reconcile_until(self.now + self.step)
                await self._process.finish_step()
            await self._step()
            await self._process.run_intents()

    async def _step(self) -> None:
        self._cycle.run_once()
        self.informers.sync()
        await self._process.advance()

    async def _reconcile_until(self, end: float) -> None:
        """Reconcile every workload that is due before this time, each at its own time."""
        while (at := self._next_due()) is not None and at < end:
            self.world.process_due(max(at, self.world.control_time))
            self.informers.sync()
            await self._process.reconcile_due()

    def _next_due(self) -> float | None:
        times = (self._process.next_due, self.world.due_times.next_time)
        return min((at for at in times if at is not None), default=None)

    # The operator

    def _build_ports(self) -> Ports:
        return Ports(
            informers=self.informers,
            objects=self._objects,
            cluster=lambda _: self.cluster,
            features=SimulatedFeatures(),
            events=NullEventSink(),
            sources={DEFAULT_SOURCE: self.usage_source},
            store=self.store,
            config=FixedConfig(self.config),
            metrics=self.metrics,
            now=self._clock.now,
            schedule=self._build_ingest_schedule(),
            election=ElectionPort(
                client=self.leases,
                identity="simulation",
                clock=self._clock.now,
                sleep=self._clock.sleep,
                rng=random.Random(self.world.seed),  # noqa: S311 - jitter
            ),
            guardrails=SimulatedGuardrails(self.world),
            kpis=SimulatedKpiClient(self.world),
        )

    def _build_ingest_schedule(self) -> IngestSchedule:
        past_step = self.step * max(1, round(300.0 / self.step))
        return IngestSchedule(
            step=self.step,
            backfill_step=past_step,
            backfill_period=max(self._history_seconds, past_step),
            save_interval=float("inf"),  # nothing restarts but sessions, and each of them saves at its end
        )


IN_PLACE_RESIZE_VERSION = KubeVersion(1, 33)
"""The first version that resizes running pods by default."""


class SimulatedFeatures:
    """The features of a version of Kubernetes."""

    def __init__(self, version: KubeVersion = MEMORY_LIMIT_DECREASE_VERSION) -> None:
        self.version = version
        self.can_resize_in_place = version >= IN_PLACE_RESIZE_VERSION

    async def detect(self) -> None:
        """Know the features already."""


def with_simulated_lease(config: OperatorConfig, step: float) -> OperatorConfig:
    """Have the Lease renewed once a step: nothing is simulated in between, and every renewal costs time."""
    lease = {"lease_duration": 4 * step, "renew_deadline": 3 * step, "retry_period": step}
    changed = {name: Duration(round(seconds * 1e9)) for name, seconds in lease.items()}
    return config.model_copy(update={"leader_election": config.leader_election.model_copy(update=changed)})


def build_policy_records(policies: Mapping[str, OptimizationPolicySpec], *, home: str) -> list[Policy]:
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

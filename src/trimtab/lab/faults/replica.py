"""One operator process among faults: its ports, its clock and its end, orderly or not.

All replicas share the cluster, the usage source, the Leases and the file of the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimtab.kube.errors import KubeError, describe
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.runtime.event_correlator import EventType, ObjectReference
from trimtab.lab.faults.api_faults import ApiFaults, FaultyCluster, FaultyLeases, FaultyObjects
from trimtab.lab.faults.gate import ProcessGate, is_killed
from trimtab.lab.faults.kpi_faults import FaultyGuardrails, FaultyKpis
from trimtab.lab.faults.plan import FaultInjector
from trimtab.lab.faults.records import EmittedEvent, Write
from trimtab.lab.faults.store_faults import open_store
from trimtab.lab.faults.trace import FAILED, KILLED, STARTED, STOPPED, RunTrace
from trimtab.lab.faults.usage_faults import FaultySource
from trimtab.lab.faults.watch_faults import FaultyInformers, WatchHub
from trimtab.lab.simulator.election import SimulatedClock, SimulatedLeases
from trimtab.lab.simulator.fake_cluster import SimulatedCluster
from trimtab.lab.simulator.kpis import SimulatedKpiClient
from trimtab.lab.simulator.operator_process import OperatorProcess
from trimtab.lab.simulator.simulated_informers import SimulatedObjectClient
from trimtab.lab.simulator.usage_source import SimulatedUsageSource
from trimtab.lab.simulator.world import SimulatedWorld
from trimtab.operator.metrics import Metrics
from trimtab.operator.wiring import ClusterFeatures, ElectionPort, FixedConfig, Ports
from trimtab.recommender.recommender import DEFAULT_SOURCE
from trimtab.recommender.source_ingester import IngestSchedule

RETRY_DELAY = 30.0
"""The seconds until a workload whose reconcile failed is tried again."""
SAVE_INTERVAL = 3600.0
"""The seconds between two saves of what was learned: a killed process loses the rest."""


@dataclass(slots=True, kw_only=True)
class SharedCluster:
    """Everything that the replicas of an operator have in common."""

    world: SimulatedWorld
    hub: WatchHub
    injector: FaultInjector
    trace: RunTrace
    usage: SimulatedUsageSource
    objects: SimulatedObjectClient
    config: FixedConfig
    store_path: Path
    step: float
    workers: int
    """The number of workloads that a process reconciles at the same time."""
    features: ClusterFeatures
    on_write: Callable[[Write], None]
    on_event: Callable[[EmittedEvent], None]
    on_error: Callable[[str, Exception], None]
    """Called with each error that no part of the operator handled."""
    leases: SimulatedLeases = field(default_factory=SimulatedLeases)


class _TracedEvents:
    """The Events about policies and Intents, in the trace."""

    def __init__(self, process: str, trace: RunTrace) -> None:
        self._process = process
        self._trace = trace

    def record(
        self,
        regarding: ObjectReference,
        *,
        type: EventType,  # noqa: A002 - Kubernetes' own word for it
        reason: str,
        message: str,
        action: str,
    ) -> None:
        del action
        target = f"{regarding.kind} {regarding.namespace}/{regarding.name}"
        self._trace.add(self._process, f"{type} Event on {target} {reason}: {message}", kind=reason)


class Replica:
    """A process that starts, leads, and ends by a kill or an orderly stop."""

    def __init__(self, name: str, shared: SharedCluster, *, leases: SimulatedLeases | None = None) -> None:
        """Create a replica; with `leases` of its own it leads beside the others."""
        self.name = name
        self._shared = shared
        self._leases = leases or shared.leases
        self.skew = 0.0
        """The seconds by which the clock of this process is ahead."""
        self.gate = ProcessGate(name, on_kill=self._record_kill)
        delays = random.Random(f"{shared.world.seed}/{name}/delays")  # noqa: S311 - not for secrets
        self.api = ApiFaults(shared.injector, self.gate, delays if shared.workers > 1 else None)
        self.metrics = Metrics()
        self.informers = FaultyInformers(shared.world, shared.hub, shared.injector)
        self.process: OperatorProcess
        self._exit_stack = contextlib.AsyncExitStack()

    @property
    def is_dead(self) -> bool:
        return self.gate.is_dead

    @property
    def is_leading(self) -> bool:
        return not self.is_dead and self.process.session is not None

    async def start(self) -> None:
        """Start the process: it reads everything again and competes for the Lease."""
        shared = self._shared
        shared.trace.add(self.name, "starts", kind=STARTED)
        store = await self._exit_stack.enter_async_context(
            open_store(shared.store_path, shared.injector, self.gate)
        )
        world = shared.world
        self._clock = clock = SimulatedClock(lambda: world.control_time)

        def now() -> float:
            return world.control_time + self.skew

        cluster = FaultyCluster(
            SimulatedCluster(world),
            world,
            self.api,
            features=shared.features,
            now=now,
            on_write=shared.on_write,
            on_event=shared.on_event,
        )
        ports = Ports(
            informers=self.informers,
            objects=FaultyObjects(shared.objects, self.api),
            cluster=lambda _: cluster,
            features=shared.features,
            events=_TracedEvents(self.name, shared.trace),
            sources={
                DEFAULT_SOURCE: FaultySource(shared.usage, shared.injector, self.gate, start=world.start)
            },
            store=store,
            config=shared.config,
            metrics=self.metrics,
            now=now,
            schedule=self._build_schedule(),
            election=ElectionPort(
                client=FaultyLeases(self._leases, self.api),
                identity=self.name,
                clock=clock.now,
                sleep=clock.sleep,
                rng=random.Random(f"{world.seed}/{self.name}"),  # noqa: S311 - jitter
            ),
            guardrails=FaultyGuardrails(shared.injector, self.gate),
            kpis=FaultyKpis(SimulatedKpiClient(world), shared.injector, self.gate),
        )
        self.process = OperatorProcess(
            world,
            ports,
            clock=clock,
            informers=self.informers,
            step=shared.step,
            min_requeue_delay=min(15.0, shared.step / 2),
            workers=shared.workers,
            status_interval=0.0,
        )
        self.process.watch()
        self.informers.sync()
        await self._guard(self.process.start())

    async def stop(self) -> None:
        """Stop in an orderly way: what was learned is saved."""
        self._shared.trace.add(self.name, "stops", kind=STOPPED)
        await self._guard(self.process.stop())
        await self.kill()

    async def kill(self) -> None:
        """End at once: whatever the process still does has no effect."""
        self._shared.trace.add(self.name, "ends", kind=STOPPED)
        self.gate.is_dead = True
        with contextlib.suppress(BaseExceptionGroup):
            await self.process.stop()
        self.informers.close()
        await self._exit_stack.aclose()

    # The steps

    async def ingest(self) -> None:
        await self._guard(self.process.ingest())

    async def reconcile_due(self) -> None:
        await self._guard(self.process.reconcile_due(on_error=self._retry))

    async def finish_step(self) -> None:
        """Do what the operator does beside ingesting and reconciling: history, statuses, Intents."""
        await self._guard(self._finish_step())

    async def advance(self) -> None:
        """Let the election notice that time has passed."""
        await self._guard(self.process.advance())

    async def _finish_step(self) -> None:
        def record(policy: object, error: KubeError) -> None:
            self._shared.trace.add(
                self.name, f"status of {policy} not written: {describe(error)}", kind=FAILED
            )

        await self.process.finish_step(on_error=record)
        await self.process.run_intents()

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a step of a living process, until its end."""
        if self.is_dead:
            work.close()
            return
        try:
            await work
        except Exception as error:  # noqa: BLE001 - an invariant reports it
            self._shared.on_error(self.name, error)
        except (asyncio.CancelledError, KeyboardInterrupt):
            if not self.is_dead:
                raise
        except BaseException as error:
            if not is_killed(error):
                raise

    def _retry(self, key: WorkloadKey, error: Exception) -> float:
        self._shared.trace.add(
            self.name, f"reconcile of {key} failed: {describe(error)}", kind=FAILED, target=str(key)
        )
        # The work queue logs a traceback of any other error.
        if not isinstance(error, KubeError):
            self._shared.on_error(self.name, error)
        return RETRY_DELAY

    def _record_kill(self, call: str) -> None:
        self._shared.trace.add(self.name, f"is killed at: {call}", kind=KILLED)

    def _build_schedule(self) -> IngestSchedule:
        step = self._shared.step
        past_step = step * max(1, round(300.0 / step))
        return IngestSchedule(
            step=step, backfill_step=past_step, backfill_period=86400.0, save_interval=SAVE_INTERVAL
        )

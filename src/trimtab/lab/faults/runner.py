"""Run one case: a world and a fault plan in, violations, counts and a trace out.

Time advances in steps of the world's demand; in between, everything that is due happens at its own second: reconciles,
pods that become ready, resizes, faults, restarts of processes. Nothing reads the machine's clock.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import structlog

from trimtab.actuation.resources import Sizes
from trimtab.kube.errors import describe
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.capabilities import KubeVersion
from trimtab.kube.rest.resources import OPTIMIZATION_POLICIES
from trimtab.lab.faults.api_faults import WEBHOOK_AWAY
from trimtab.lab.faults.catalog import FAULT_KINDS, INVARIANTS, draw_faults
from trimtab.lab.faults.invariant import Invariant, RunState
from trimtab.lab.faults.plan import FaultInjector, FaultPlan
from trimtab.lab.faults.process_faults import Operations
from trimtab.lab.faults.records import CheckLog, EmittedEvent, Violation, Write
from trimtab.lab.faults.replica import SharedCluster
from trimtab.lab.faults.run_invariants import ReadyPods
from trimtab.lab.faults.single_thread import IN_MEMORY, use_one_thread
from trimtab.lab.faults.trace import FAILED, RunTrace, TraceEntry, render_trace
from trimtab.lab.faults.watch_faults import WatchHub
from trimtab.lab.faults.world_faults import Environment
from trimtab.lab.faults.worlds import DAY, WorldSpec, draw_world
from trimtab.lab.simulator.metrics import ClusterMetrics
from trimtab.lab.simulator.scenario import Scenario
from trimtab.lab.simulator.simulated_informers import SimulatedObjectClient, list_static_objects
from trimtab.lab.simulator.simulation import SimulatedFeatures, build_policy_records, with_simulated_lease
from trimtab.lab.simulator.step_cycle import MetricsObserver, StepCycle
from trimtab.lab.simulator.usage_source import SimulatedUsageSource
from trimtab.lab.simulator.world import SimulatedWorld
from trimtab.operator.wiring import FixedConfig

SAMPLE_RETENTION = 2 * DAY
"""The seconds for which the simulated usage source keeps samples."""
_HIDING = tuple(kind.name for kind in FAULT_KINDS if kind.hides_usage)


class FaultCase(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that determines a run."""

    seed: int
    world: WorldSpec
    plan: FaultPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """The outcome of a run."""

    case: FaultCase
    plan: FaultPlan
    """The faults that began, at their times."""
    violations: tuple[Violation, ...]
    fault_counts: Counter[str]
    """The number of times that each kind of fault took effect."""
    evaluations: Counter[str]
    """The number of evaluations of each invariant."""
    pairs: frozenset[str]
    """The transitions of changes with each kind of fault that was active meanwhile, as `fault/transition`."""
    writes: int
    digest: str
    """The digest of the trace; equal for two runs of one case."""
    entries: tuple[TraceEntry, ...]
    """The last entries of the trace."""
    entry_count: int
    """The number of entries of the trace, with those that were not kept."""

    @property
    def trace(self) -> str:
        """The trace as text."""
        return render_trace(self.entries, count=self.entry_count)


def draw_case(seed: int, intensity: str) -> FaultCase:
    """Draw the case of a seed."""
    world = draw_world(seed)
    return FaultCase(seed=seed, world=world, plan=draw_faults(world, seed=seed, intensity=intensity))


async def run_case(case: FaultCase) -> CaseResult:
    """Run a case from its first second to its last."""
    with tempfile.TemporaryDirectory(prefix="trimtab-faults-", dir=IN_MEMORY) as folder:
        run = FaultRun(case, Path(folder), measure_baseline=partial(_measure_baseline, case, Path(folder)))
        await run.run(replicas=case.world.replicas)
    return run.result()


async def _measure_baseline(case: FaultCase, folder: Path, plan: FaultPlan) -> dict[WorkloadKey, float]:
    """Return the ready pods of each workload in the same run without the operator, with faults at the same times."""
    baseline = FaultRun(msgspec.structs.replace(case, plan=plan), folder, invariants=())
    await baseline.run(replicas=0)
    return baseline.ready.means()


class FaultRun:
    """One run of a case."""

    def __init__(
        self,
        case: FaultCase,
        folder: Path,
        *,
        measure_baseline: Callable[[FaultPlan], Awaitable[Mapping[WorkloadKey, float]]] | None = None,
        scenario: Scenario | None = None,
        autoscale: bool = False,
        invariants: Sequence[type[Invariant]] = INVARIANTS,
    ) -> None:
        """Create a run that keeps its files in a folder; without a `scenario` the world of the case describes the cluster.

        `measure_baseline` returns the ready pods of each workload without the operator, among faults at these times.
        """
        spec = case.world
        self._case = case
        self._world = world = SimulatedWorld(
            scenario or spec.build_scenario(), seed=spec.seed, start=spec.start
        )
        self._trace = RunTrace(lambda: world.control_time)
        self._injector = FaultInjector(
            case.plan, elapsed=lambda: world.control_time - world.start, trace=self._trace
        )
        self._hub = WatchHub(world)
        usage = SimulatedUsageSource(world, retention=SAMPLE_RETENTION)
        self._cycle = StepCycle(world, usage, step=spec.step, autoscale=autoscale)
        self.subscribe(self._trace_events)
        config = FixedConfig(with_simulated_lease(spec.build_config(), spec.step))
        shared = SharedCluster(
            world=world,
            hub=self._hub,
            injector=self._injector,
            trace=self._trace,
            usage=usage,
            objects=SimulatedObjectClient(world, self._hub),
            config=config,
            store_path=folder / "trimtab.db",
            step=spec.step,
            workers=spec.workers,
            features=SimulatedFeatures(KubeVersion.parse(spec.kubernetes)),
            on_write=self._observe_write,
            on_event=self._observe_event,
            on_error=self._observe_error,
        )
        self._environment = Environment(world, self._hub, self._injector, self._trace)
        self._operations = Operations(shared, spec)
        self._state = RunState(
            spec=spec,
            world=world,
            log=CheckLog(now=lambda: world.control_time),
            injector=self._injector,
            replicas=lambda: self._operations.replicas,
            all_replicas=lambda: [*self._operations.retired, *self._operations.replicas],
            config=lambda: config.current,
            hides_usage=self._hides_usage,
            objects=self._hub.objects,
            store_path=shared.store_path,
        )
        self._measure_baseline = measure_baseline
        self._invariants: list[Invariant] = [kind(self._state) for kind in invariants]
        self.ready = ReadyPods(spec, world)
        self._writes = 0
        self._pairs: set[str] = set()
        home = config.current.namespace
        for resource, record in list_static_objects(world):
            self._hub.put(resource, record)
        namespaces = sorted({each.namespace for each in spec.workloads})
        for resource, record in spec.companions.build(namespaces):
            self._hub.put(resource, record)
        for policy in build_policy_records(spec.build_policies(), home=home):
            self._hub.put(OPTIMIZATION_POLICIES, policy)
        world.admit_pod = self._admit_pod

    def subscribe(self, observer: MetricsObserver) -> None:
        """Call the observer with the metrics of every step."""
        self._cycle.subscribe(observer)

    async def run(self, *, replicas: int = 1) -> None:
        """Run to the end; without a replica, only what happens to the cluster by itself."""
        configured = structlog.get_config()
        structlog.configure(processors=[self._capture_log], cache_logger_on_first_use=False)
        use_one_thread()
        try:
            await self._run(replicas)
        finally:
            structlog.configure(**configured)

    async def _run(self, replicas: int) -> None:
        spec = self._case.world
        self._operations.target = replicas
        self._cycle.run_once()
        for _ in range(replicas):
            await self._operations.start_replica()
        try:
            for _ in range(round(spec.days * DAY / spec.step)):
                await self._step()
            if self._measure_baseline:
                self._state.ready_without_operator = await self._measure_baseline(self._injector.timed_plan())
            for invariant in self._invariants:
                invariant.at_end()
        finally:
            await self._operations.stop()

    async def _step(self) -> None:
        operations = self._operations
        await operations.process_due()
        for replica in list(operations.replicas):
            await replica.ingest()
        await self._run_until(self._world.now + self._case.world.step)
        for replica in list(operations.replicas):
            await replica.finish_step()
        self._cycle.run_once()
        for replica in list(operations.replicas):
            replica.informers.sync()
            await replica.advance()
        await operations.bury()
        self.ready.observe()
        for invariant in self._invariants:
            invariant.on_step()

    async def _run_until(self, end: float) -> None:
        """Do everything that is due before this time, each at its own time."""
        world, operations = self._world, self._operations
        while (at := self._next_due()) is not None and at < end:
            world.process_due(max(at, world.control_time))
            self._environment.process_due()
            await operations.process_due()
            for replica in list(operations.replicas):
                if replica.is_dead:
                    continue
                replica.informers.sync()
                await replica.reconcile_due()
            await operations.bury()

    def _next_due(self) -> float | None:
        times = [self._world.due_times.next_time, self._environment.next_due, self._operations.next_due]
        times += [replica.process.next_due for replica in self._operations.replicas if replica.is_leading]
        return min((at for at in times if at is not None), default=None)

    def _trace_events(self, metrics: ClusterMetrics) -> None:
        for event in metrics.events:
            self._trace.add(
                "cluster",
                f"{event.workload} {event.pod} {event.reason}: {event.message}",
                kind=event.reason,
                target=str(event.workload),
                at=event.at,
            )

    def _admit_pod(self, pod: Pod) -> Sizes:
        sizes: Sizes = {}
        leading = next((each for each in self._operations.replicas if not each.is_dead), None)
        if leading and self._case.world.build_config().webhook.pods:
            if fault := self._injector.hit(WEBHOOK_AWAY):
                self._injector.record(fault, pod.name)
            else:
                sizes = leading.process.operator.pod_sizer.size_pod(pod)
        return self._environment.admit(pod, sizes)

    def _observe_write(self, write: Write) -> None:
        self._writes += 1
        self._trace.add(write.process, str(write), kind=write.verb, target=str(write.workload))
        for invariant in self._invariants:
            invariant.on_write(write)

    def _observe_event(self, event: EmittedEvent) -> None:
        for invariant in self._invariants:
            invariant.on_event(event)

    def _observe_error(self, process: str, error: Exception) -> None:
        # The innermost frames name the place, without line numbers of the libraries.
        text = f"{process}: {type(error).__name__}: {describe(error)}{_find_place(error)}"
        self._trace.add(process, text, kind=FAILED)
        self._state.errors.append(text)

    def _capture_log(self, _logger: Any, method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
        """Take a log record, and drop it; a traceback or an error is a violation."""
        if event.get("event") == "actuation.transition":
            self._pairs.update(f"{kind}/{event['transition']}" for kind in self._injector.active_kinds())
        if method in {"error", "critical", "exception"} or event.get("exc_info"):
            error = event.get("exc_info")
            place = _find_place(error) if isinstance(error, BaseException) else ""
            text = f"log {event.get('event')}: {event.get('error') or event.get('handler') or ''}{place}"
            self._trace.add("log", text, kind=FAILED)
            if event.get("event") not in _EXPECTED_ERRORS:
                self._state.errors.append(text)
        raise structlog.DropEvent

    def _hides_usage(self) -> bool:
        elapsed = self._state.elapsed
        return any(
            elapsed - DAY < self._injector.period(fault)[1]
            for kind in _HIDING
            for fault in self._injector.list_started(kind)
        )

    def result(self) -> CaseResult:
        return CaseResult(
            case=self._case,
            plan=self._injector.timed_plan(),
            violations=tuple(self._state.log.violations),
            fault_counts=self._injector.counts,
            evaluations=self._state.log.evaluations,
            pairs=frozenset(self._pairs),
            writes=self._writes,
            digest=self._trace.digest,
            entries=self._trace.entries,
            entry_count=self._trace.count,
        )


_EXPECTED_ERRORS = {"store.damaged_file_set_aside"}
"""Errors in the log that a fault explains and a person has to know."""


def _find_place(error: BaseException) -> str:
    """Return the innermost function of the product in which an error was raised."""
    found, traceback = "", error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        if "trimtab" in code.co_filename:
            found = f" in {Path(code.co_filename).name}:{traceback.tb_lineno} {code.co_name}"
        traceback = traceback.tb_next
    return found

"""Run one case of a node: the production agent's collectors, strategies, arbiter, executor and journal, second by second."""

from __future__ import annotations

import tempfile
from collections import Counter, deque
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import Any

import msgspec
import structlog
from prometheus_client import CollectorRegistry

from trimtab.lab.faults.gate import ProcessGate, is_killed
from trimtab.lab.faults.node_faults import (
    KILLED,
    NODE_FAULT_KINDS,
    REBOOTED,
    REWRITTEN,
    STALE,
    STOPPED,
    WRAPPED,
    FaultyJournal,
    FaultyKnobFiles,
    WritePort,
    rewrite_knobs,
)
from trimtab.lab.faults.node_invariants import NODE_INVARIANTS, NodeInvariant, NodeRunState
from trimtab.lab.faults.node_world import NodeWorld, SimulatedNode, draw_node_world
from trimtab.lab.faults.plan import Fault, FaultInjector, FaultPlan, draw_plan
from trimtab.lab.faults.records import CheckLog, Violation
from trimtab.lab.faults.single_thread import IN_MEMORY
from trimtab.lab.faults.trace import FAILED, STARTED, RunTrace, TraceEntry, render_trace
from trimtab.lab.faults.trace import KILLED as KILLED_ENTRY
from trimtab.lab.faults.trace import STOPPED as STOPPED_ENTRY
from trimtab.node.arbiter.requests import KnobRef, Value
from trimtab.node.collectors.cpu import CpuCollector
from trimtab.node.collectors.manager import CollectorManager
from trimtab.node.collectors.node import NodeCollector, RemainderCollector
from trimtab.node.executor import Executor
from trimtab.node.metrics import QosMetrics
from trimtab.node.model import NodeView
from trimtab.node.qos.controller import QosController, RoundResult, load_strategies
from trimtab.node.series import SeriesStore
from trimtab.node.strategies import Eviction

RESTART_SECONDS = 3.0
NODE_INTENSITIES = {"light": (1, 3), "heavy": (4, 12)}
"""The smallest and the largest number of faults of a run."""


class NodeCase(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that determines the run of a node."""

    seed: int
    world: NodeWorld
    plan: FaultPlan


class NodeCaseResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of the run of a node."""

    case: NodeCase
    violations: tuple[Violation, ...]
    fault_counts: Counter[str]
    """The number of times that each kind of fault took effect."""
    evaluations: Counter[str]
    """The number of evaluations of each invariant."""
    writes: int
    digest: str
    """The digest of the trace; equal for two runs of one case."""
    entries: tuple[TraceEntry, ...]
    entry_count: int

    @property
    def trace(self) -> str:
        """The trace as text."""
        return render_trace(self.entries, count=self.entry_count)


def draw_node_case(seed: int, intensity: str) -> NodeCase:
    """Draw the case of a seed: all faults within its first part."""
    world = draw_node_world(seed)
    fewest, most = NODE_INTENSITIES[intensity]
    plan = draw_plan(
        NODE_FAULT_KINDS,
        world,
        seed=seed,
        count=fewest + seed % (most - fewest + 1),
        window=(1.0, world.calm_at),
    )
    return NodeCase(seed=seed, world=world, plan=plan)


async def run_node_case(case: NodeCase) -> NodeCaseResult:
    """Run a case from its first second to the end of the agent."""
    with tempfile.TemporaryDirectory(prefix="trimtab-node-", dir=IN_MEMORY) as folder:
        run = _NodeRun(case, Path(folder))
        configured = structlog.get_config()
        structlog.configure(processors=[run.capture_log], cache_logger_on_first_use=False)
        try:
            await run.run()
        finally:
            structlog.configure(**configured)
        return run.result()


class _Agent:
    """One process of the agent on a node."""

    def __init__(self, run: _NodeRun, name: str) -> None:
        self.name = name
        self.gate = ProcessGate(name, on_kill=run.trace_kill)
        self.rounds = 0
        node = run.node
        port = WritePort(node=node, injector=run.injector, gate=self.gate, on_write=run.observe_write)
        journal = FaultyJournal(run.journal_path, boot=run.boot, injector=run.injector, gate=self.gate)
        self._executor = Executor(FaultyKnobFiles(port), journal)
        self.controller = QosController(
            self._executor, load_strategies(), evict=self._evict, metrics=QosMetrics(CollectorRegistry())
        )
        self._node = node
        self._series = SeriesStore(now=node.now)
        self._collectors = CollectorManager(
            [CpuCollector(node.tree.hierarchy), NodeCollector(node.proc), RemainderCollector()],
            self._series,
            registry=CollectorRegistry(),
            cpu_time=lambda: 0.0,
        )

    async def run_round(self, view: NodeView, *, now: float) -> RoundResult:
        """Collect, decide and write once."""
        self._collectors.collect(view, now)
        policy = self._node.world.policy_at(self._node.elapsed)
        result = await self.controller.run_round(view, self._series, policy, now=now)
        await self.controller.wait_evictions()
        self.rounds += 1
        return result

    def close(self) -> None:
        """Close the files that a process has open."""
        self._collectors.close()

    async def _evict(self, eviction: Eviction) -> None:
        if not self.gate.is_dead:
            self._node.remove_pod(eviction.pod.name)


class _NodeRun:
    def __init__(self, case: NodeCase, folder: Path) -> None:
        self._case = case
        self.node = SimulatedNode(folder, case.world)
        self.journal_path = folder / "journal"
        self._trace = RunTrace(lambda: self.node.now)
        self.injector = FaultInjector(case.plan, elapsed=lambda: self.node.elapsed, trace=self._trace)
        self._log = CheckLog(now=lambda: self.node.now)
        self._state = NodeRunState(
            node=self.node, log=self._log, journal_path=self.journal_path, boot=lambda: self.boot
        )
        self._invariants: list[NodeInvariant] = [kind(self._state) for kind in NODE_INVARIANTS]
        self._views: deque[NodeView] = deque(maxlen=16)
        self._agent: _Agent | None = None
        self._agents = 0
        self._starts_at = 0.0
        self._begun: set[int] = set()
        self._writes = 0

    @property
    def boot(self) -> str:
        """The id of the present boot."""
        return f"boot-{self.node.boots}"

    async def run(self) -> None:
        """Run to the end of the agent; then everything is as it would be without one."""
        for _ in range(self._case.world.seconds):
            self.node.advance(1.0)
            self._views.append(self.node.view())
            await self._apply_faults()
            if self._agent is None and self.node.elapsed >= self._starts_at:
                self._guard_start()
            if self._agent:
                await self._run_round(self._agent)
        if self._agent:
            # A kill that no write has met yet would come after the last fault.
            self._agent.gate.kill_at = None
            self._stop(self._agent)
        self._end_agent()
        for invariant in self._invariants:
            invariant.at_end()

    async def _run_round(self, agent: _Agent) -> None:
        view = self._views[-1]
        if fault := self.injector.hit(STALE):
            age = min(int(fault.amount), len(self._views) - 1)
            view = self._views[-1 - age]
            self.injector.record(fault, f"{age} s")
        try:
            result = await agent.run_round(view, now=self.node.now)
        except Exception as error:  # noqa: BLE001 - an invariant reports it
            self._state.errors.append(f"{type(error).__name__}: {error}")
            self._trace.add(agent.name, f"fails: {error!r}", kind=FAILED)
        except BaseException as error:
            if not is_killed(error):
                raise
            self._end_agent()
        else:
            for invariant in self._invariants:
                invariant.on_round(result, view)

    async def _apply_faults(self) -> None:
        for kind in (KILLED, STOPPED, REBOOTED, REWRITTEN, WRAPPED):
            for fault in self.injector.active(kind):
                if kind == REWRITTEN:
                    rewrite_knobs(self.node, self.injector, fault)
                elif fault.seed not in self._begun:
                    self._begun.add(fault.seed)
                    self._apply_fault(fault)

    def _apply_fault(self, fault: Fault) -> None:
        """Apply a fault that takes effect once, at its begin."""
        match fault.kind:
            case "agent-killed" if self._agent:
                self._agent.gate.kill_at = self._agent.gate.calls + int(fault.amount)
            case "agent-restarted" if self._agent:
                self._stop(self._agent)
                self._end_agent()
            case "node-rebooted":
                self._end_agent()
                self.node.reboot()
                self._views.clear()
                self._views.append(self.node.view())
            case "counters-reset":
                self.node.reset_counters()
            case _:
                return
        self.injector.record(fault, fault.kind)

    def _guard_start(self) -> None:
        self._agents += 1
        name = f"agent-{self._agents}"
        self._trace.add(name, "starts", kind=STARTED)
        self._agent = _Agent(self, name)

    def _stop(self, agent: _Agent) -> None:
        """Stop an agent in an orderly way: it restores the node."""
        self._trace.add(agent.name, "stops", kind=STOPPED_ENTRY)
        try:
            agent.controller.release(now=self.node.now)
        except BaseException as error:
            if not is_killed(error):
                raise

    def _end_agent(self) -> None:
        if self._agent:
            self._agent.gate.is_dead = True
            self._agent.close()
        self._agent, self._starts_at = None, self.node.elapsed + RESTART_SECONDS

    def trace_kill(self, call: str) -> None:
        """Record that the agent was killed at a call."""
        self._trace.add("agent", f"is killed at: {call}", kind=KILLED_ENTRY)

    def observe_write(self, ref: KnobRef, value: Value) -> None:
        """Look at a write of the agent that is about to happen."""
        self._writes += 1
        shown = sorted(value) if isinstance(value, frozenset) else value
        self._trace.add("agent", f"writes {ref}: {shown}", kind="write", target=ref.path)
        for invariant in self._invariants:
            invariant.on_write(ref, value)

    def capture_log(self, _logger: Any, method: str, event: MutableMapping[str, Any]) -> Mapping[str, Any]:
        """Take a log record, and drop it; a traceback or an error is a violation."""
        if method in {"error", "critical", "exception"} or event.get("exc_info"):
            text = f"log {event.get('event')}: {event.get('error') or event.get('exc_info') or ''}"
            self._trace.add("log", text, kind=FAILED)
            self._state.errors.append(text)
        raise structlog.DropEvent

    def result(self) -> NodeCaseResult:
        return NodeCaseResult(
            case=self._case,
            violations=tuple(self._log.violations),
            fault_counts=self.injector.counts,
            evaluations=self._log.evaluations,
            writes=self._writes,
            digest=self._trace.digest,
            entries=self._trace.entries,
            entry_count=self._trace.count,
        )

"""Invariants of the node agent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from trimtab.lab.faults.invariant import BaseInvariant
from trimtab.lab.faults.node_world import SimulatedNode
from trimtab.lab.faults.records import CheckLog
from trimtab.node.arbiter.host_knobs import ALL_KNOBS
from trimtab.node.arbiter.requests import KnobRef, Value
from trimtab.node.model import NodeView
from trimtab.node.qos.controller import RoundResult
from trimtab.node.restore_journal import RestoreJournal

QUIET_SECONDS = 30.0
"""The last seconds of a run, in which the agent may not write any more."""


@dataclass(slots=True, kw_only=True)
class NodeRunState:
    """Everything that an invariant of the agent may look at."""

    node: SimulatedNode
    log: CheckLog
    journal_path: Path
    boot: Callable[[], str]
    errors: list[str] = field(default_factory=list)
    """Errors that nothing handled, and logged tracebacks."""


class NodeInvariant(BaseInvariant):
    """The base of the invariants of the agent."""

    def __init__(self, state: NodeRunState) -> None:
        super().__init__(state.log)
        self.state = state

    def on_write(self, ref: KnobRef, value: Value) -> None:
        """Look at a write of the agent that is about to happen."""

    def on_round(self, result: RoundResult, view: NodeView) -> None:
        """Look at the node after a round of the agent with this view."""

    def at_end(self) -> None:
        """Look at the node after the orderly end of the last agent."""


class OriginalsRestored(NodeInvariant):
    name = "node-originals-restored"
    sentence = "After the end of the agent every knob has the value that it would have without the agent."

    def at_end(self) -> None:
        self.check(not (found := list(self.state.node.differences())), "; ".join(found[:5]))


class OwnKnobsOnly(NodeInvariant):
    name = "node-own-knobs-only"
    sentence = "The agent writes only knobs of its registry, in cgroups of pods and in known sysctls."

    def on_write(self, ref: KnobRef, value: Value) -> None:
        del value
        pods = self.state.node.tree.layout.pods_path
        is_inside = ref.path in {"", pods} or ref.path.startswith(f"{pods}/")
        self.check(ref.knob.name in ALL_KNOBS and is_inside, ref)


class JournalFirst(NodeInvariant):
    name = "node-journal-first"
    sentence = "Before the agent writes a knob, its original is in the journal on disk."

    def on_write(self, ref: KnobRef, value: Value) -> None:
        known = RestoreJournal(self.state.journal_path, boot=self.state.boot()).originals
        self.check(ref in known, ref, "is not in the journal before it is set to", value)


class CriticalNotSqueezed(NodeInvariant):
    name = "node-critical-not-squeezed"
    sentence = "A critical pod may use as much CPU as without the agent."

    def on_round(self, result: RoundResult, view: NodeView) -> None:
        # A rejected write leaves the node for a moment as it was, and a new pod is not in an old list of pods.
        if result.write_result.rejected:
            return
        node = self.state.node
        known = {pod.uid: pod for pod in view.pods}
        for pod in node.list_critical():
            if known.get(pod.uid) == pod:
                cores, wanted = node.count_cores(pod.cgroup), node.expected_cores(pod.cgroup)
                self.check(
                    cores >= wanted, f"{pod.name} may use {cores:g} cores, without the agent {wanted:g}"
                )


class NodeErrorsHandled(NodeInvariant):
    name = "node-errors-handled"
    sentence = "No error ends the agent or appears in its log as a traceback."

    def at_end(self) -> None:
        self.check(not self.state.errors, "; ".join(self.state.errors[:3]))


class NodeQuietInTheEnd(NodeInvariant):
    name = "node-quiet-in-the-end"
    sentence = "With stationary usage, pods and policies the agent writes nothing any more."

    def __init__(self, state: NodeRunState) -> None:
        super().__init__(state)
        self._late: list[str] = []

    def on_round(self, result: RoundResult, view: NodeView) -> None:
        del view
        node = self.state.node
        if node.elapsed > node.world.seconds - QUIET_SECONDS:
            self._late += [f"{ref}: {value}" for ref, value in result.write_result.written]

    def at_end(self) -> None:
        self.check(not self._late, len(self._late), "writes, at last", "; ".join(self._late[-3:]))


NODE_INVARIANTS: tuple[type[NodeInvariant], ...] = (
    OriginalsRestored,
    OwnKnobsOnly,
    JournalFirst,
    CriticalNotSqueezed,
    NodeErrorsHandled,
    NodeQuietInTheEnd,
)

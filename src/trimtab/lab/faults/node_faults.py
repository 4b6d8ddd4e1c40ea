"""Faults of a node and of its agent: rejected writes, cgroups that vanish, a full or torn journal, kills, reboots."""

from __future__ import annotations

import errno
import json
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.lab.faults.gate import ProcessGate
from trimtab.lab.faults.node_world import SimulatedNode
from trimtab.lab.faults.plan import Fault, FaultDetails, FaultInjector, FaultKind
from trimtab.node.arbiter.requests import KnobRef, Value
from trimtab.node.executor import KnobFiles
from trimtab.node.restore_journal import RestoreJournal

EIO, EBUSY, GONE, VANISHED = "knob-eio", "knob-ebusy", "knob-gone", "cgroup-vanished"
FULL, TORN = "journal-full", "journal-torn"
KILLED, STOPPED, REBOOTED = "agent-killed", "agent-restarted", "node-rebooted"
REWRITTEN, STALE, WRAPPED = "kubelet-rewrites-knobs", "pod-list-stale", "counters-reset"
_ERRNOS = {EIO: errno.EIO, EBUSY: errno.EBUSY, GONE: errno.ENOENT}
_SECONDS = (1.0, 40.0)


def _draw_share(rng: random.Random, world: object) -> FaultDetails:
    del world
    return FaultDetails(share=rng.choice([0.05, 0.3, 1.0]))


def _draw_calls(rng: random.Random, world: object) -> FaultDetails:
    del world
    return FaultDetails(amount=float(rng.choice([1, 2, 3, 5, 8, 20])))


def _draw_delay(rng: random.Random, world: object) -> FaultDetails:
    del world
    return FaultDetails(amount=float(rng.choice([1, 3, 10])))


NODE_FAULT_KINDS = (
    FaultKind(
        name=EIO, sentence="The kernel fails writes of knobs with EIO.", draw=_draw_share, duration=_SECONDS
    ),
    FaultKind(
        name=EBUSY,
        sentence="The kernel fails writes of knobs with EBUSY.",
        draw=_draw_share,
        duration=_SECONDS,
    ),
    FaultKind(
        name=GONE,
        sentence="The file of a knob is not found, though its cgroup is there.",
        draw=_draw_share,
        duration=_SECONDS,
    ),
    FaultKind(
        name=VANISHED,
        sentence="A pod ends with its cgroups while a knob of it is written.",
        duration=_SECONDS,
    ),
    FaultKind(
        name=FULL,
        sentence="The disk of the restore journal is full; the last line is cut.",
        draw=_draw_share,
        duration=_SECONDS,
    ),
    FaultKind(
        name=TORN,
        sentence="The agent is killed while it writes a line of the restore journal.",
        duration=_SECONDS,
        weight=2.0,
    ),
    FaultKind(
        name=KILLED,
        sentence="The agent is killed before or after a write, and started again.",
        draw=_draw_calls,
        duration=_SECONDS,
        weight=3.0,
    ),
    FaultKind(
        name=STOPPED, sentence="The agent is stopped in an orderly way and started again.", duration=_SECONDS
    ),
    FaultKind(name=REBOOTED, sentence="The node reboots.", duration=_SECONDS),
    FaultKind(
        name=REWRITTEN,
        sentence="The kubelet writes its own value to knobs that the agent holds.",
        draw=_draw_share,
        duration=_SECONDS,
    ),
    FaultKind(
        name=STALE, sentence="The agent's list of pods is seconds old.", draw=_draw_delay, duration=_SECONDS
    ),
    FaultKind(name=WRAPPED, sentence="Usage counters begin at 0 again.", duration=_SECONDS),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePort:
    """Everything that the writes of one agent process pass."""

    node: SimulatedNode
    injector: FaultInjector
    gate: ProcessGate
    on_write: Callable[[KnobRef, Value], None]
    """Called with each write that is about to happen."""


class FaultyKnobFiles(KnobFiles):
    """The knob files of a simulated node, with faults, for one agent process."""

    def __init__(self, port: WritePort) -> None:
        """Create files whose writes pass a port."""
        files = port.node.tree.knob_files
        super().__init__(files.hierarchy, sysctls=files.sysctls, resctrl=files.resctrl)
        # The base class is frozen, as files of a real node are.
        object.__setattr__(self, "port", port)

    port: WritePort

    def write(self, ref: KnobRef, value: Value) -> None:
        self.port.on_write(ref, value)
        super().write(ref, value)

    def write_line(self, path: Path, line: str) -> None:
        node, injector, gate = self.port.node, self.port.injector, self.port.gate
        gate.pass_through(f"write {path.name}")
        for kind, number in _ERRNOS.items():
            if fault := injector.hit(kind):
                injector.record(fault, str(path.name))
                raise OSError(number, os.strerror(number), str(path))
        pod = next((each for each in node.pods.values() if f"/{each.cgroup}/" in f"{path}"), None)
        if pod and (fault := injector.hit(VANISHED)):
            injector.record(fault, pod.name)
            node.remove_pod(pod.name)
        node.tree.knob_files.write_line(path, line)
        gate.pass_through(f"wrote {path.name}")


class FaultyJournal(RestoreJournal):
    """A restore journal on a disk with faults."""

    def __init__(self, path: Path, *, boot: str, injector: FaultInjector, gate: ProcessGate) -> None:
        self._faulty_path, self._injector, self._gate = path, injector, gate
        super().__init__(path, boot=boot)

    def _append(self, entries: Sequence[Any], *, sync: bool = True) -> None:
        self._gate.pass_through("append to the journal")
        for kind in (FULL, TORN):
            if fault := self._injector.hit(kind):
                self._injector.record(fault, "a line is cut")
                self._is_complete = False
                with self._faulty_path.open("a") as file:
                    file.write("\n" + json.dumps(entries[0])[:-3])
                if kind == TORN:
                    self._gate.kill_at = self._gate.calls
                    self._gate.pass_through("in the middle of a line of the journal")
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._faulty_path))
        super()._append(entries, sync=sync)
        self._gate.pass_through("appended to the journal")

    def _compact(self) -> None:
        self._gate.pass_through("compact the journal")
        if fault := self._injector.hit(FULL):
            self._injector.record(fault, "the journal cannot be compacted")
            self._is_complete = False
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._faulty_path))
        super()._compact()
        self._gate.pass_through("compacted the journal")


def rewrite_knobs(node: SimulatedNode, injector: FaultInjector, fault: Fault) -> None:
    """Let the kubelet write its own values to some knobs that have another one."""
    for ref in list(node.expected):
        is_ours = node.tree.knob_files.read(ref) != node.expected[ref]
        if ref.path and is_ours and injector.rng(fault).random() < fault.share:
            injector.record(fault, str(ref))
            node.rewrite(ref)

"""Make the node hold the decided values, and restore the originals of knobs that are no longer decided.

Everything in the journal that was not decided in a round is restored. A disabled strategy, a deleted policy,
the end of the agent and its start after a crash are therefore the same case.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType

import structlog

from trimtab.node.arbiter.host_knobs import CACHE_SHARES
from trimtab.node.arbiter.requests import KnobRef
from trimtab.node.arbiter.value_order import Value
from trimtab.node.cgroups import CgroupNotFound, CgroupVersion
from trimtab.node.cgroups.knobs import CPUSET_CPUS
from trimtab.node.executor.baseline import Baseline
from trimtab.node.executor.knob_files import KnobFiles
from trimtab.node.executor.write_order import order_writes
from trimtab.node.restore_journal import RestoreJournal
from trimtab.timing import is_recent

RECHECK_SECONDS = 10.0
"""The seconds after which a value is read again, in case another process wrote it.

The kubelet sets the weights of its QoS cgroups once a minute and for every new pod, and systemd, which may do this for
the kubelet, rewrites their quotas as well.
"""


log = structlog.get_logger(__name__)


@dataclass
class WriteResult:
    """The result of a round."""

    written: list[tuple[KnobRef, Value]] = field(default_factory=list)
    """The written values; in a dry run, those that would have been written."""
    restored: list[KnobRef] = field(default_factory=list)
    rejected: dict[KnobRef, str] = field(default_factory=dict)
    """The knobs that could not be journaled, that the kernel rejected, or that hold another value."""


class Executor:
    """The only writer of knobs."""

    def __init__(self, files: KnobFiles, journal: RestoreJournal, *, dry_run: bool = False) -> None:
        self._files = files
        self._journal = journal
        self._dry_run = dry_run
        self._last_seen: dict[KnobRef, tuple[Value, float]] = {}

    def apply(
        self,
        decided: Mapping[KnobRef, Value],
        *,
        now: float,
        external_values: Mapping[KnobRef, Value] = MappingProxyType({}),
    ) -> WriteResult:
        """Write differences and restore undecided knobs; `external_values` are values that others set."""
        done = WriteResult()
        wanted = {ref: self._files.normalize(ref, value) for ref, value in decided.items()}
        present = self._read_current({**self._find_restorable(wanted), **wanted}, now, external_values)
        stale = {ref: before for ref, before in self._journal.originals.items() if ref not in wanted}
        back = self._find_restorable(wanted)
        goal = {ref: value for ref, value in {**wanted, **back}.items() if ref in present}
        if not self._dry_run:
            new = self._find_new_originals({ref: goal[ref] for ref in wanted if ref in goal})
            try:
                self._journal.record_originals(new)
            except OSError as error:  # for example a full disk: known originals are still restored
                done.rejected |= dict.fromkeys(new, f"cannot be written to the journal: {error.strerror}")
                goal = {ref: value for ref, value in goal.items() if ref not in new}
        for ref, value in order_writes(goal, present):
            self._write(ref, value, done, now)
        for ref, value in goal.items():
            self._read_back(ref, value, done, now)
        self._drop_restored(stale, wanted, present, done)
        return done

    def release(self, *, now: float) -> WriteResult:
        """Restore everything."""
        self.adopt()
        return self.apply({}, now=now)

    def adopt(self) -> None:
        """Record children that cgroup v1 created with the reduced CPUs of their parents."""
        if self._dry_run or self._files.version is not CgroupVersion.V1:
            return
        world, found = self.build_baseline(), dict[KnobRef, Value | None]()
        squeezed = [ref for ref in self._journal.originals if ref.knob == CPUSET_CPUS]
        for parent in squeezed:
            for child in (KnobRef(path, CPUSET_CPUS) for path in world.children(parent.path)):
                before = None if child in self._journal.originals else world.value(child)
                if before is not None and before != self._files.read(child):
                    found[child] = before
                    squeezed.append(child)
        with suppress(OSError):  # a full disk must not prevent restoring known originals
            self._journal.record_originals(found)

    def assign_tasks(self, tasks_by_group: Mapping[str, frozenset[int]]) -> None:
        """Move threads into resctrl groups."""
        for name, threads in tasks_by_group.items():
            if threads and not self._dry_run and self._files.can_create(KnobRef(name, CACHE_SHARES)):
                self._files.assign_tasks(name, threads)

    def read_knob(self, ref: KnobRef) -> Value | None:
        """Return the current value of a knob."""
        return self._files.read(ref)

    def build_baseline(self) -> Baseline:
        """Return the node as it would be without the agent."""
        return Baseline(self._files, self._journal.originals)

    # The steps of a round.

    def _find_restorable(self, wanted: Mapping[KnobRef, Value]) -> dict[KnobRef, Value]:
        """Return the originals to restore, of knobs that existed."""
        originals = self._journal.originals.items()
        return {ref: before for ref, before in originals if ref not in wanted and before is not None}

    def _read_current(
        self, goal: Mapping[KnobRef, Value], now: float, external_values: Mapping[KnobRef, Value]
    ) -> dict[KnobRef, Value]:
        """Return the current values, without missing knobs; record values that others have set."""
        present: dict[KnobRef, Value] = {}
        for ref, value in goal.items():
            seen, when = self._last_seen.get(ref, (None, float("-inf")))
            if seen == value and (self._dry_run or is_recent(when, now, within=RECHECK_SECONDS)):
                present[ref] = value
            elif (held := self._files.read(ref)) is not None:
                is_anothers = external_values.get(ref) == held or self._is_foreign_value(ref, held, seen)
                if is_anothers and not self._dry_run and self._journal.originals.get(ref, held) != held:
                    self._journal.update_original(ref, held)
                present[ref] = held
                self._last_seen[ref] = (held, now)
            elif self._files.can_create(ref):
                present[ref] = {}
        return present

    def _is_foreign_value(self, ref: KnobRef, held: Value, seen: Value | None) -> bool:
        """Return whether another process wrote the value of a knob that this or the previous agent wrote."""
        before, written = self._journal.originals.get(ref), self._journal.written.get(ref, ())
        if before is None:
            return False
        return held != seen if seen is not None else bool(written) and held not in (before, *written)

    def _find_new_originals(self, wanted: Mapping[KnobRef, Value]) -> dict[KnobRef, Value | None]:
        """Return the originals of knobs that are about to change and are not in the journal."""
        world = self.build_baseline()
        new = {ref: world.value(ref) for ref in wanted if ref not in self._journal.originals}
        return {ref: before for ref, before in new.items() if before != wanted[ref]}

    def _write(self, ref: KnobRef, value: Value, done: WriteResult, now: float) -> None:
        if self._dry_run:
            done.written.append((ref, value))
            log.info("executor.would_write", knob=str(ref), value=value)
            self._last_seen[ref] = (value, now)  # log each value once
            return
        self._last_seen.pop(ref, None)
        try:
            self._journal.record_write(ref, value)
            self._files.write(ref, value)
            done.written.append((ref, value))
        except CgroupNotFound:
            pass
        except OSError as error:
            done.rejected[ref] = f"{value}: {error.strerror}"

    def _remove(self, ref: KnobRef, done: WriteResult) -> None:
        try:
            self._files.remove(ref)
        except OSError as error:
            done.rejected[ref] = f"cannot be removed: {error.strerror}"

    def _read_back(self, ref: KnobRef, value: Value, done: WriteResult, now: float) -> None:
        if self._dry_run or ref in self._last_seen:
            return
        held = self._files.read(ref)
        if held == value:
            self._last_seen[ref] = (value, now)
        elif held is not None:
            self._journal.record_write(ref, held)
            done.rejected.setdefault(ref, f"wrote {value}, but the kernel holds {held}")

    def _drop_restored(
        self,
        stale: Mapping[KnobRef, Value | None],
        wanted: Mapping[KnobRef, Value],
        present: Mapping[KnobRef, Value],
        done: WriteResult,
    ) -> None:
        """Remove restored and vanished knobs from the journal."""
        gone = wanted.keys() - present.keys()
        if not self._dry_run:
            for ref, before in stale.items():
                if before is None:
                    self._remove(ref, done)
            over = [ref for ref in stale if ref not in done.rejected]
            done.restored += [ref for ref in over if ref in present or stale[ref] is None]
            self._journal.drop([*over, *gone])
        kept = wanted.keys() | self._journal.originals.keys()
        self._last_seen = {
            ref: seen for ref, seen in self._last_seen.items() if ref in kept and ref not in gone
        }

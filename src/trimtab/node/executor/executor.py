"""Make the node hold the decided values, and restore the originals of knobs that are no longer decided.

Everything in the journal that was not decided in a round is restored. A disabled strategy, a deleted policy,
the end of the agent and its start after a crash are therefore the same case.

Writes are ordered so that a child never allows more than its parent. Growing values come first, top down, each to the
maximum or union of current and wanted. Shrinking values follow, bottom up, to the exact value. In one cgroup a quota
grows before its burst and shrinks after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType

import structlog

from trimtab.node.arbiter.host_knobs import CACHE_SHARES
from trimtab.node.arbiter.requests import KnobRef
from trimtab.node.arbiter.value_order import Value, join
from trimtab.node.cgroups import CgroupNotFound, CgroupVersion
from trimtab.node.cgroups.knobs import CPU_BURST, CPUSET_CPUS
from trimtab.node.executor.baseline import Baseline
from trimtab.node.executor.knob_files import KnobFiles
from trimtab.node.restore_journal import RestoreJournal
from trimtab.timing import is_recent

KnobWrite = tuple[KnobRef, Value]


def order_writes(wanted: Mapping[KnobRef, Value], now: Mapping[KnobRef, Value]) -> list[KnobWrite]:
    """Return the writes from the current to the wanted values; none for equal ones."""
    spots = sorted((ref for ref in wanted if wanted[ref] != now[ref]), key=_depth_key)
    # A value that neither grows nor shrinks, such as CPUs 0-3 that become 2-5, first becomes the union: a child
    # on either side stays within its parent at every moment, and cgroup v1 rejects a write that breaks this.
    growing = {ref: join(now[ref], wanted[ref]) for ref in spots}
    return [(ref, growing[ref]) for ref in spots if growing[ref] != now[ref]] + [
        (ref, wanted[ref]) for ref in reversed(spots) if growing[ref] != wanted[ref]
    ]


def _depth_key(ref: KnobRef) -> tuple[int, bool, tuple[str, str]]:
    return ref.depth, ref.knob == CPU_BURST, ref.key


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
        # Read again: _read_current may have replaced originals by values that the kubelet wrote meanwhile.
        # Restoring the older original would undo a resize that nobody writes a second time.
        back = self._find_restorable(wanted)
        # A knob without a current value is in a cgroup that is gone: its container ended.
        goal = {ref: value for ref, value in {**wanted, **back}.items() if ref in present}
        if not self._dry_run:
            # A write without a durable original could not be restored after a crash, so a knob whose original
            # cannot be recorded is not written. The others go on: on a full disk, each new pod would otherwise
            # keep all knobs as they are, and nothing would be restored.
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
        # cgroup v1 creates a child with the CPUs of its parent at that time, so a container that started under
        # a reduced parent keeps the few CPUs for ever, also when the parent has all of them back.
        if self._dry_run or self._files.version is not CgroupVersion.V1:
            return
        world, found = self.build_baseline(), dict[KnobRef, Value | None]()
        squeezed = [ref for ref in self._journal.originals if ref.knob == CPUSET_CPUS]
        # The list grows while it is read, so that grandchildren are found too.
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
            # Without resctrl in the kernel the group's directory does not exist, and a thread cannot be moved.
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
        # The kernel rounds and clips without an error, so only a read shows what a write did.
        for ref, value in goal.items():
            last_value, when = self._last_seen.get(ref, (None, float("-inf")))
            # Reading every knob in every round would cost more CPU than all decisions. A dry run keeps what it
            # would have written: compared with the kernel, the value would be logged in every round.
            if last_value == value and (self._dry_run or is_recent(when, now, within=RECHECK_SECONDS)):
                present[ref] = value
            elif (current := self._files.read(ref)) is not None:
                # A container that is resized to just the value that we raised it to looks unchanged. Without
                # the values that the kubelet is known to write, the agent would restore the former limit, and
                # nobody would write the new one again.
                is_anothers = external_values.get(ref) == current or self._is_foreign_value(
                    ref, current, last_value
                )
                if is_anothers and not self._dry_run and self._journal.originals.get(ref, current) != current:
                    self._journal.update_original(ref, current)
                elif last_value is None and not self._dry_run and not self._journal.knew_written:
                    # For the agent after this one, which trusts the journal as soon as it is complete again.
                    self._journal.record_write(ref, current)
                present[ref] = current
                self._last_seen[ref] = (current, now)
            # Only resctrl groups: their directory appears with the first write.
            elif self._files.can_create(ref):
                present[ref] = {}
        return present

    def _is_foreign_value(self, ref: KnobRef, current: Value, last_value: Value | None) -> bool:
        """Return whether another process wrote the value of a knob that this or the previous agent wrote."""
        before, written = self._journal.originals.get(ref), self._journal.written.get(ref, ())
        if before is None:
            return False
        # After a restart of the agent there is no last read value. What the journal says was written, and the
        # original, are then ours; anything else came from another process while no agent ran, unless the disk was
        # too full to record what was written.
        if last_value is not None:
            return current != last_value
        return self._journal.knew_written and bool(written) and current not in (before, *written)

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
        # The write may fail half-way, so that the last read value is not known any more.
        self._last_seen.pop(ref, None)
        try:
            # Recorded before the write: if the agent dies between the two, the next one still knows the value
            # as its own.
            self._journal.record_write(ref, value)
            self._files.write(ref, value)
            done.written.append((ref, value))
        # The container ended between reading and writing, which is normal and needs no message.
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
        # Already compared in this round, or unchanged for less than RECHECK_SECONDS.
        if self._dry_run or ref in self._last_seen:
            return
        current = self._files.read(ref)
        if current == value:
            self._last_seen[ref] = (value, now)
        elif current is not None:
            # What the kernel made of our value counts as ours. Otherwise the next round would take it for
            # another process's value and keep it as the original.
            self._journal.record_write(ref, current)
            done.rejected.setdefault(ref, f"wrote {value}, but the kernel holds {current}")

    def _drop_restored(
        self,
        stale: Mapping[KnobRef, Value | None],
        wanted: Mapping[KnobRef, Value],
        present: Mapping[KnobRef, Value],
        done: WriteResult,
    ) -> None:
        """Remove restored and vanished knobs from the journal."""
        # Entries of ended containers go: pod UIDs are never used again, so nothing can be restored there.
        gone = wanted.keys() - present.keys()
        if not self._dry_run:
            for ref, before in stale.items():
                if before is None:
                    self._remove(ref, done)
            # A knob that could not be restored stays in the journal and is tried again in the next round.
            over = [ref for ref in stale if ref not in done.rejected]
            done.restored += [ref for ref in over if ref in present or stale[ref] is None]
            self._journal.drop([*over, *gone])
        kept = wanted.keys() | self._journal.originals.keys()
        self._last_seen = {
            ref: last_value for ref, last_value in self._last_seen.items() if ref in kept and ref not in gone
        }

"""The original value of each knob, on disk before the agent first writes it, so that all can be restored.

The file is append-only and synced before a knob is written. A last line torn by a crash is ignored, because
the write it precedes cannot have happened. The file is compacted when most of it is obsolete. It begins with
the boot id: after another boot the kernel has reset everything.

Written values are recorded too, so that the next agent can distinguish them from values that another process,
such as the kubelet, wrote while no agent ran. On a full disk a value is written without a record, because knobs with a
recorded original can be restored in any case; the file is compacted once there is space. Until then the file beside
the journal is missing that says that all written values are known: to delete it needs no space.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

from trimtab.atomic_write import fsync_path
from trimtab.node.arbiter.host_knobs import ALL_KNOBS
from trimtab.node.arbiter.requests import KnobRef, Value
from trimtab.timing import LogOnce

log = structlog.get_logger(__name__)

SPARE_LINES = 256
"""The spare lines, beyond three per entry, before the file is compacted."""


def read_boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class RestoreJournal:
    """The originals by knob, which are the knobs to restore."""

    def __init__(self, path: Path, *, boot: str) -> None:
        self._path = path
        self._boot = boot
        path.parent.mkdir(parents=True, exist_ok=True)
        self._originals, self._written = _read(path, boot)
        self._known_mark = path.with_suffix(".known")
        self._knew_written = self._known_mark.exists()
        self._lines = 0
        self._is_complete = False
        """Set if the file is of this boot and complete; only a new record needs disk space."""
        self._failures = LogOnce()

    @property
    def originals(self) -> Mapping[KnobRef, Value | None]:
        """Return the originals; None for a knob that did not exist and is removed when restored."""
        return self._originals

    @property
    def written(self) -> Mapping[KnobRef, tuple[Value, ...]]:
        """Return the last two values that were written, or about to be, per knob."""
        return self._written

    @property
    def knew_written(self) -> bool:
        """Return whether the journal of the previous agent names every value that it wrote."""
        return self._knew_written

    def record_write(self, ref: KnobRef, value: Value) -> None:
        """Record an imminent write; not synced, because a reboot makes it obsolete."""
        # Only values that are not known: a knob that the kernel rejects would otherwise add two lines each
        # second.
        if value not in (self._originals.get(ref, value), *self._written.get(ref, ())[-1:]):
            self._written[ref] = (*self._written.get(ref, ())[-1:], value)
            if not self._write_entries([{"ours": _encode_entry(ref, value)}], sync=False):
                # Otherwise the next agent would take the value for another process's, and keep it as the original.
                with suppress(OSError):
                    self._known_mark.unlink(missing_ok=True)

    def record_originals(self, originals: Mapping[KnobRef, Value | None]) -> None:
        """Record originals durably; known ones are kept. Raise OSError if that fails."""
        new = {ref: value for ref, value in originals.items() if ref not in self._originals}
        if new:
            # The first record after a start rewrites the file: it may be of another boot, or end in a line torn
            # by a crash.
            if not self._is_complete:
                self._compact()
            self._append([_encode_entry(ref, value) for ref, value in new.items()])
            self._originals |= new

    def update_original(self, ref: KnobRef, value: Value) -> None:
        """Replace an original, because another process wrote the knob while it was held."""
        # In memory at once, on disk when possible: on a full disk the value is still restored while this agent
        # lives.
        self._originals[ref] = value
        self._write_entries([_encode_entry(ref, value)])

    def drop(self, refs: Iterable[KnobRef]) -> None:
        """Drop knobs that were restored or are gone."""
        known = [ref for ref in refs if ref in self._originals]
        for ref in known:
            del self._originals[ref]
            self._written.pop(ref, None)
        if known:
            self._write_entries([[*ref.key] for ref in known])

    def _write_entries(self, entries: Sequence[Any], *, sync: bool = True) -> bool:
        """Append entries, or compact an incomplete or oversized file; return False if the disk is full, to retry later."""
        try:
            # Compact only when most lines are obsolete, so that a busy node does not rewrite the file every
            # second.
            if self._is_complete and self._lines <= SPARE_LINES + 3 * len(self._originals):
                self._append(entries, sync=sync)
            else:
                self._compact()
        except OSError as error:
            # Once, not each second until the disk has space.
            if self._failures.is_new("write failed"):
                log.warning("journal.write_failed", path=str(self._path), error=error.strerror)
        if self._is_complete:
            self._failures.clear()
        return self._is_complete

    def _append(self, entries: Sequence[Any], *, sync: bool = True) -> None:
        # If writing fails in the middle, the next call has to compact instead of appending to half a line.
        self._is_complete = False  # until all of it is there
        with self._path.open("a") as file:
            # Each entry starts a new line, so that one truncated by a full disk does not corrupt the next.
            file.writelines(f"\n{json.dumps(entry)}" for entry in entries)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        self._lines, self._is_complete = self._lines + len(entries), True

    def _compact(self) -> None:
        entries: list[Any] = [
            {"boot": self._boot},
            *(_encode_entry(ref, value) for ref, value in self._originals.items()),
            *(
                {"ours": _encode_entry(ref, value)}
                for ref, values in self._written.items()
                for value in values
            ),
        ]
        self._is_complete = False
        # Written beside the file and moved: a crash in the middle must leave the old journal, or knobs stay
        # changed for ever.
        part = self._path.with_suffix(".part")
        with part.open("w") as file:
            file.writelines(f"{json.dumps(entry)}\n" for entry in entries)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self._path)
        # Without it, the rename itself may be lost with the machine.
        fsync_path(self._path.parent)
        self._known_mark.touch()
        self._lines, self._is_complete = len(entries), True


def _encode_entry(ref: KnobRef, value: Value | None) -> list[Any]:
    return [*ref.key, sorted(value) if isinstance(value, frozenset) else _to_plain(value)]


def _to_plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def _read(path: Path, boot: str) -> tuple[dict[KnobRef, Value | None], dict[KnobRef, tuple[Value, ...]]]:
    originals: dict[KnobRef, Value | None] = {}
    written: dict[KnobRef, tuple[Value, ...]] = {}
    head, *lines = path.read_text(errors="replace").split("\n") if path.exists() else [""]
    # After a reboot all cgroups are new, and restoring old values would write into cgroups that only share a
    # path.
    if _parse_line(head) != {"boot": boot}:
        return {}, {}
    for line in lines:
        # Unknown knobs and damaged lines are skipped: a journal of a newer or older agent must not keep this
        # one from starting.
        match _parse_line(line):
            case [str(place), str(name), value] if name in ALL_KNOBS:
                originals[KnobRef(place, ALL_KNOBS[name])] = _decode_value(value)
            case [str(place), str(name)] if name in ALL_KNOBS:
                ref = KnobRef(place, ALL_KNOBS[name])
                originals.pop(ref, None)
                written.pop(ref, None)
            case {"ours": [str(place), str(name), value]} if name in ALL_KNOBS:
                ref = KnobRef(place, ALL_KNOBS[name])
                written[ref] = (*written.get(ref, ())[-1:], _decode_value(value))
    return originals, written


def _decode_value(plain: Any) -> Any:
    return frozenset(plain) if isinstance(plain, list) else plain


def _parse_line(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None

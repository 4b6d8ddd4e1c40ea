"""What each knob held before the agent first wrote it, on disk before it does: so that no trace is left of it.

An append-only file, synced before a write to a knob may follow; the last line may be torn by a crash and is then
ignored, since the write that it was for cannot have happened. It is written anew when most of it is out of date. It
begins with the boot that it is of: after another boot the kernel has forgotten all, and there is nothing to restore.

What the agent writes is noted too, so that its next life can tell what it left from what somebody else, such as the
kubelet, wrote while there was no agent. On a disk that is full that has to wait: whose original is kept can be squeezed
further and let go all the same, and the file is written anew as soon as there is room.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog

from trimtab.atomic_write import sync
from trimtab.node.arbiter.host_knobs import ALL
from trimtab.node.arbiter.requests import Spot, Value

log = structlog.get_logger(__name__)

SPARE_LINES = 256
"""How many lines beyond three an entry before the file is written anew."""


def this_boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


class Journal:
    """The originals, by knob. What it holds is what is to be restored."""

    def __init__(self, path: Path, *, boot: str) -> None:
        self._path = path
        self._boot = boot
        path.parent.mkdir(parents=True, exist_ok=True)
        self._originals, self._written = _read(path, boot)
        self._lines = 0
        self._is_begun = False
        """Whether the file is of this boot and has all that is known: only who has something to note needs room on a disk."""
        self._is_told = False

    @property
    def originals(self) -> Mapping[Spot, Value | None]:
        """None for what was not there before us, and goes away when it is restored."""
        return self._originals

    @property
    def written(self) -> Mapping[Spot, tuple[Value, ...]]:
        """What we last wrote to those, or were about to, and what before that."""
        return self._written

    def wrote(self, spot: Spot, value: Value) -> None:
        """About to write this to a knob whose original is kept. Not synced: what ends a boot ends its worth."""
        if value not in (self._originals.get(spot, value), *self._written.get(spot, ())[-1:]):
            self._written[spot] = (*self._written.get(spot, ())[-1:], value)
            self._note([{"ours": _entry(spot, value)}], sync=False)

    def keep(self, originals: Mapping[Spot, Value | None]) -> None:
        """Record these for good; those that are known already keep what they have. OSError where that cannot be."""
        new = {spot: value for spot, value in originals.items() if spot not in self._originals}
        if new:
            if not self._is_begun:
                self._compact()
            self._append([_entry(spot, value) for spot, value in new.items()])
            self._originals |= new

    def revise(self, spot: Spot, value: Value) -> None:
        """Somebody else wrote a knob that we hold: that is what it is to go back to now."""
        self._originals[spot] = value
        self._note([_entry(spot, value)])

    def drop(self, spots: Iterable[Spot]) -> None:
        """These are restored, or gone."""
        known = [spot for spot in spots if spot in self._originals]
        for spot in known:
            del self._originals[spot]
            self._written.pop(spot, None)
        if known:
            self._note([[*spot.key] for spot in known])

    def _note(self, entries: Sequence[Any], *, sync: bool = True) -> None:
        """What is known by now, or all of it where the file lacks something or has too much; later, where there is no room."""
        try:
            if self._is_begun and self._lines <= SPARE_LINES + 3 * len(self._originals):
                self._append(entries, sync=sync)
            else:
                self._compact()
        except OSError as error:
            if not self._is_told:
                log.warning("journal.not_written", path=str(self._path), error=error.strerror)
        self._is_told = not self._is_begun

    def _append(self, entries: Sequence[Any], *, sync: bool = True) -> None:
        self._is_begun = False  # until all of it is there
        with self._path.open("a") as file:
            # Each begins a line of its own: one that a full disk has cut short must not take the next along.
            file.writelines(f"\n{json.dumps(entry)}" for entry in entries)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        self._lines, self._is_begun = self._lines + len(entries), True

    def _compact(self) -> None:
        entries: list[Any] = [
            {"boot": self._boot},
            *(_entry(spot, value) for spot, value in self._originals.items()),
            *({"ours": _entry(spot, value)} for spot, values in self._written.items() for value in values),
        ]
        self._is_begun = False
        part = self._path.with_suffix(".part")
        with part.open("w") as file:
            file.writelines(f"{json.dumps(entry)}\n" for entry in entries)
            file.flush()
            os.fsync(file.fileno())
        part.replace(self._path)
        sync(self._path.parent)
        self._lines, self._is_begun = len(entries), True


def _entry(spot: Spot, value: Value | None) -> list[Any]:
    return [*spot.key, sorted(value) if isinstance(value, frozenset) else _plain(value)]


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def _read(path: Path, boot: str) -> tuple[dict[Spot, Value | None], dict[Spot, tuple[Value, ...]]]:
    originals: dict[Spot, Value | None] = {}
    written: dict[Spot, tuple[Value, ...]] = {}
    head, *lines = path.read_text(errors="replace").split("\n") if path.exists() else [""]
    if _parsed(head) != {"boot": boot}:
        return {}, {}
    for line in lines:
        match _parsed(line):
            case [str(place), str(name), value] if name in ALL:
                originals[Spot(place, ALL[name])] = _value(value)
            case [str(place), str(name)] if name in ALL:
                spot = Spot(place, ALL[name])
                originals.pop(spot, None)
                written.pop(spot, None)
            case {"ours": [str(place), str(name), value]} if name in ALL:
                spot = Spot(place, ALL[name])
                written[spot] = (*written.get(spot, ())[-1:], _value(value))
    return originals, written


def _value(plain: Any) -> Any:
    return frozenset(plain) if isinstance(plain, list) else plain


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None

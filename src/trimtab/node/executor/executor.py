"""Makes the node hold what was decided, and what it held before as soon as that is no longer decided.

Whoever stops wishing need not say so: what is in the journal and was not decided this round is restored. So a strategy
that is switched off, a policy that is deleted, the end of the agent and its start after a crash all are one case.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType

import structlog

from trimtab.node.arbiter.host_knobs import CACHE_SHARES
from trimtab.node.arbiter.requests import Spot
from trimtab.node.arbiter.value_order import Value
from trimtab.node.cgroups import Vanished, Version
from trimtab.node.cgroups.knobs import CPUSET_CPUS
from trimtab.node.executor.baseline import Undisturbed
from trimtab.node.executor.knob_files import Surface
from trimtab.node.executor.write_order import order
from trimtab.node.restore_journal import Journal

LOOK_AGAIN_SECONDS = 10.0
"""After so long a value is looked at again, in case somebody else wrote it. The kubelet sets the weights of its classes
once a minute and for every new pod, and systemd, where it does that for the kubelet, writes their quotas along."""


log = structlog.get_logger(__name__)


@dataclass
class Done:
    """What came of a round."""

    written: list[tuple[Spot, Value]] = field(default_factory=list)
    """In dry-run: what would have been."""
    restored: list[Spot] = field(default_factory=list)
    refused: dict[Spot, str] = field(default_factory=dict)
    """What cannot be noted first, what the kernel did not take, and what it took but holds otherwise."""


class Executor:
    """The only one who writes."""

    def __init__(self, surface: Surface, journal: Journal, *, dry_run: bool = False) -> None:
        self._surface = surface
        self._journal = journal
        self._dry_run = dry_run
        self._seen: dict[Spot, tuple[Value, float]] = {}

    def apply(
        self, decided: Mapping[Spot, Value], *, now: float, told: Mapping[Spot, Value] = MappingProxyType({})
    ) -> Done:
        """Write what differs, restore what is no longer decided. `told` is what knobs would hold by the word of others."""
        done = Done()
        wanted = {spot: self._surface.normal(spot, value) for spot, value in decided.items()}
        present = self._present({**self._restorable(wanted), **wanted}, now, told)
        stale = {spot: before for spot, before in self._journal.originals.items() if spot not in wanted}
        back = self._restorable(wanted)
        goal = {spot: value for spot, value in {**wanted, **back}.items() if spot in present}
        if not self._dry_run:
            new = self._disturbed({spot: goal[spot] for spot in wanted if spot in goal})
            try:
                self._journal.keep(new)
            except OSError as error:  # as where a disk is full: what is known goes back all the same
                done.refused |= dict.fromkeys(new, f"cannot be noted: {error.strerror}")
                goal = {spot: value for spot, value in goal.items() if spot not in new}
        for spot, value in order(goal, present):
            self._write(spot, value, done, now)
        for spot, value in goal.items():
            self._read_back(spot, value, done, now)
        self._forget(stale, wanted, present, done)
        return done

    def release(self, *, now: float) -> Done:
        """Restore everything."""
        self.adopt()
        return self.apply({}, now=now)

    def adopt(self) -> None:
        """Take those for ours that cgroup v1 has made meanwhile with the CPUs that we had left their parents."""
        if self._dry_run or self._surface.version is not Version.V1:
            return
        world, found = self.world(), dict[Spot, Value | None]()
        squeezed = [spot for spot in self._journal.originals if spot.knob == CPUSET_CPUS]
        for parent in squeezed:
            for child in (Spot(path, CPUSET_CPUS) for path in world.children(parent.path)):
                before = None if child in self._journal.originals else world.value(child)
                if before is not None and before != self._surface.read(child):
                    found[child] = before
                    squeezed.append(child)
        with suppress(OSError):  # a disk that is full keeps nobody from getting back what is known
            self._journal.keep(found)

    def enlist(self, members: Mapping[str, frozenset[int]]) -> None:
        """Put threads into classes of resctrl."""
        for name, threads in members.items():
            if threads and not self._dry_run and self._surface.can_make(Spot(name, CACHE_SHARES)):
                self._surface.enlist(name, threads)

    def held(self, spot: Spot) -> Value | None:
        """What a knob holds now."""
        return self._surface.read(spot)

    def world(self) -> Undisturbed:
        """The node as it would be without us, for the arbiter to look at once."""
        return Undisturbed(self._surface, self._journal.originals)

    # A round, step by step.

    def _restorable(self, wanted: Mapping[Spot, Value]) -> dict[Spot, Value]:
        """What is to be as it was, and was something."""
        originals = self._journal.originals.items()
        return {spot: before for spot, before in originals if spot not in wanted and before is not None}

    def _present(
        self, goal: Mapping[Spot, Value], now: float, told: Mapping[Spot, Value]
    ) -> dict[Spot, Value]:
        """What these hold now. What is gone is left out; what is no longer what we wrote, somebody else has set."""
        present: dict[Spot, Value] = {}
        for spot, value in goal.items():
            seen, when = self._seen.get(spot, (None, 0.0))
            if seen == value and (self._dry_run or now - when < LOOK_AGAIN_SECONDS):
                present[spot] = value
            elif (held := self._surface.read(spot)) is not None:
                is_anothers = told.get(spot) == held or self._is_anothers(spot, held, seen)
                if is_anothers and not self._dry_run and self._journal.originals.get(spot, held) != held:
                    self._journal.revise(spot, held)
                present[spot] = held
                self._seen[spot] = (held, now)
            elif self._surface.can_make(spot):
                present[spot] = {}
        return present

    def _is_anothers(self, spot: Spot, held: Value, seen: Value | None) -> bool:
        """Whether somebody else wrote what a knob holds that we have written, in this life or, not seen yet, the last."""
        before, written = self._journal.originals.get(spot), self._journal.written.get(spot, ())
        if before is None:
            return False
        return held != seen if seen is not None else bool(written) and held not in (before, *written)

    def _disturbed(self, wanted: Mapping[Spot, Value]) -> dict[Spot, Value | None]:
        """What is about to differ from what it would be without us, and is not known to yet."""
        world = self.world()
        new = {spot: world.value(spot) for spot in wanted if spot not in self._journal.originals}
        return {spot: before for spot, before in new.items() if before != wanted[spot]}

    def _write(self, spot: Spot, value: Value, done: Done, now: float) -> None:
        if self._dry_run:
            done.written.append((spot, value))
            log.info("executor.would_write", spot=str(spot), value=value)
            self._seen[spot] = (value, now)  # told once, and again when it is another
            return
        self._seen.pop(spot, None)
        try:
            self._journal.wrote(spot, value)
            self._surface.write(spot, value)
            done.written.append((spot, value))
        except Vanished:
            pass
        except OSError as error:
            done.refused[spot] = f"{value}: {error.strerror}"

    def _remove(self, spot: Spot, done: Done) -> None:
        try:
            self._surface.remove(spot)
        except OSError as error:
            done.refused[spot] = f"cannot be removed: {error.strerror}"

    def _read_back(self, spot: Spot, value: Value, done: Done, now: float) -> None:
        if self._dry_run or spot in self._seen:
            return
        held = self._surface.read(spot)
        if held == value:
            self._seen[spot] = (value, now)
        elif held is not None:
            self._journal.wrote(spot, held)
            done.refused.setdefault(spot, f"{value} was written and {held} is there")

    def _forget(
        self,
        stale: Mapping[Spot, Value | None],
        wanted: Mapping[Spot, Value],
        present: Mapping[Spot, Value],
        done: Done,
    ) -> None:
        """Keep nothing of what is restored, and nothing of what is gone."""
        gone = wanted.keys() - present.keys()
        if not self._dry_run:
            for spot, before in stale.items():
                if before is None:
                    self._remove(spot, done)
            over = [spot for spot in stale if spot not in done.refused]
            done.restored += [spot for spot in over if spot in present or stale[spot] is None]
            self._journal.drop([*over, *gone])
        kept = wanted.keys() | self._journal.originals.keys()
        self._seen = {spot: seen for spot, seen in self._seen.items() if spot in kept and spot not in gone}

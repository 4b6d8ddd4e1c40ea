"""Fault plans: which faults are injected when, drawn from a seed, and the injector that applies them.

A plan is plain data, so that a failing one can be shrunk, stored as JSON and replayed. Each fault draws from a random
generator of its own: removing one fault from a plan changes nothing about the others.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from trimtab.lab.faults.trace import RunTrace


class Fault(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One fault of a plan; times are seconds after the start of the run."""

    kind: str
    start: float
    end: float
    target: str = ""
    """The object that the fault is about, in the words of its kind: a verb, a workload, a node; empty for all."""
    share: float = 1.0
    """The probability that the fault hits a call that it could hit."""
    amount: float = 0.0
    """A number whose meaning depends on the kind."""
    seed: int = 0
    call: str = ""
    """The verb of the call with which the fault begins; empty if it begins at `start`."""
    nth: int = 1
    """The number of that call, counted from `start`. Without so many calls before `end`, the fault never begins."""
    lasts: float = 0.0
    """The seconds that a fault lasts which begins with a call, until `end` at most."""
    latest: float = 0.0
    """The time at which it begins without its call; 0 if it never does."""


class FaultDetails(msgspec.Struct, frozen=True, kw_only=True):
    """The details of a fault that its kind draws."""

    target: str = ""
    share: float = 1.0
    amount: float = 0.0
    duration: tuple[float, float] | None = None
    """The shortest and the longest time that the fault lasts; None for those of its kind."""


DrawDetails = Callable[[random.Random, Any], FaultDetails]
"""Draws the details of a fault for a world, of a cluster or of a node."""


def no_details(rng: random.Random, world: object) -> FaultDetails:
    """Draw nothing: the fault needs no details."""
    del rng, world
    return FaultDetails()


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultKind:
    """A kind of fault that the simulation can inject."""

    name: str
    sentence: str
    """One sentence for the documentation."""
    draw: DrawDetails = no_details
    duration: tuple[float, float] = (300.0, 6 * 3600.0)
    """The shortest and the longest time that it lasts, in seconds."""
    weight: float = 1.0
    """The relative frequency in drawn plans."""
    hides_usage: bool = False
    """The operator cannot know the true usage because of it; invariants about usage do not apply for a day."""
    calls: tuple[str, ...] = ()
    """The verbs of calls with one of which most faults of this kind begin: at other times they would hit nothing."""
    contract: str = "process"
    """The test that compares the fault with a real server, in `tests/`; `process` for one of our own processes."""


class FaultPlan(msgspec.Struct, frozen=True, kw_only=True):
    """All faults of a run, in order of their start."""

    faults: tuple[Fault, ...] = ()

    @property
    def end(self) -> float:
        """The time after which no fault is active."""
        return max((fault.end for fault in self.faults), default=0.0)


@dataclass(slots=True)
class _TimedFault:
    fault: Fault
    rng: random.Random
    start: float
    """Infinite while the call with which it begins has not come."""
    end: float
    calls: int = 0


class FaultInjector:
    """Answers at each port whether a fault hits, and counts those that did."""

    def __init__(self, plan: FaultPlan, *, elapsed: Callable[[], float], trace: RunTrace) -> None:
        """Create an injector; `elapsed` returns the simulated seconds since the start of the run."""
        self._elapsed = elapsed
        self._trace = trace
        self._by_kind: dict[str, list[_TimedFault]] = {}
        self._by_seed: dict[int, _TimedFault] = {}
        self._waiting: list[_TimedFault] = []
        self._listeners: list[Callable[[Fault], None]] = []
        for fault in plan.faults:
            rng = random.Random(fault.seed)  # noqa: S311 - not for secrets
            start, end = (math.inf, math.inf) if fault.call else (fault.start, fault.end)
            timed = _TimedFault(fault, rng, start, end)
            self._by_kind.setdefault(fault.kind, []).append(timed)
            self._by_seed[fault.seed] = timed
            if fault.call:
                self._waiting.append(timed)
        self.counts: Counter[str] = Counter()
        """The number of times that each kind of fault took effect."""

    def subscribe(self, listener: Callable[[Fault], None]) -> None:
        """Call the listener with each fault whose times are known: now, or once its call has come."""
        self._listeners.append(listener)
        for timed in self._by_seed.values():
            if timed.start < math.inf:
                listener(timed.fault)

    def count_call(self, verb: str, target: str = "") -> None:
        """Count a call about a target, with which faults may begin."""
        now = self._elapsed()
        for timed in list(self._waiting):
            fault = timed.fault
            if not fault.start <= now < fault.end:
                continue
            timed.calls += verb == fault.call and _is_about(target, fault)
            if timed.calls == fault.nth or (fault.latest and now >= fault.latest):
                self._waiting.remove(timed)
                timed.start, timed.end = now, min(now + fault.lasts, fault.end)
                for listener in self._listeners:
                    listener(fault)

    def period(self, fault: Fault) -> tuple[float, float]:
        """Return when a fault begins and ends; infinite for one whose call has not come."""
        timed = self._by_seed[fault.seed]
        return timed.start, timed.end

    def timed_plan(self) -> FaultPlan:
        """Return the faults that have begun or will, at their times."""
        return FaultPlan(
            faults=tuple(
                msgspec.structs.replace(timed.fault, start=timed.start, end=timed.end, call="")
                for timed in self._by_seed.values()
                if timed.start < math.inf
            )
        )

    def active(self, kind: str) -> list[Fault]:
        """Return the faults of this kind that are active now."""
        found = self._by_kind.get(kind)
        if not found:
            return []
        now = self._elapsed()
        return [timed.fault for timed in found if timed.start <= now < timed.end]

    def active_kinds(self) -> set[str]:
        """Return the kinds of which a fault is active now."""
        return {kind for kind in self._by_kind if self.active(kind)}

    def list_started(self, kind: str) -> list[Fault]:
        """Return the faults of this kind that are active or over."""
        found = self._by_kind.get(kind)
        now = self._elapsed()
        return [timed.fault for timed in found if timed.start <= now] if found else []

    @property
    def elapsed(self) -> float:
        """The simulated seconds since the start of the run."""
        return self._elapsed()

    def hit(self, kind: str, *targets: str) -> Fault | None:
        """Return the fault of this kind that hits a call about any of these targets now; None if there is none."""
        found = self._by_kind.get(kind)
        if not found:
            return None
        now = self._elapsed()
        for timed in found:
            fault = timed.fault
            if timed.start <= now < timed.end and (not fault.target or fault.target in targets):
                if fault.share < 1.0 and timed.rng.random() >= fault.share:
                    continue
                return fault
        return None

    def record(self, fault: Fault, detail: str) -> None:
        """Count and trace that a fault took effect."""
        self.counts[fault.kind] += 1
        self._trace.add("fault", f"{fault.kind}: {detail}", kind=fault.kind, target=fault.target)

    def rng(self, fault: Fault) -> random.Random:
        """Return the random generator of a fault."""
        return self._by_seed[fault.seed].rng


def _is_about(target: str, fault: Fault) -> bool:
    """Return whether a call about a target is one with which a fault may begin.

    A fault of one workload begins in the middle of a change of that workload; others with any call.
    """
    return "/" not in fault.target or target.split(" pod ", maxsplit=1)[0] == fault.target


CALLED_SHARE = 0.7
"""The share of faults that begin with a call, among those of kinds with `calls`."""
DEALT_PER_SEED = 50
"""The faults of a seed, as many as this, are dealt from a shuffled deck, so that consecutive seeds have all kinds."""


def draw_plan(
    kinds: Sequence[FaultKind], world: object, *, seed: int, count: int, window: tuple[float, float]
) -> FaultPlan:
    """Draw this many faults of these kinds, all within a window of the run."""
    rng = random.Random(f"plan/{seed}")  # noqa: S311 - not for secrets
    begin, end = window
    faults = []
    for kind in _draw_kinds(kinds, rng, seed=seed, count=count):
        details = kind.draw(rng, world)
        shortest, longest = details.duration or kind.duration
        # Short faults are as likely as long ones: many defects need an exact moment, others a long outage.
        lasts = shortest * (longest / shortest) ** rng.random() if shortest else 0.0
        fault = Fault(
            kind=kind.name,
            start=round(rng.uniform(begin, end), 1),
            end=end,
            target=details.target,
            share=details.share,
            amount=details.amount,
            seed=rng.randrange(1 << 30),
        )
        if kind.calls and rng.random() < CALLED_SHARE:
            fault = msgspec.structs.replace(
                fault,
                start=begin,
                call=details.target if details.target in kind.calls else rng.choice(kind.calls),
                # A change of one workload has few calls.
                nth=rng.choice([1, 1, 2, 3] if "/" in details.target else [1, 1, 2, 3, 5, 8, 13]),
                lasts=round(max(lasts, 1.0), 1),
                latest=round(rng.uniform(begin, end), 1),
            )
        else:
            latest = max(end, fault.start + shortest)
            fault = msgspec.structs.replace(fault, end=round(min(fault.start + lasts, latest), 1))
        faults.append(fault)
    return FaultPlan(faults=tuple(sorted(faults, key=lambda fault: (fault.start, fault.kind))))


def _draw_kinds(kinds: Sequence[FaultKind], rng: random.Random, *, seed: int, count: int) -> list[FaultKind]:
    """Deal kinds from a deck that consecutive seeds share, each as often as its weight, and draw the rest."""
    deck = [kind for kind in kinds for _ in range(max(1, round(2 * kind.weight)))]
    found = []
    for place in range(seed * DEALT_PER_SEED, seed * DEALT_PER_SEED + min(count, DEALT_PER_SEED)):
        number, card = divmod(place, len(deck))
        order = random.Random(f"deck/{number}").sample(range(len(deck)), len(deck))  # noqa: S311 - not for secrets
        found.append(deck[order[card]])
    return found + rng.choices(kinds, weights=[each.weight for each in kinds], k=count - len(found))

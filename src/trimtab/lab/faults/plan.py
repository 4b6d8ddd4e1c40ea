"""Fault plans: which faults are injected when, drawn from a seed, and the injector that applies them.

A plan is plain data, so that a failing one can be shrunk, stored as JSON and replayed. Each fault draws from a random
generator of its own: removing one fault from a plan changes nothing about the others.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from trimtab.lab.faults.trace import RunTrace
from trimtab.lab.faults.worlds import WorldSpec


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


class FaultDetails(msgspec.Struct, frozen=True, kw_only=True):
    """The details of a fault that its kind draws."""

    target: str = ""
    share: float = 1.0
    amount: float = 0.0
    duration: tuple[float, float] | None = None
    """The shortest and the longest time that the fault lasts; None for those of its kind."""


DrawDetails = Callable[[random.Random, WorldSpec], FaultDetails]


def no_details(rng: random.Random, world: WorldSpec) -> FaultDetails:
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


class FaultPlan(msgspec.Struct, frozen=True, kw_only=True):
    """All faults of a run, in order of their start."""

    faults: tuple[Fault, ...] = ()

    @property
    def end(self) -> float:
        """The time after which no fault is active."""
        return max((fault.end for fault in self.faults), default=0.0)


class FaultInjector:
    """Answers at each port whether a fault hits, and counts those that did."""

    def __init__(self, plan: FaultPlan, *, elapsed: Callable[[], float], trace: RunTrace) -> None:
        """Create an injector; `elapsed` returns the simulated seconds since the start of the run."""
        self._elapsed = elapsed
        self._trace = trace
        self._by_kind: dict[str, list[tuple[Fault, random.Random]]] = {}
        for fault in plan.faults:
            rng = random.Random(fault.seed)  # noqa: S311 - not for secrets
            self._by_kind.setdefault(fault.kind, []).append((fault, rng))
        self.counts: Counter[str] = Counter()
        """The number of times that each kind of fault took effect."""

    def active(self, kind: str) -> list[Fault]:
        """Return the faults of this kind that are active now."""
        found = self._by_kind.get(kind)
        if not found:
            return []
        now = self._elapsed()
        return [fault for fault, _ in found if fault.start <= now < fault.end]

    def active_kinds(self) -> set[str]:
        """Return the kinds of which a fault is active now."""
        return {kind for kind in self._by_kind if self.active(kind)}

    def started(self, kind: str) -> list[Fault]:
        """Return the faults of this kind that are active or over."""
        found = self._by_kind.get(kind)
        now = self._elapsed()
        return [fault for fault, _ in found if fault.start <= now] if found else []

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
        for fault, rng in found:
            if fault.start <= now < fault.end and (not fault.target or fault.target in targets):
                if fault.share < 1.0 and rng.random() >= fault.share:
                    continue
                return fault
        return None

    def record(self, fault: Fault, detail: str) -> None:
        """Count and trace that a fault took effect."""
        self.counts[fault.kind] += 1
        self._trace.add("fault", f"{fault.kind}: {detail}", kind=fault.kind, target=fault.target)

    def rng(self, fault: Fault) -> random.Random:
        """Return the random generator of a fault."""
        return next(rng for each, rng in self._by_kind[fault.kind] if each is fault)


def draw_plan(
    kinds: Sequence[FaultKind], world: WorldSpec, *, seed: int, count: int, window: tuple[float, float]
) -> FaultPlan:
    """Draw this many faults of these kinds, all within a window of the run."""
    rng = random.Random(f"plan/{seed}")  # noqa: S311 - not for secrets
    begin, end = window
    faults = []
    for kind in rng.choices(kinds, weights=[each.weight for each in kinds], k=count):
        details = kind.draw(rng, world)
        shortest, longest = details.duration or kind.duration
        start = round(rng.uniform(begin, end), 1)
        # Short faults are as likely as long ones: many defects need an exact moment, others a long outage.
        lasts = shortest * (longest / shortest) ** rng.random() if shortest else 0.0
        faults.append(
            Fault(
                kind=kind.name,
                start=start,
                end=round(min(start + lasts, max(end, start + shortest)), 1),
                target=details.target,
                share=details.share,
                amount=details.amount,
                seed=rng.randrange(1 << 30),
            )
        )
    return FaultPlan(faults=tuple(sorted(faults, key=lambda fault: (fault.start, fault.kind))))

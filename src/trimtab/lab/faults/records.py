"""The records that invariants are checked on: writes of an operator process, and violations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from trimtab.actuation.change_annotations import ChangeAnnotations
from trimtab.actuation.resources import Sizes, format_sizes
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.workloads import WorkloadKey

MAX_VIOLATIONS = 20
"""The number of violations of a run that are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A write to a workload or a pod that took effect, whether or not its response arrived."""

    at: float
    process: str
    verb: str
    """The kind of write: resize, evict, patch, options, scale or annotate."""
    workload: WorkloadKey
    pod: Pod | None
    """The pod as the operator had read it; None if the workload itself was written."""
    before: Sizes
    after: Sizes
    """The requested sizes, without what admission made of them; empty if the write is about no sizes."""
    old: ChangeAnnotations | None
    """The annotations of the change before an `annotate`."""
    new: ChangeAnnotations | None
    present: Sizes | None = None
    """The sizes that the pod or the template had when a `resize` or `patch` reached the API server."""
    replicas: tuple[int, int] | None = None
    """The number of replicas before and after a `scale`."""

    def __str__(self) -> str:
        what = f"{self.verb} {self.workload}" + (f" pod {self.pod.name}" if self.pod else "")
        if self.after:
            what += f": {format_sizes(self.before)} -> {format_sizes(self.after)}"
        if self.replicas:
            what += ": {} -> {} replicas".format(*self.replicas)
        if self.verb == "annotate":
            what += f": {_describe_change(self.old)} -> {_describe_change(self.new)}"
        return what


class EmittedEvent(NamedTuple):
    """An Event about a workload that a process emitted."""

    process: str
    workload: WorkloadKey
    reason: str
    message: str


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """An invariant that did not hold."""

    invariant: str
    at: float
    """The simulated time in seconds since 1970."""
    message: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.message}"


@dataclass(slots=True, kw_only=True)
class CheckLog:
    """The evaluations of all invariants in a run, and the violations."""

    now: Callable[[], float]
    """Returns the simulated time in seconds since 1970."""
    evaluations: Counter[str] = field(default_factory=Counter)
    """The number of evaluations of each invariant."""
    violations: list[Violation] = field(default_factory=list)

    def check(self, name: str, *message: object, holds: bool) -> None:
        """Evaluate an invariant once; the parts of the message are formatted if it does not hold."""
        self.evaluations[name] += 1
        if not holds and len(self.violations) < MAX_VIOLATIONS:
            text = " ".join(map(str, message))
            self.violations.append(Violation(invariant=name, at=self.now(), message=text))


def _describe_change(annotations: ChangeAnnotations | None) -> str:
    if annotations is None:
        return "unreadable"
    if annotations.change:
        change = annotations.change
        return f"{change.phase} {change.method} {change.id[:8]} to {format_sizes(change.after)}"
    if annotations.reverted:
        return f"reverted ({annotations.reverted.why})"
    return "applied" if annotations.applied else "none"

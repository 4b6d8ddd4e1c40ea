"""What is changed about a container at its creation or update, in the terms of no runtime in particular.

`Subject` is what a runtime tells of a container, `Adjustment` what it is answered. Left out: what to answer, which
`entitlement` decides, and how it is said to a runtime, which is the affair of `nri` and `cri`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class RuntimeContainer:
    """A container as its runtime sees it."""

    namespace: str
    pod: str
    uid: str
    container: str
    labels: Mapping[str, str] = field(default_factory=dict)
    """Of the pod."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Of the pod."""
    cgroup_parent: str = ""
    """The pod's cgroup, such as /kubepods/besteffort/pod1234; empty where the runtime does not tell."""
    quota: int | None = None
    """Microseconds of CPU a period; None is without limit."""
    period: int = 100_000
    shares: int = 0
    memory_limit: int | None = None
    cpus: str = ""


@dataclass(frozen=True, kw_only=True)
class Adjustment:
    """What to change; whatever is None or empty stays as it is."""

    cpus: str | None = None
    quota: int | None = None
    period: int | None = None
    cache_class: str | None = None
    """The resctrl class that shares out the last-level cache."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Only at creation."""

    def __bool__(self) -> bool:
        return self != NO_ADJUSTMENT


NO_ADJUSTMENT = Adjustment()

DecideAdjustment = Callable[[RuntimeContainer], Awaitable[Adjustment]]
"""How the ways in ask what to do."""

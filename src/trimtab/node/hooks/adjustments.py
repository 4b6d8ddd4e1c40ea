"""Adjustments of a container at its creation or update, independent of the runtime.

`RuntimeContainer` is the runtime's description of a container, `Adjustment` the response. `tier_defaults`
decides it; `nri` and `cri` translate it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class RuntimeContainer:
    """A container as its runtime describes it."""

    namespace: str
    pod: str
    uid: str
    container: str
    labels: Mapping[str, str] = field(default_factory=dict)
    """The labels of the pod."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """The annotations of the pod."""
    cgroup_parent: str = ""
    """The pod's cgroup, such as /kubepods/besteffort/pod1234; empty if the runtime omits it."""
    quota: int | None = None
    """The microseconds of CPU per period; None is unlimited."""
    period: int = 100_000
    cpus: str = ""


@dataclass(frozen=True, kw_only=True)
class Adjustment:
    """The changes to a container; None or empty keeps a value."""

    cpus: str | None = None
    quota: int | None = None
    cache_class: str | None = None
    """The resctrl group for the last-level cache."""
    env: Mapping[str, str] = field(default_factory=dict)
    """The environment variables to add, only at creation."""

    def __bool__(self) -> bool:
        return self != NO_ADJUSTMENT


NO_ADJUSTMENT = Adjustment()

DecideAdjustment = Callable[[RuntimeContainer], Awaitable[Adjustment]]
"""Decides the adjustment of a container."""

CountResult = Callable[[str], None]
"""Counts one result of a hook: registered, adjusted, unchanged or failed."""


def ignore_result(_: str) -> None:
    """Count nothing."""

"""What a strategy is given and what it answers.

A strategy decides from the scene, which holds the time too, and from what it remembers of earlier scenes and of its own
answers; it reads no file and no clock. A knob that it does not ask for any more goes back to what it was, so that a strategy that
is off answers nothing and leaves nothing. What is not known (a `None`) is no reason to act: keep asking for the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Protocol, TypeVar

from trimtab.api.nodeqospolicy import BlockDeviceSpec, NodeQoSPolicySpec
from trimtab.node.arbiter import KnobRef, KnobRequest, Value
from trimtab.node.cgroups import Knob
from trimtab.node.cgroups.knobs import CPUSET_CPUS, CPUSET_EFFECTIVE
from trimtab.node.model import MetricWindows, NodeView, PodView
from trimtab.node.strategies.cpuset import SharedCpus, find_shared_cpus
from trimtab.plugins import Family

V = TypeVar("V")


@dataclass(frozen=True, kw_only=True)
class StrategyInput:
    """The node at one moment, as a strategy sees it."""

    view: NodeView
    windows: MetricWindows
    policy: NodeQoSPolicySpec
    now: float
    """Seconds, from any beginning; it never goes back."""
    read_knob: Callable[[KnobRef], Value | None] = lambda _: None
    """What a knob holds now; None where there is no such knob."""
    find_devices: Callable[[BlockDeviceSpec], tuple[str, ...]] = lambda _: ()
    """The `major:minor` of the devices that an entry of the policy means."""
    eviction_blocked: frozenset[str] = frozenset()
    """The uids of pods that may not be sent away, as their disruption budgets said lately."""

    def read_knob_as(self, kind: type[V], path: str, knob: Knob[Any]) -> V | None:
        value = self.read_knob(KnobRef(path, knob))
        return value if isinstance(value, kind) else None

    @cached_property
    def shared_cpus(self) -> SharedCpus:
        """The CPUs that pods share, looked for once for all strategies of a round."""
        return find_shared_cpus(
            self.view,
            pinned=lambda path: self.read_knob_as(frozenset, path, CPUSET_CPUS) or frozenset(),
            available=self.read_knob_as(frozenset, self.view.pods_cgroup, CPUSET_EFFECTIVE) or frozenset(),
        )


@dataclass(frozen=True, slots=True)
class Eviction:
    """A pod that should run elsewhere."""

    pod: PodView
    strategy: str
    reason: str


@dataclass(frozen=True, slots=True)
class StrategyOutput:
    """What one strategy asks for in one round."""

    requests: tuple[KnobRequest, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    resctrl_tasks: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """Threads that belong into a class of resctrl; they leave it when it goes."""
    external_values: Mapping[KnobRef, Value] = field(default_factory=dict)
    """What knobs hold without us, as the kubelet tells: one that holds just that is not ours any more, whoever wrote it."""
    unsupported: tuple[str, ...] = ()
    """What the policy asks for and the node has not, a line each: it is told, for nothing else comes of it."""


NO_OUTPUT = StrategyOutput()


class NodeStrategy(Protocol):
    """One way to keep quality of service. It is made once and asked once a second."""

    name: ClassVar[str]
    settings_type: ClassVar[type[Any]]
    """The block of the policy that it reads."""

    def plan(self, inputs: StrategyInput) -> StrategyOutput: ...


STRATEGIES: Family[NodeStrategy] = Family("node strategy", "trimtab.node_strategies")

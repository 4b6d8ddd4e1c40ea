"""The interface of node strategies: their input and output.

A strategy decides from its input, which includes the time, and from its own state; it reads no file and no
clock. A knob that is no longer requested is restored, so a disabled strategy returns nothing. An unknown
value (`None`) is no reason to act: repeat the last request.
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
    """The node at one moment."""

    view: NodeView
    windows: MetricWindows
    policy: NodeQoSPolicySpec
    now: float
    """The seconds of a monotonic clock."""
    read_knob: Callable[[KnobRef], Value | None] = lambda _: None
    """Returns the current value of a knob; None if it does not exist."""
    find_devices: Callable[[BlockDeviceSpec], tuple[str, ...]] = lambda _: ()
    """Returns the `major:minor` of the devices of a policy entry."""
    eviction_blocked: frozenset[str] = frozenset()
    """The uids of pods whose eviction was recently rejected, as by a disruption budget."""

    def read_knob_as(self, kind: type[V], path: str, knob: Knob[Any]) -> V | None:
        value = self.read_knob(KnobRef(path, knob))
        return value if isinstance(value, kind) else None

    @cached_property
    def shared_cpus(self) -> SharedCpus:
        """Return the shared CPUs, computed once per round."""
        return find_shared_cpus(
            self.view,
            pinned=lambda path: self.read_knob_as(frozenset, path, CPUSET_CPUS) or frozenset(),
            available=self.read_knob_as(frozenset, self.view.pods_cgroup, CPUSET_EFFECTIVE) or frozenset(),
        )


@dataclass(frozen=True, slots=True)
class Eviction:
    """A pod to evict."""

    pod: PodView
    strategy: str
    reason: str


@dataclass(frozen=True, slots=True)
class StrategyOutput:
    """The output of one strategy in one round."""

    requests: tuple[KnobRequest, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    resctrl_tasks: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """The threads to move into resctrl groups; they leave when the group is removed."""
    external_values: Mapping[KnobRef, Value] = field(default_factory=dict)
    """The values that the kubelet sets; a knob with this value is no longer held by the agent."""
    unsupported: tuple[str, ...] = ()
    """The features of the policy that the node does not support, one line each, to be reported."""


NO_OUTPUT = StrategyOutput()


class NodeStrategy(Protocol):
    """A QoS strategy, created once and run once a second."""

    name: ClassVar[str]
    settings_type: ClassVar[type[Any]]
    """The block of the policy that it reads."""

    def plan(self, inputs: StrategyInput) -> StrategyOutput: ...


STRATEGIES: Family[NodeStrategy] = Family("node strategy", "trimtab.node_strategies")

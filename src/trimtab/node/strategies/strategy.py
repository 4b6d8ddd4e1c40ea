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

from trimtab.api.nodeqospolicy import BlockIO, NodeQoSPolicySpec
from trimtab.node.arbiter import Spot, Value, Wish
from trimtab.node.cgroups import Knob
from trimtab.node.cgroups.knobs import CPUSET_CPUS, CPUSET_EFFECTIVE
from trimtab.node.model import NodeView, PodView, Windows
from trimtab.node.strategies.cpuset import SharedCpus, shared_cpus
from trimtab.plugins import Family

V = TypeVar("V")


@dataclass(frozen=True, kw_only=True)
class Scene:
    """The node at one moment, as a strategy sees it."""

    view: NodeView
    windows: Windows
    policy: NodeQoSPolicySpec
    now: float
    """Seconds, from any beginning; it never goes back."""
    held: Callable[[Spot], Value | None] = lambda _: None
    """What a knob holds now; None where there is no such knob."""
    devices: Callable[[BlockIO], tuple[str, ...]] = lambda _: ()
    """The `major:minor` of the devices that an entry of the policy means."""
    staying: frozenset[str] = frozenset()
    """The uids of pods that may not be sent away, as their disruption budgets said lately."""

    def held_as(self, kind: type[V], path: str, knob: Knob[Any]) -> V | None:
        value = self.held(Spot(path, knob))
        return value if isinstance(value, kind) else None

    @cached_property
    def shared_cpus(self) -> SharedCpus:
        """The CPUs that pods share, looked for once for all strategies of a round."""
        return shared_cpus(
            self.view,
            pinned=lambda path: self.held_as(frozenset, path, CPUSET_CPUS) or frozenset(),
            available=self.held_as(frozenset, self.view.pods_cgroup, CPUSET_EFFECTIVE) or frozenset(),
        )


@dataclass(frozen=True, slots=True)
class Eviction:
    """A pod that should run elsewhere."""

    pod: PodView
    strategy: str
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What one strategy asks for in one round."""

    wishes: tuple[Wish, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    members: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """Threads that belong into a class of resctrl; they leave it when it goes."""
    told: Mapping[Spot, Value] = field(default_factory=dict)
    """What knobs hold without us, as the kubelet tells: one that holds just that is not ours any more, whoever wrote it."""
    lacking: tuple[str, ...] = ()
    """What the policy asks for and the node has not, a line each: it is told, for nothing else comes of it."""


NOTHING = Plan()


class NodeStrategy(Protocol):
    """One way to keep quality of service. It is made once and asked once a second."""

    name: ClassVar[str]
    settings_type: ClassVar[type[Any]]
    """The block of the policy that it reads."""

    def plan(self, scene: Scene) -> Plan: ...


STRATEGIES: Family[NodeStrategy] = Family("node strategy", "trimtab.node_strategies")

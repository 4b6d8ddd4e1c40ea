"""The contract of a sizing strategy: usage in, targets out, for all containers at once.

A strategy gets every sample once, in the order of time, and may be asked for targets at any time. It keeps
its state in arrays with one row per container, so that a hundred thousand containers cost one call and not a
hundred thousand. It reads no clock, draws no random number that its settings do not seed, and does no I/O.

`tests/sizing/conformance.py` holds every strategy to this: deterministic, safe with NaN, monotone in usage,
of bounded memory, exact across a restart, and independent of the order of containers.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from trimtab.errors import TrimtabError
from trimtab.plugins import Family, Settings
from trimtab.sizing.recommendation import Factor
from trimtab.sizing.state import ArrayState, Floats, Indices, S


@dataclass(frozen=True, slots=True)
class TargetRange:
    """The targets of one resource for each container; NaN where there is not enough data.

    A request between `lower` and `upper` is not worth a change.
    """

    target: Floats
    lower: Floats
    upper: Floats


@dataclass(frozen=True, slots=True)
class Targets:
    """The targets of each container: cores of CPU, bytes of memory."""

    cpu: TargetRange
    memory: TargetRange


class Traits(NamedTuple):
    """The properties of a strategy that decide how it is fed and read. The defaults suit most."""

    wants_replica_samples: bool = False
    """True if the strategy wants a sample of each replica of a workload, one after another at the same time.
    Otherwise it gets the replica that used most.
    """
    counts_samples: bool = True
    """True if each sample counts the same, however long it lasts. Such a strategy gets a sample of the
    past, which lasts as long as many of the present, as many times.
    """
    divides_pod_minimum: bool = False
    """True if the strategy divides a minimum for a pod among its containers, and needs
    `set_containers_per_pod`.
    """
    covers_stabilization: bool = False
    """True if the strategy sizes CPU for the stabilization window of the policy; otherwise the highest recent
    target is kept.
    """
    damps_changes: bool = False
    """True if the strategy keeps a target until another one pays. The policy's `changes.minimum` alone then
    decides which requests are near enough, and not the strategy's range as well.
    """
    separates_pods: bool = False
    """True if the strategy wants a row for each pod of a container that runs at the same time, `share_rows` and
    `restart_rows`.
    """
    leaves_autoscaled: bool = False
    """True if the strategy does not size a resource by whose utilization an HPA scales."""
    sample_seconds: float = 0.0
    """The seconds from sample to sample, over which CPU is averaged, that a scan reads if it can; 0 for any."""
    is_baseline: bool = False
    """True if the strategy is there for comparison, and not recommended for workloads."""


class Strategy(ArrayState[S]):
    """Learns from usage and recommends targets. Its state is in arrays with one row per container."""

    settings_type: ClassVar[type[Settings]]

    traits: Traits = Traits()
    """The properties of this strategy, which may follow from its settings."""

    def set_containers_per_pod(self, containers: Indices) -> None:
        """Set how many containers the pod of each row has."""

    def share_rows(self, containers: Indices) -> None:
        """Set the container of each row, as the number of its first row: all of them get its targets."""

    def restart_rows(self, t: float, rows: Indices) -> None:
        """Learn that from now on these rows are of other pods of their containers."""

    @abstractmethod
    def observe(self, t: float, cpu: Floats, memory: Floats) -> None:
        """Learn one sample of each container at `t` seconds, in cores and bytes; NaN where there is none."""

    @abstractmethod
    def observe_oom(self, t: float, containers: Indices, memory: Floats) -> None:
        """Learn that these containers were OOM killed with this many bytes."""

    @abstractmethod
    def recommend(self, t: float) -> Targets:
        """Return the targets at `t` seconds, without a change of state."""

    def explain(self, t: float, row: int) -> tuple[Factor, ...]:  # noqa: ARG002 - a strategy need not explain
        """Explain the targets that `recommend(t)` returns for one container, in words."""
        return ()


STRATEGIES: Family[Strategy[Any]] = Family(noun="strategy", group="trimtab.strategies")


def strategy(name: str, containers: int, **settings: Any) -> Strategy[Any]:
    """Return a new strategy of this name for this many containers; settings that are not given have their
    defaults.
    """
    return STRATEGIES.load_type(name)(containers, STRATEGIES.parse_settings(name, settings))


def has_setting(name: str, setting: str) -> bool:
    """Return whether a strategy has this setting; one that cannot be loaded has none, and is rejected where
    it is created.
    """
    try:
        return setting in STRATEGIES.load_type(name).settings_type.model_fields
    except TrimtabError:
        return False

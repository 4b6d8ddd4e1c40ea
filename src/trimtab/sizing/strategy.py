"""The contract of a sizing strategy: usage in, sizes out, for all containers at once.

A strategy is given every sample once, in the order of time, and may be asked for sizes at any time. It keeps what
it needs in arrays with one row a container, so that a hundred thousand containers cost one call and not a hundred
thousand. It reads no clock, draws no random number that its settings do not seed, and does no I/O.

`tests/sizing/conformance.py` holds every strategy to this: deterministic, safe with NaN, monotone in usage, of
bounded memory, exact across a restart, and independent of the order of containers.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from trimtab.errors import TrimtabError
from trimtab.plugins import Family, Settings
from trimtab.sizing.state.array_state import ArrayState, S

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class TargetRange:
    """One resource's answer for each container. NaN: not enough data to say.

    `target` is what to ask for; a request between `lower` and `upper` is not worth a change.
    """

    target: Floats
    lower: Floats
    upper: Floats


@dataclass(frozen=True, slots=True)
class Targets:
    """What each container should request: cores of CPU, bytes of memory."""

    cpu: TargetRange
    memory: TargetRange


class Strategy(ArrayState[S]):
    """Learns from usage and recommends sizes. What it learned stands in arrays with a row a container."""

    settings_type: ClassVar[type[Settings]]

    wants_replica_samples: ClassVar[bool] = False
    """Whether it wants a sample of each replica of a workload, one after the other at the same time; without, it is
    shown the replica that used most."""

    counts_samples: ClassVar[bool] = True
    """Whether each sample counts as much as any other, however long it stands for. Such a strategy is shown a sample of the
    past, which stands for many of the present, as often as that."""

    divides_pod_minimum: ClassVar[bool] = False
    """Whether it divides a minimum for a pod among the pod's containers, and wants to be told by `share_pods`."""

    def set_containers_per_pod(self, containers: Indices) -> None:
        """Take in how many containers the pod of each row has."""

    @property
    def covers_stabilization(self) -> bool:
        """Whether it sizes CPU for the time that a policy keeps sizes; for one that does not, the highest of late stays."""
        return False

    @abstractmethod
    def observe(self, t: float, cpu: Floats, memory: Floats) -> None:
        """Take in one sample of each container, at `t` seconds: cores and bytes; NaN where there is none."""

    @abstractmethod
    def observe_oom(self, t: float, containers: Indices, memory: Floats) -> None:
        """Take in that these containers were killed for memory, at so many bytes."""

    @abstractmethod
    def recommend(self, t: float) -> Targets:
        """The sizes at `t` seconds. Asking changes nothing."""


STRATEGIES: Family[Strategy[Any]] = Family(noun="strategy", group="trimtab.strategies")


def strategy(name: str, containers: int, **settings: Any) -> Strategy[Any]:
    """A new strategy of this name for so many containers; settings not given have their defaults."""
    return STRATEGIES.load_type(name)(containers, STRATEGIES.parse_settings(name, settings))


def has_setting(name: str, setting: str) -> bool:
    """Whether a strategy has such a setting; what cannot be loaded has none, and is refused where it is made."""
    try:
        return setting in STRATEGIES.load_type(name).settings_type.model_fields
    except TrimtabError:
        return False

"""The contract of a sizing strategy: usage in, sizes out, for all containers at once.

A strategy is given every sample once, in the order of time, and may be asked for sizes at any time. It keeps what
it needs in arrays with one row a container, so that a hundred thousand containers cost one call and not a hundred
thousand. It reads no clock, draws no random number that its settings do not seed, and does no I/O.

`tests/sizing/conformance.py` holds every strategy to this: deterministic, safe with NaN, monotone in usage, of
bounded memory, exact across a restart, and independent of the order of containers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from trimtab.sizing import snapshot
from trimtab.sizing.snapshot import Array

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]


class Settings(BaseModel):
    """The settings of a strategy. Each field has a doc-string: it becomes the help of the command line."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


S = TypeVar("S", bound=Settings)


@dataclass(frozen=True, slots=True)
class Bounds:
    """One resource's answer for each container. NaN: not enough data to say.

    `target` is what to ask for; a request between `lower` and `upper` is not worth a change.
    """

    target: Floats
    lower: Floats
    upper: Floats


@dataclass(frozen=True, slots=True)
class Sizes:
    """What each container should request: cores of CPU, bytes of memory."""

    cpu: Bounds
    memory: Bounds


class Strategy(ABC, Generic[S]):
    """Learns from usage and recommends sizes."""

    name: ClassVar[str]
    """What users call it."""

    settings_type: ClassVar[type[Settings]]

    def __init__(self, containers: int, settings: S) -> None:
        self.containers = containers
        self.settings = settings

    @abstractmethod
    def observe(self, t: float, cpu: Floats, memory: Floats) -> None:
        """Take in one sample of each container, at `t` seconds: cores and bytes; NaN where there is none."""

    @abstractmethod
    def observe_oom(self, t: float, containers: Indices, memory: Floats) -> None:
        """Take in that these containers were killed for memory, at so many bytes."""

    @abstractmethod
    def recommend(self, t: float) -> Sizes:
        """The sizes at `t` seconds. Asking changes nothing."""

    @abstractmethod
    def arrays(self) -> Mapping[str, Array]:
        """All that was learned, by name.

        An array with a container's share in it has one row (or column) a container. One named `pool` may have any
        length: its items are handed out to containers, whose `pages` beside it say which.
        """

    @abstractmethod
    def take_over(self, arrays: Mapping[str, Array]) -> None:
        """Be what `arrays` gave. What could lead a loop astray raises `ValueError`."""

    def state(self) -> bytes:
        """All that was learned; no code in it, and the same bytes for the same state."""
        return snapshot.pack(self, self.arrays())

    def restore(self, state: bytes) -> None:
        """Take over what `state` returned from a strategy of the same name, settings and containers.

        From then on every answer is the same to the bit. Bytes that are not that raise `ValueError`.
        """
        self.take_over(snapshot.unpack(self, state, self.arrays()))

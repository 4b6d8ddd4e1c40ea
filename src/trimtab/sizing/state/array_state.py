"""Knowledge of many containers, in arrays with a row each: what a strategy learned, and what a witness saw.

Whatever keeps its knowledge so survives a restart bit for bit (`snapshot`) and changes of its containers (`rows`)
without a line of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Generic, TypeVar

from trimtab.plugins import Settings
from trimtab.sizing.state import serialization
from trimtab.sizing.state.serialization import Array

S = TypeVar("S", bound=Settings)


class ArrayState(ABC, Generic[S]):
    """Made of a number of containers and of settings, and of nothing else."""

    name: ClassVar[str]
    """What users call it."""

    def __init__(self, containers: int, settings: S) -> None:
        self.containers = containers
        self.settings = settings

    @abstractmethod
    def arrays(self) -> Mapping[str, Array]:
        """All that is known, by name.

        An array with a container's share in it has one row (or column) a container. One named `pool` may have any
        length: its items are handed out to containers, whose `pages` beside it say which.
        """

    @abstractmethod
    def load_arrays(self, arrays: Mapping[str, Array]) -> None:
        """Be what `arrays` gave. What could lead a loop astray raises `ValueError`."""

    def state(self) -> bytes:
        """All that is known; no code in it, and the same bytes for the same knowledge."""
        return serialization.pack(self, self.arrays())

    def restore(self, state: bytes) -> None:
        """Take over what `state` returned from one of the same name, settings and containers.

        From then on every answer is the same to the bit. Bytes that are not that raise `ValueError`.
        """
        self.load_arrays(serialization.unpack(self, state, self.arrays()))

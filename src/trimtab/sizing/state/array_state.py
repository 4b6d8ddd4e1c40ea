"""State of many containers in arrays with one row each: what a strategy learned, or a tracker observed.

State kept this way survives a restart bit for bit (`serialization`) and changes of its containers (`reindex`)
without any code of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Generic, TypeVar

from trimtab.plugins import Settings
from trimtab.sizing.arrays import Array
from trimtab.sizing.state import serialization

S = TypeVar("S", bound=Settings)


class ArrayState(ABC, Generic[S]):
    """Per-container state that is built from a number of containers and settings, and nothing else."""

    name: ClassVar[str]
    """The name that users know."""

    def __init__(self, containers: int, settings: S) -> None:
        self.containers = containers
        self.settings = settings

    @abstractmethod
    def arrays(self) -> Mapping[str, Array]:
        """Return the whole state by name.

        An array with a share of each container has one row (or column) per container. An array named `pool`
        may have any length: its items belong to the containers whose `pages` beside it name them.
        """

    @abstractmethod
    def load_arrays(self, arrays: Mapping[str, Array]) -> None:
        """Load the arrays that `arrays` returned; raise `ValueError` for indices that a compiled loop would
        follow out of bounds.
        """

    def state(self) -> bytes:
        """Return the whole state as bytes: no code in it, and the same bytes for the same state."""
        return serialization.pack(self, self.arrays())

    def restore(self, state: bytes) -> None:
        """Restore the bytes that `state` returned from an object of the same name, settings and containers.

        From then on every answer is the same to the bit. Other bytes raise `ValueError`.
        """
        self.load_arrays(serialization.unpack(self, state, self.arrays()))

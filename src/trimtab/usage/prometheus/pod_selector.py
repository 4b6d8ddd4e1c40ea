"""Which pods a query is about: those of some namespaces; of one that is too much for a server, some at a time.

Pods of one namespace are told apart by how their names end, which most have drawn at random. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

ENDINGS = "0123456789abcdefghijklmnopqrstuvwxyz"
"""What a pod's name may end with: Kubernetes takes no other."""

Names = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pods:
    """The pods of some namespaces whose names end with one of some letters."""

    namespaces: Names
    endings: str = ENDINGS

    @property
    def all(self) -> bool:
        """Whether no pod of these namespaces is left out."""
        return self.endings == ENDINGS

    @property
    def pattern(self) -> str:
        """What their names look like."""
        return f".*[{self.endings}]"

    @property
    def share(self) -> float:
        """About how many of their namespaces' pods they are."""
        return len(self.endings) / len(ENDINGS)

    def halves(self) -> tuple[Pods, ...]:
        """The same in two parts; none when they cannot be fewer."""
        names, middle = self.namespaces, len(self.namespaces) // 2
        if middle:
            return replace(self, namespaces=names[:middle]), replace(self, namespaces=names[middle:])
        middle = len(self.endings) // 2
        if middle:
            return (
                replace(self, endings=self.endings[:middle]),
                replace(self, endings=self.endings[middle:]),
            )
        return ()

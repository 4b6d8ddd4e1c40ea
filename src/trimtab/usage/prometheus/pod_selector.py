"""Which pods a query is about: those of some namespaces; of one that is too much for a server, some at a time.

Pods of one namespace are told apart by how their names end, which most have drawn at random. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

LAST_CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
"""What a pod's name may end with: Kubernetes takes no other."""

NamespaceNames = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PodSelector:
    """The pods of some namespaces whose names end with one of some letters."""

    namespaces: NamespaceNames
    last_characters: str = LAST_CHARACTERS

    @property
    def is_unfiltered(self) -> bool:
        """Whether no pod of these namespaces is left out."""
        return self.last_characters == LAST_CHARACTERS

    @property
    def name_pattern(self) -> str:
        """What their names look like."""
        return f".*[{self.last_characters}]"

    @property
    def share(self) -> float:
        """About how many of their namespaces' pods they are."""
        return len(self.last_characters) / len(LAST_CHARACTERS)

    def split(self) -> tuple[PodSelector, ...]:
        """The same in two parts; none when they cannot be fewer."""
        names, middle = self.namespaces, len(self.namespaces) // 2
        if middle:
            return replace(self, namespaces=names[:middle]), replace(self, namespaces=names[middle:])
        middle = len(self.last_characters) // 2
        if middle:
            return (
                replace(self, last_characters=self.last_characters[:middle]),
                replace(self, last_characters=self.last_characters[middle:]),
            )
        return ()

"""Select the pods of a query by namespace and, where a namespace is too large, by the end of their names.

Most pod names end with a random character, which divides a namespace evenly. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

LAST_CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
"""The characters that a pod's name may end with."""

NamespaceNames = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PodSelector:
    """The pods of some namespaces whose names end with one of some characters."""

    namespaces: NamespaceNames
    last_characters: str = LAST_CHARACTERS

    @property
    def is_unfiltered(self) -> bool:
        """Return whether all pods of these namespaces are selected."""
        return self.last_characters == LAST_CHARACTERS

    @property
    def name_pattern(self) -> str:
        """Return a pattern for the names of the pods."""
        return f".*[{self.last_characters}]"

    @property
    def share(self) -> float:
        """Return the approximate share of the namespaces' pods that is selected."""
        return len(self.last_characters) / len(LAST_CHARACTERS)

    def split(self) -> tuple[PodSelector, ...]:
        """Return two selectors for half of the pods each; empty if it cannot be split."""
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

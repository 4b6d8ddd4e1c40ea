"""Plugins by name, the same way for every family: an entry point gives the class, a settings model its documentation.

Strategies and usage sources come in this way, ours and others' alike. It stands apart from all rooms so that each
can have a family. Left out: what a family's classes can do, and how one is made, which differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from pydantic import ConfigDict, ValidationError

from trimtab.api import format_problems
from trimtab.docstrings import DocumentedModel
from trimtab.errors import TrimtabError


class Settings(DocumentedModel):
    """The settings of a plugin. Each field has a doc-string: it becomes the help of the command line."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Plugin(Protocol):
    """What a family's classes have in common."""

    settings_type: ClassVar[type[Any]]


P = TypeVar("P", bound=Plugin)


@cache
def _find_installed(group: str) -> dict[str, EntryPoint]:
    """Looking through all installed packages takes milliseconds, and none is installed while we run."""
    return {entry_point.name: entry_point for entry_point in entry_points(group=group)}


@dataclass(frozen=True, slots=True)
class Family(Generic[P]):
    """All installed classes of one kind."""

    noun: str
    """What one of them is called in a message."""
    group: str
    """The entry point group by which they come in."""

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(_find_installed(self.group)))

    def load_type(self, name: str) -> type[P]:
        """The class behind a name; a clear refusal where there is none."""
        entry_point = _find_installed(self.group).get(name)
        if entry_point is None:
            raise TrimtabError(f"{self.noun} {name!r} is not known; there are: {', '.join(self.names())}")
        try:
            found: type[P] = entry_point.load()
        except Exception as error:  # others' code, which may lack what it imports
            where = (
                f"{entry_point.value} of {entry_point.dist.name}" if entry_point.dist else entry_point.value
            )
            why = " ".join(f"{type(error).__name__}: {error}".split())
            raise TrimtabError(
                f"{self.noun} {name!r} cannot be loaded from {where} ({why}); mend that package or remove it"
            ) from error
        return found

    def parse_settings(self, name: str, given: Mapping[str, Any]) -> Any:
        """The settings of this plugin, checked; those not given have their defaults."""
        kind = self.load_type(name).settings_type
        try:
            return kind(**given)
        except ValidationError as error:
            said = "; ".join(map(str, format_problems(error)))
            if not kind.model_fields.keys() >= given.keys():
                said += f"; there are: {', '.join(kind.model_fields)}"
            raise TrimtabError(f"{self.noun} {name}: {said}") from None

"""Plugins by name, in the same way for every family: an entry point names the class, a settings model documents its
settings.

Strategies, usage sources and other families are loaded this way, ours and third-party ones alike. The module is
outside all packages, so that each can have a family; what a family's classes do is defined there.
"""

from __future__ import annotations

import inspect
import re
import sys
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
    """The settings of a plugin; the docstring of each field becomes its help in the command line."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    file_fields: ClassVar[tuple[str, ...]] = ()
    """The fields that name something installed or the path of a file. Objects of a cluster may give names only: a path
    would have the operator open any of its files for whoever may write a policy."""

    usage_factors: ClassVar[Mapping[str, float]] = {}
    """The fields that multiply what was used, each with the number that is added to its value first: 1 for a margin.
    The operator's `limits.maxSafetyFactor` bounds what a policy sets."""


class Plugin(Protocol):
    """The interface that the classes of all families share."""

    settings_type: ClassVar[type[Any]]


P = TypeVar("P", bound=Plugin)

_INSTALLED_NAME = re.compile(r"[A-Za-z0-9]([-_A-Za-z0-9]*[A-Za-z0-9])?")


@cache
def _find_installed(group: str) -> dict[str, EntryPoint]:
    """List the installed plugins of a group; cached, because scanning all packages takes milliseconds and none is
    installed at run time.
    """
    return {entry_point.name: entry_point for entry_point in entry_points(group=group)}


@dataclass(frozen=True, slots=True)
class Family(Generic[P]):
    """All installed classes of one kind of plugin."""

    noun: str
    """The name of one such plugin in messages."""
    group: str
    """The entry point group of the family."""

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(_find_installed(self.group)))

    def load_type(self, name: str) -> type[P]:
        """Return the class with this name; raise an error that lists the installed names if there is none."""
        entry_point = _find_installed(self.group).get(name)
        if entry_point is None:
            raise TrimtabError(f"{self.noun} {name!r} is not known; there are: {', '.join(self.names())}")
        try:
            found: type[P] = entry_point.load()
        except Exception as error:  # third-party code, whose imports may be missing
            where = (
                f"{entry_point.value} of {entry_point.dist.name}" if entry_point.dist else entry_point.value
            )
            why = " ".join(f"{type(error).__name__}: {error}".split())
            raise TrimtabError(
                f"{self.noun} {name!r} cannot be loaded from {where} ({why}); repair or remove that package"
            ) from error
        return found

    def describe(self, name: str) -> str:
        """Return the docstring of a plugin's module, or that of its class if the module has more plugins of the family."""
        plugin = self.load_type(name)
        others = (each for each in _find_installed(self.group).values() if each.module == plugin.__module__)
        own, module = plugin.__doc__, sys.modules[plugin.__module__].__doc__
        is_alone = len(list(others)) <= 1
        return inspect.cleandoc((module or own if is_alone else own or module) or "")

    def parse_settings(self, name: str, given: Mapping[str, Any]) -> Any:
        """Validate the settings of this plugin; missing ones get their defaults."""
        try:
            return self.load_type(name).settings_type(**given)
        except ValidationError as error:
            problems = self.describe_setting_problems(name, given, error)
            raise TrimtabError(f"{self.noun} {name}: {'; '.join(problems)}") from None

    def find_path_problem(self, name: str, given: Mapping[str, Any]) -> str:
        """Describe a setting that is a path where only names are allowed; empty if there is none."""
        for field in self.load_type(name).settings_type.file_fields:
            value = given.get(field)
            if isinstance(value, str) and not _INSTALLED_NAME.fullmatch(value):
                return f"{field}: must be the name of what is installed, such as {self._default(name, field)!r}, not a path"
        return ""

    def list_usage_factors(self, name: str, given: Mapping[str, Any]) -> dict[str, float]:
        """Return by how much the settings that are given multiply what was used; nothing for settings that are invalid."""
        try:
            settings = self.parse_settings(name, given)
        except TrimtabError:
            return {}
        stated = {field: getattr(settings, field) for field in settings.usage_factors if field in given}
        return {
            field: settings.usage_factors[field] + (max(value) if isinstance(value, tuple) else value)
            for field, value in stated.items()
        }

    def _default(self, name: str, field: str) -> Any:
        return self.load_type(name).settings_type.model_fields[field].default

    def describe_setting_problems(
        self, name: str, given: Mapping[str, Any], error: ValidationError, *, prefix: str = ""
    ) -> list[str]:
        """Return a line for each invalid setting; the last one lists all settings if one of those given is unknown."""
        fields = self.load_type(name).settings_type.model_fields
        problems = format_problems(error, prefix=prefix)
        if not fields.keys() >= given.keys():
            # Of a misspelled name alone, a user cannot tell what the plugin calls the setting.
            problems[-1] += f"; there are: {', '.join(fields)}"
        return problems

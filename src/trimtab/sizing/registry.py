"""Strategies by name. They come in by the entry point group `trimtab.strategies`, ours and others' alike."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import Any

from pydantic import ValidationError

from trimtab.api import problems_of
from trimtab.errors import TrimtabError
from trimtab.sizing.strategy import Strategy

GROUP = "trimtab.strategies"


@cache
def available() -> tuple[str, ...]:
    """The names of all installed strategies."""
    return tuple(sorted(entry_point.name for entry_point in entry_points(group=GROUP)))


@cache
def strategy_type(name: str) -> type[Strategy[Any]]:
    """The class behind a name; a clear refusal where there is none."""
    for entry_point in entry_points(group=GROUP, name=name):
        found: type[Strategy[Any]] = entry_point.load()
        return found
    raise TrimtabError(f"strategy {name!r} is not known; there are: {', '.join(available())}")


def strategy(name: str, containers: int, **settings: Any) -> Strategy[Any]:
    """A new strategy of this name for so many containers; settings not given have their defaults."""
    kind = strategy_type(name)
    try:
        checked = kind.settings_type(**settings)
    except ValidationError as error:
        raise TrimtabError(f"strategy {name}: {'; '.join(map(str, problems_of(error)))}") from None
    return kind(containers, checked)

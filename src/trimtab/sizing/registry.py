"""Strategies by name. They come in by the entry point group `trimtab.strategies`, ours and others' alike."""

from __future__ import annotations

from typing import Any

from trimtab.errors import TrimtabError
from trimtab.plugins import Family
from trimtab.sizing.strategy import Strategy

STRATEGIES: Family[Strategy[Any]] = Family(noun="strategy", group="trimtab.strategies")


def strategy(name: str, containers: int, **settings: Any) -> Strategy[Any]:
    """A new strategy of this name for so many containers; settings not given have their defaults."""
    return STRATEGIES.type_of(name)(containers, STRATEGIES.settings_of(name, settings))


def takes(name: str, setting: str) -> bool:
    """Whether a strategy has such a setting; what cannot be loaded has none, and is refused where it is made."""
    try:
        return setting in STRATEGIES.type_of(name).settings_type.model_fields
    except TrimtabError:
        return False

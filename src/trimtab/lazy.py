"""Imports at first use: the public names of a package, and optional libraries that an extra of Trimtab installs.

A package's `__init__` runs before any of its modules, so importing everything there would slow down each command and
tie modules into import cycles.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from trimtab.errors import TrimtabError


def lazy_exports(package: str, exports: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a module-level `__getattr__` that loads each exported name from the submodule that defines it."""

    def load(name: str) -> Any:
        if name not in exports:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{exports[name]}"), name)

    return load


@contextmanager
def require_extra(extra: str, needed_by: str, *, alternative: str = "") -> Iterator[None]:
    """Turn a failed import in the block into one line with the command that installs the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        # A module of ours that is missing is a defect, and no extra would install it.
        if error.name is None or error.name.split(".")[0] == "trimtab":
            raise
        hint = f"; or {alternative}" if alternative else ""
        raise TrimtabError(
            f"{needed_by}: {error.name} is not installed; run: pip install 'trimtab[{extra}]'{hint}"
        ) from None


class LazyModule:
    """A stand-in for a large library that is imported when one of its names is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)

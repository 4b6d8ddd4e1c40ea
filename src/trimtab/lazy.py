"""Public names of a package, loaded when they are first used.

A package's `__init__` runs before any of its modules, so importing everything there would slow down each command and
tie modules into import cycles.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_exports(package: str, exports: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a module-level `__getattr__` that loads each exported name from the submodule that defines it."""

    def load(name: str) -> Any:
        if name not in exports:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{exports[name]}"), name)

    return load

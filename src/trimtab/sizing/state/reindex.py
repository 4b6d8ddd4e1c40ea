"""Move the state of containers to other rows as containers come and go.

A strategy is created for a fixed number of containers. When they change, a new one is created that has the
old state of each container that stays, and none for those that are new. The state of the fleet as a whole
goes along. A container that left releases its share of a pool.

The axis of an array that stands for the containers is found by comparing a strategy of one container with one
of two.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from trimtab.sizing.arrays import Array, Indices
from trimtab.sizing.state.array_state import ArrayState
from trimtab.sizing.state.serialization import is_pool

NEW_ROW = -1
"""The row number of a container that was not there before."""


R = TypeVar("R", bound=ArrayState[Any])


def reindex(known: R, rows: Indices) -> R:
    """Return the state for other containers: container `i` continues from container `rows[i]`."""
    kept = np.flatnonzero(rows != NEW_ROW)
    if len(set(rows[kept].tolist())) != kept.size:
        raise ValueError("rows: a container can go on in one place only")
    other = type(known)(rows.size, known.settings)
    old, new = known.arrays(), dict(other.arrays())
    for name, axis in _container_axes(known).items():
        if axis is None:
            new[name] = old[name].copy()
        else:
            into = np.moveaxis(new[name], axis, 0)
            into[kept] = np.moveaxis(old[name], axis, 0)[rows[kept]]
    for name in filter(is_pool, old):
        _compact_pool(new, name.removesuffix("pool"))
    # Arrays that are already its own stay in place: a copy would be a third of the state.
    other.load_arrays(new)
    return other


def _container_axes(known: ArrayState[Any]) -> dict[str, int | None]:
    """Return the axis of each array that stands for containers; None if none does."""
    one, two = (type(known)(containers, known.settings).arrays() for containers in (1, 2))
    return {
        name: next((axis for axis in range(array.ndim) if array.shape[axis] != two[name].shape[axis]), None)
        for name, array in one.items()
    }


def _compact_pool(arrays: dict[str, Array], prefix: str) -> None:
    """Keep only the items of the pool that a container holds; the first item belongs to nobody."""
    pages, pool = arrays[prefix + "pages"], arrays[prefix + "pool"]
    held = np.union1d(pages, 0)
    arrays[prefix + "pages"] = np.searchsorted(held, pages).astype(pages.dtype)
    arrays[prefix + "pool"] = pool[held]
    arrays[prefix + "used"] = np.array([held.size], dtype=arrays[prefix + "used"].dtype)

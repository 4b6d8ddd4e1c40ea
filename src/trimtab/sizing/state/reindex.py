"""Containers come and go while what is known of them stands in arrays: here it is given other rows.

A strategy is made for a fixed number of containers. Where they change, a new one is made that has learned for each of
its containers what the old one had for it, and nothing for those that are new. What the fleet has taught as a whole
goes along. A container that left takes with it what it held of a pool.

Which side of an array stands for the containers is seen from a strategy of one container beside one of two. The same
goes for whatever else keeps its knowledge as a strategy does.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from trimtab.sizing.state.array_state import ArrayState
from trimtab.sizing.state.serialization import Array, is_pool
from trimtab.sizing.strategy import Indices

NEW_ROW = -1
"""In place of a row: a container that was not there before."""


R = TypeVar("R", bound=ArrayState[Any])


def reindex(known: R, rows: Indices) -> R:
    """The same for other containers: `i` goes on from what is known of container `rows[i]`."""
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
    # What is its own already stays where it is: a copy would be a third of what is known.
    other.load_arrays(new)
    return other


def _container_axes(known: ArrayState[Any]) -> dict[str, int | None]:
    """For each array the side that stands for containers; None where none does."""
    one, two = (type(known)(containers, known.settings).arrays() for containers in (1, 2))
    return {
        name: next((axis for axis in range(array.ndim) if array.shape[axis] != two[name].shape[axis]), None)
        for name, array in one.items()
    }


def _compact_pool(arrays: dict[str, Array], prefix: str) -> None:
    """Leave in the pool only what some container holds; its first item belongs to nobody."""
    pages, pool = arrays[prefix + "pages"], arrays[prefix + "pool"]
    held = np.union1d(pages, 0)
    arrays[prefix + "pages"] = np.searchsorted(held, pages).astype(pages.dtype)
    arrays[prefix + "pool"] = pool[held]
    arrays[prefix + "used"] = np.array([held.size], dtype=arrays[prefix + "used"].dtype)

"""The containers that one strategy sizes with the same settings, by name, while they come and go.

A strategy knows rows, an operator knows names. Here each name has a row; spare rows are kept so that a newcomer seldom
costs a copy of everything, and rows of those that were forgotten are handed back when the spare ones run out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

from trimtab.sizing.registry import strategy
from trimtab.sizing.rows import NEW, regrouped
from trimtab.sizing.strategy import Bounds, Floats, Indices, Sizes, Strategy

K = TypeVar("K", bound=tuple[Any, ...])

LEAST_ROWS = 16
SPARE = 1.25
"""Rows made for each one that is needed."""


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    keys: tuple[Any, ...]
    rows: tuple[int, ...]
    containers: int
    state: bytes


class Fleet(Generic[K]):
    """A strategy and the row that each container has in it; a key is a named tuple of strings."""

    def __init__(self, name: str, settings: Mapping[str, Any], *, key: type[K]) -> None:
        self._key = key
        self._strategy: Strategy[Any] = strategy(name, containers=LEAST_ROWS, **settings)
        self._rows: dict[K, int] = {}
        self._taken = 0

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: K) -> bool:
        return key in self._rows

    def keys(self) -> Collection[K]:
        return self._rows.keys()

    def include(self, keys: Iterable[K]) -> None:
        """Give a row to each that has none; it knows nothing yet."""
        new = [key for key in dict.fromkeys(keys) if key not in self._rows]
        if self._taken + len(new) > self._strategy.containers:
            self._make_room(len(self._rows) + len(new))
        for key in new:
            self._rows[key] = self._taken
            self._taken += 1

    def forget(self, keys: Iterable[K]) -> None:
        """Let go of what was learned of these."""
        for key in keys:
            self._rows.pop(key, None)

    def rows(self, keys: Iterable[K]) -> Indices:
        """Where these containers are, for `observe` and the others; good until one is included."""
        return np.fromiter((self._rows[key] for key in keys), dtype=np.intp)

    def observe(self, t: float, rows: Indices, *, cpu: Floats, memory: Floats) -> None:
        """Take in one sample of each of these containers; the others had none."""
        self._strategy.observe(t, self._whole(rows, cpu), self._whole(rows, memory))

    def observe_oom(self, t: float, rows: Indices, memory: Floats) -> None:
        """Take in that these containers were killed for memory, at so many bytes."""
        self._strategy.observe_oom(t, rows, memory)

    def recommend(self, t: float, rows: Indices) -> Sizes:
        """The sizes of these containers."""
        sizes = self._strategy.recommend(t)
        return Sizes(cpu=_of(sizes.cpu, rows), memory=_of(sizes.memory, rows))

    def state(self) -> bytes:
        """All that was learned, and of whom."""
        kept = _Kept(
            keys=tuple(self._rows),
            rows=tuple(self._rows.values()),
            containers=self._strategy.containers,
            state=self._strategy.state(),
        )
        return msgspec.msgpack.encode(kept)

    def restore(self, state: bytes) -> None:
        """Take over what `state` returned from a fleet of the same strategy and settings; else `ValueError`."""
        try:
            kept = msgspec.msgpack.decode(state, type=_Kept)
            keys = msgspec.convert(kept.keys, tuple[self._key, ...])  # type: ignore[name-defined]
        except msgspec.MsgspecError as error:
            raise ValueError(f"state: these bytes are no fleet's: {error}") from None
        if len(keys) != len(kept.rows) or any(not 0 <= row < kept.containers for row in kept.rows):
            raise ValueError("state: its rows are not in order")
        restored = type(self._strategy)(kept.containers, self._strategy.settings)
        restored.restore(kept.state)
        self._strategy = restored
        self._rows = dict(zip(keys, kept.rows, strict=True))
        self._taken = max(kept.rows, default=-1) + 1

    def _whole(self, rows: Indices, values: Floats) -> Floats:
        whole = np.full(self._strategy.containers, np.nan)
        whole[rows] = values
        return whole

    def _make_room(self, needed: int) -> None:
        rows = np.full(max(LEAST_ROWS, int(needed * SPARE)), NEW, dtype=np.intp)
        rows[: len(self._rows)] = list(self._rows.values())
        self._strategy = regrouped(self._strategy, rows)
        self._rows = {key: row for row, key in enumerate(self._rows)}
        self._taken = len(self._rows)


def _of(bounds: Bounds, rows: Indices) -> Bounds:
    return Bounds(target=bounds.target[rows], lower=bounds.lower[rows], upper=bounds.upper[rows])

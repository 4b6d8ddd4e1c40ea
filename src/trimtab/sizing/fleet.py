"""The containers that one strategy sizes with the same settings, by name, while they come and go.

A strategy and a witness know rows, an operator knows names. Here each name has a row in both; spare rows are kept so
that a newcomer seldom costs a copy of everything, and rows of those that were forgotten are handed back when the
spare ones run out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

from trimtab.sizing.evidence import Evidence
from trimtab.sizing.proposed import HOUR, Lately, Proposed, ProposedSettings
from trimtab.sizing.registry import strategy
from trimtab.sizing.rows import NEW, regrouped
from trimtab.sizing.strategy import Floats, Indices, Sizes, Strategy
from trimtab.sizing.witness import Booleans, Hashes, Witness, WitnessSettings

K = TypeVar("K", bound=tuple[Any, ...])

LEAST_ROWS = 16
SPARE = 1.1
"""Rows made for each one that is needed."""


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    keys: tuple[Any, ...]
    rows: tuple[int, ...]
    taken: int
    containers: int
    strategy: bytes
    witness: bytes
    proposed: bytes = b""
    """Nothing where it was not kept yet."""


class Fleet(Generic[K]):
    """A strategy, a witness, and the row that each container has in them; a key is a named tuple of strings."""

    def __init__(self, name: str, settings: Mapping[str, Any], *, key: type[K]) -> None:
        self._key = key
        self._strategy: Strategy[Any] = strategy(name, containers=LEAST_ROWS, **settings)
        self._witness = Witness(LEAST_ROWS, WitnessSettings())
        self._proposed = Proposed(LEAST_ROWS, ProposedSettings())
        self._rows: dict[K, int] = {}
        self._taken = 0

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: K) -> bool:
        return key in self._rows

    def __iter__(self) -> Iterator[K]:
        return iter(self._rows)

    @property
    def places(self) -> int:
        """How many rows there are, the spare ones included."""
        return self._strategy.containers

    @property
    def strategy(self) -> Strategy[Any]:
        """For whoever brings what was learned elsewhere; its rows are those of `rows`."""
        return self._strategy

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

    def observe(
        self,
        t: float,
        rows: Indices,
        *,
        cpu: Floats,
        memory: Floats,
        throttled: Floats | None = None,
        running: Indices | None = None,
        lasts: float = 0.0,
    ) -> None:
        """Take in one sample of each of these containers; the others had none.

        Of those in `running` there should have been one; each stands for `lasts` seconds. A row named twice is a fault of
        the caller.
        """
        all_cpu, all_memory = self._whole(rows, cpu), self._whole(rows, memory)
        self._strategy.observe(t, all_cpu, all_memory)
        self._witness.observe(
            t,
            all_cpu,
            all_memory,
            throttled=None if throttled is None else self._whole(rows, throttled),
            running=None if running is None else np.isin(np.arange(self._strategy.containers), running),
            lasts=lasts,
        )

    def observe_oom(
        self,
        t: Floats,
        rows: Indices,
        memory: Floats,
        requested: Floats | None = None,
        *,
        images: Hashes | None = None,
    ) -> Booleans:
        """Take in that these containers were killed for memory, when and at how many bytes.

        What they had requested is what a strategy is told, if it is known: it sizes requests, and how far above theirs
        they were is for its samples to say. Where it is not, `memory` is that of samples, and the kill counts at least at
        the size that `observe_sizes` tells next. One known already is not counted again; the answer says which were new.
        """
        asked = memory if requested is None else requested
        new = self._witness.observe_oom(t, rows, memory, images=images, estimated=requested is None)
        hours, told = t // HOUR, new & np.isfinite(asked)
        for hour in np.unique(hours[told]):  # one kill may be of now and another of days ago
            then = told & (hours == hour)
            self._strategy.observe_oom(float(t[then].max()), rows[then], asked[then])
        return new

    def observe_sizes(
        self, t: float, rows: Indices, memory: Floats, *, before: Floats, images: Hashes
    ) -> None:
        """Take in the memory that these containers have in effect, the most that they had before, and their images."""
        self._witness.observe_sizes(t, rows, memory, before=before, images=images)

    def memory_peak(self, t: float, rows: Indices) -> Floats:
        """Return the highest memory of these containers in the week up to `t`; NaN where there is no sample."""
        return self._witness.memory_peak(t, rows)

    def recommend(self, t: float) -> Sizes:
        """The sizes of all, by row."""
        return self._strategy.recommend(t)

    def propose(self, t: float) -> Sizes:
        """The same, and remembered."""
        sizes = self._strategy.recommend(t)
        self._proposed.note(t, sizes)
        return sizes

    def is_due(self, t: float, *, until: float) -> bool:
        """Whether it is time to propose again, or what is remembered at `until` would have a gap."""
        return self._proposed.is_due(t, until=until)

    def lately(self, t: float, row: int) -> Lately:
        """What was proposed for this container in the last day."""
        return self._proposed.lately(t, row)

    def evidence(self, t: float, rows: Indices, *, runs_on: Sequence[bool]) -> list[Evidence]:
        """What was seen of these containers; `runs_on` where they run all the time, as a Job's do not."""
        return self._witness.evidence(t, rows, runs_on=runs_on)

    def first_sample(self) -> float | None:
        """Return the time of the first sample of any container; None where there is none."""
        return self._witness.first_sample(self.rows(self._rows))

    def state(self) -> bytes:
        """All that was learned, and of whom."""
        kept = _Kept(
            keys=tuple(self._rows),
            rows=tuple(self._rows.values()),
            taken=self._taken,
            containers=self._strategy.containers,
            strategy=self._strategy.state(),
            witness=self._witness.state(),
            proposed=self._proposed.state(),
        )
        return msgspec.msgpack.encode(kept)

    def restore(self, state: bytes) -> None:
        """Take over what `state` returned from a fleet of the same strategy and settings; else `ValueError`."""
        try:
            kept = msgspec.msgpack.decode(state, type=_Kept)
            keys = msgspec.convert(kept.keys, tuple[self._key, ...])  # type: ignore[name-defined]
        except msgspec.MsgspecError as error:
            raise ValueError(f"state: these bytes are no fleet's: {error}") from None
        if len(keys) != len(kept.rows) or not (
            all(0 <= row < kept.taken for row in kept.rows) and kept.taken <= kept.containers
        ):
            raise ValueError("state: its rows are not in order")
        sizer = type(self._strategy)(kept.containers, self._strategy.settings)
        witness = Witness(kept.containers, self._witness.settings)
        proposed = Proposed(kept.containers, self._proposed.settings)
        sizer.restore(kept.strategy)
        witness.restore(kept.witness)
        if kept.proposed:
            proposed.restore(kept.proposed)
        self._strategy, self._witness, self._proposed = sizer, witness, proposed
        self._rows = dict(zip(keys, kept.rows, strict=True))
        self._taken = kept.taken

    def _whole(self, rows: Indices, values: Floats) -> Floats:
        whole = np.full(self._strategy.containers, np.nan)
        whole[rows] = values
        return whole

    def _make_room(self, needed: int) -> None:
        rows = np.full(max(LEAST_ROWS, int(needed * SPARE)), NEW, dtype=np.intp)
        rows[: len(self._rows)] = list(self._rows.values())
        self._strategy, self._witness = regrouped(self._strategy, rows), regrouped(self._witness, rows)
        self._proposed = regrouped(self._proposed, rows)
        self._rows = {key: row for row, key in enumerate(self._rows)}
        self._taken = len(self._rows)

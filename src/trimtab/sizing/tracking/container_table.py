"""Containers by name, while they come and go, and the row that each has in what is known of them.

A strategy and a witness know rows, an operator knows names. Here each name has a row; spare rows are kept so that a
newcomer seldom costs a copy of everything, and rows of those that were forgotten are handed back when the spare ones run
out. What one strategy with its settings learned is one table (`Fleet`). What was seen of containers, whoever sizes them
and by whatever strategy, is another (`EvidenceTable`): it does not begin anew when a policy changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np

from trimtab.sizing.evidence import Evidence
from trimtab.sizing.state.array_state import ArrayState
from trimtab.sizing.state.reindex import NEW_ROW, reindex
from trimtab.sizing.strategy import Floats, Indices, Strategy, Targets, strategy
from trimtab.sizing.tracking.evidence_tracker import (
    Booleans,
    EvidenceTracker,
    EvidenceTrackerSettings,
    Hashes,
)
from trimtab.sizing.tracking.proposal_history import (
    HOUR,
    ProposalHistory,
    ProposalHistorySettings,
    RecentTargets,
)

K = TypeVar("K", bound=tuple[Any, ...])

MIN_ROWS = 16
SPARE_FACTOR = 1.1
"""Rows made for each one that is needed."""

_OPTIONAL_PARTS = frozenset({"proposed"})
"""What was not kept in earlier times."""


class _TableState(msgspec.Struct, frozen=True, array_like=True):
    """The state of a table: each kind has its own part of it, and nothing in the others.

    In earlier times a fleet kept the evidence too: an `EvidenceTable` understands such a state as well.
    """

    keys: tuple[Any, ...]
    rows: tuple[int, ...]
    taken: int
    containers: int
    strategy: bytes = b""
    witness: bytes = b""
    proposed: bytes = b""


class ContainerTable(Generic[K]):
    """The row that each container has in the `known` parts; a key is a named tuple of strings."""

    def __init__(self, parts: Mapping[str, ArrayState[Any]], *, key: type[K]) -> None:
        self._key = key
        self._parts = dict(parts)
        self._rows: dict[K, int] = {}
        self._used_rows = 0

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: K) -> bool:
        return key in self._rows

    def __iter__(self) -> Iterator[K]:
        return iter(self._rows)

    @property
    def capacity(self) -> int:
        """How many rows there are, the spare ones included."""
        return next(iter(self._parts.values())).containers

    def add(self, keys: Iterable[K]) -> None:
        """Give a row to each that has none; it knows nothing yet."""
        new = [key for key in dict.fromkeys(keys) if key not in self._rows]
        if self._used_rows + len(new) > self.capacity:
            self._grow(len(self._rows) + len(new))
        for key in new:
            self._rows[key] = self._used_rows
            self._used_rows += 1

    def forget(self, keys: Iterable[K]) -> None:
        """Let go of what is known of these."""
        for key in keys:
            self._rows.pop(key, None)

    def find_rows(self, keys: Iterable[K]) -> Indices:
        """Where these containers are, for `observe` and the others; good until one is included."""
        return np.fromiter((self._rows[key] for key in keys), dtype=np.intp)

    def state(self) -> bytes:
        """All that is known, and of whom."""
        kept = _TableState(
            keys=tuple(self._rows),
            rows=tuple(self._rows.values()),
            taken=self._used_rows,
            containers=self.capacity,
            **{name: part.state() for name, part in self._parts.items()},
        )
        return msgspec.msgpack.encode(kept)

    def restore(self, state: bytes) -> None:
        """Take over what `state` returned from a table of the same kind and settings; else `ValueError`."""
        try:
            kept = msgspec.msgpack.decode(state, type=_TableState)
            keys = msgspec.convert(kept.keys, tuple[self._key, ...])  # type: ignore[name-defined]
        except msgspec.MsgspecError as error:
            raise ValueError(f"state: these bytes are no table's: {error}") from None
        if len(keys) != len(kept.rows) or not (
            all(0 <= row < kept.taken for row in kept.rows) and kept.taken <= kept.containers
        ):
            raise ValueError("state: its rows are not in order")
        known = {name: type(part)(kept.containers, part.settings) for name, part in self._parts.items()}
        for name, part in known.items():
            data: bytes = getattr(kept, name)
            if data or name not in _OPTIONAL_PARTS:
                part.restore(data)
        self._parts = known
        self._rows = dict(zip(keys, kept.rows, strict=True))
        self._used_rows = kept.taken

    def _scatter(self, rows: Indices, values: Floats) -> Floats:
        whole = np.full(self.capacity, np.nan)
        whole[rows] = values
        return whole

    def _grow(self, needed: int) -> None:
        rows = np.full(max(MIN_ROWS, int(needed * SPARE_FACTOR)), NEW_ROW, dtype=np.intp)
        rows[: len(self._rows)] = list(self._rows.values())
        for name in self._parts:  # one after the other: each is let go of before the next is copied
            self._parts[name] = reindex(self._parts[name], rows)
        self._rows = {key: row for row, key in enumerate(self._rows)}
        self._used_rows = len(self._rows)


class StrategyTable(ContainerTable[K]):
    """What a strategy with its settings learned of containers, and what it proposed for them lately."""

    def __init__(self, name: str, settings: Mapping[str, Any], *, key: type[K]) -> None:
        sizer: Strategy[Any] = strategy(name, containers=MIN_ROWS, **settings)
        super().__init__(
            {"strategy": sizer, "proposed": ProposalHistory(MIN_ROWS, ProposalHistorySettings())}, key=key
        )

    @property
    def strategy(self) -> Strategy[Any]:
        """For whoever brings what was learned elsewhere; its rows are those of `rows`."""
        found: Strategy[Any] = self._parts["strategy"]  # type: ignore[assignment]
        return found

    @property
    def _proposal_history(self) -> ProposalHistory:
        found: ProposalHistory = self._parts["proposed"]  # type: ignore[assignment]
        return found

    def observe(self, t: float, rows: Indices, *, cpu: Floats, memory: Floats) -> None:
        """Take in one sample of each of these containers; the others had none. A row named twice is a fault of the caller."""
        self.strategy.observe(t, self._scatter(rows, cpu), self._scatter(rows, memory))

    def observe_oom(self, t: Floats, rows: Indices, memory: Floats) -> None:
        """Take in that these containers were killed for memory, when and at how many bytes; each kill once.

        That is what they had requested, if it is known: a strategy sizes requests, and how far above theirs they were is
        for its samples to say.
        """
        hours, told = t // HOUR, np.isfinite(memory)
        for hour in np.unique(hours[told]):  # one kill may be of now and another of days ago
            then = told & (hours == hour)
            self.strategy.observe_oom(float(t[then].max()), rows[then], memory[then])

    def recommend(self, t: float) -> Targets:
        """The sizes of all, by row."""
        return self.strategy.recommend(t)

    def propose(self, t: float) -> Targets:
        """The same, and remembered."""
        sizes = self.strategy.recommend(t)
        self._proposal_history.record(t, sizes)
        return sizes

    def is_due(self, t: float, *, until: float) -> bool:
        """Whether it is time to propose again, or what is remembered at `until` would have a gap."""
        return self._proposal_history.is_due(t, until=until)

    def recent_targets(self, t: float, row: int) -> RecentTargets:
        """What was proposed for this container in the last day."""
        return self._proposal_history.recent_targets(t, row)


class EvidenceTable(ContainerTable[K]):
    """What was seen of containers: how much is known of each, its peaks, its kills, the sizes that it had."""

    def __init__(self, *, key: type[K]) -> None:
        super().__init__({"witness": EvidenceTracker(MIN_ROWS, EvidenceTrackerSettings())}, key=key)

    @property
    def _tracker(self) -> EvidenceTracker:
        found: EvidenceTracker = self._parts["witness"]  # type: ignore[assignment]
        return found

    def observe(
        self,
        t: float,
        rows: Indices,
        *,
        cpu: Floats,
        memory: Floats,
        throttled: Floats | None = None,
        running: Indices | None = None,
        sample_seconds: float = 0.0,
    ) -> None:
        """Take in one sample of each of these containers; the others had none.

        Of those in `running` there should have been one; each stands for `lasts` seconds. A row named twice is a fault of
        the caller.
        """
        self._tracker.observe(
            t,
            self._scatter(rows, cpu),
            self._scatter(rows, memory),
            throttled=None if throttled is None else self._scatter(rows, throttled),
            running=None if running is None else np.isin(np.arange(self.capacity), running),
            sample_seconds=sample_seconds,
        )

    def observe_oom(
        self,
        t: Floats,
        rows: Indices,
        memory: Floats,
        *,
        images: Hashes | None = None,
        estimated: bool = False,
    ) -> Booleans:
        """Take in that these containers were killed for memory, when and at how many bytes; return which were not known.

        `estimated` is memory that samples tell: such a kill counts at least at the size that `observe_sizes` tells next.
        """
        return self._tracker.observe_oom(t, rows, memory, images=images, estimated=estimated)

    def observe_sizes(
        self, t: float, rows: Indices, memory: Floats, *, before: Floats, images: Hashes
    ) -> None:
        """Take in the memory that these containers have in effect, the most that they had before, and their images."""
        self._tracker.observe_sizes(t, rows, memory, before=before, images=images)

    def memory_peak(self, t: float, rows: Indices) -> Floats:
        """Return the highest memory of these containers in the week up to `t`; NaN where there is no sample."""
        return self._tracker.memory_peak(t, rows)

    def collect_evidence(self, t: float, rows: Indices, *, is_long_running: Sequence[bool]) -> list[Evidence]:
        """What was seen of these containers; `runs_on` where they run all the time, as a Job's do not."""
        return self._tracker.collect_evidence(t, rows, is_long_running=is_long_running)

    def first_sample_at(self) -> float | None:
        """Return the time of the first sample of any container; None where there is none."""
        return self._tracker.first_sample_at(self.find_rows(self._rows))

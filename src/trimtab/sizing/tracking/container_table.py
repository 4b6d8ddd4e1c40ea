"""Map containers to rows while they come and go.

A strategy and a tracker know rows, an operator knows names. Here each name has a row; spare rows are kept so
that a new container seldom costs a copy of everything, and rows of forgotten containers are reused when the
spare ones run out. The state of one strategy with its settings is one table (`StrategyTable`). The evidence
about containers, whatever their strategy, is another (`EvidenceTable`): it survives a change of policy.
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
"""The rows that are allocated for each one that is needed."""

_OPTIONAL_PARTS = frozenset({"proposed"})
"""The parts that states of the first version do not have."""


class _TableState(msgspec.Struct, frozen=True, array_like=True):
    """The stored state of a table: each kind of table fills its own parts.

    In the first version a strategy's table also held the evidence; an `EvidenceTable` reads such a state too.
    """

    keys: tuple[Any, ...]
    rows: tuple[int, ...]
    taken: int
    containers: int
    strategy: bytes = b""
    witness: bytes = b""
    proposed: bytes = b""


class ContainerTable(Generic[K]):
    """The row of each container in its parts; a key is a named tuple of strings."""

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
        """The number of rows, including spare ones."""
        return next(iter(self._parts.values())).containers

    def add(self, keys: Iterable[K]) -> None:
        """Give an empty row to each container that has none."""
        new = [key for key in dict.fromkeys(keys) if key not in self._rows]
        if self._used_rows + len(new) > self.capacity:
            self._grow(len(self._rows) + len(new))
        for key in new:
            self._rows[key] = self._used_rows
            self._used_rows += 1

    def forget(self, keys: Iterable[K]) -> None:
        """Forget these containers."""
        for key in keys:
            self._rows.pop(key, None)

    def find_rows(self, keys: Iterable[K]) -> Indices:
        """Return the rows of these containers, for `observe` and other methods; valid until the next `add`."""
        return np.fromiter((self._rows[key] for key in keys), dtype=np.intp)

    def state(self) -> bytes:
        """Return the whole state and its containers as bytes."""
        kept = _TableState(
            keys=tuple(self._rows),
            rows=tuple(self._rows.values()),
            taken=self._used_rows,
            containers=self.capacity,
            **{name: part.state() for name, part in self._parts.items()},
        )
        return msgspec.msgpack.encode(kept)

    def restore(self, state: bytes) -> None:
        """Restore the bytes that `state` returned from a table of the same kind and settings; raise
        `ValueError` for others.
        """
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
        # One after another, so that each old part is released before the next is copied.
        for name in self._parts:
            self._parts[name] = reindex(self._parts[name], rows)
        self._rows = {key: row for row, key in enumerate(self._rows)}
        self._used_rows = len(self._rows)


class StrategyTable(ContainerTable[K]):
    """The state of a strategy for its containers, and its recent proposals."""

    def __init__(self, name: str, settings: Mapping[str, Any], *, key: type[K]) -> None:
        sizer: Strategy[Any] = strategy(name, containers=MIN_ROWS, **settings)
        super().__init__(
            {"strategy": sizer, "proposed": ProposalHistory(MIN_ROWS, ProposalHistorySettings())}, key=key
        )

    @property
    def strategy(self) -> Strategy[Any]:
        """The strategy itself, for callers that import state; its rows are those of `find_rows`."""
        found: Strategy[Any] = self._parts["strategy"]  # type: ignore[assignment]
        return found

    @property
    def _proposal_history(self) -> ProposalHistory:
        found: ProposalHistory = self._parts["proposed"]  # type: ignore[assignment]
        return found

    def observe(self, t: float, rows: Indices, *, cpu: Floats, memory: Floats) -> None:
        """Learn one sample of each of these containers; the others had none. Each row may be named once only."""
        self.strategy.observe(t, self._scatter(rows, cpu), self._scatter(rows, memory))

    def observe_oom(self, t: Floats, rows: Indices, memory: Floats) -> None:
        """Learn that these containers were OOM killed, with the time and the bytes; each kill once.

        The bytes are the requests, if known: a strategy sizes requests, and its samples show how far above
        them usage was.
        """
        hours, told = t // HOUR, np.isfinite(memory)
        for hour in np.unique(hours[told]):  # One kill may be from now and another from days ago.
            then = told & (hours == hour)
            self.strategy.observe_oom(float(t[then].max()), rows[then], memory[then])

    def recommend(self, t: float) -> Targets:
        """Return the targets of all containers, by row."""
        return self.strategy.recommend(t)

    def propose(self, t: float) -> Targets:
        """Return the targets of all containers and remember them."""
        sizes = self.strategy.recommend(t)
        self._proposal_history.record(t, sizes)
        return sizes

    def is_due(self, t: float, *, until: float) -> bool:
        """Return whether a proposal is due, because the memory at `until` would otherwise have a gap."""
        return self._proposal_history.is_due(t, until=until)

    def recent_targets(self, t: float, row: int) -> RecentTargets:
        """Return the targets that were proposed for this container in the last day."""
        return self._proposal_history.recent_targets(t, row)


class EvidenceTable(ContainerTable[K]):
    """The evidence about containers: history, peaks, OOM kills and earlier sizes."""

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
        """Record one sample of each of these containers; the others had none.

        The containers in `running` should have had one; each sample lasts `sample_seconds`. Each row may be
        named once only.
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
        """Record OOM kills with their times and bytes; return which of them are new.

        With `estimated`, the memory comes from samples: such a kill counts at least at the size of the next
        `observe_sizes`.
        """
        return self._tracker.observe_oom(t, rows, memory, images=images, estimated=estimated)

    def observe_sizes(
        self, t: float, rows: Indices, memory: Floats, *, before: Floats, images: Hashes
    ) -> None:
        """Record the memory that these containers have in effect, the most that they had before, and their
        images.
        """
        self._tracker.observe_sizes(t, rows, memory, before=before, images=images)

    def memory_peak(self, t: float, rows: Indices) -> Floats:
        """Return the highest memory of these containers in the week up to `t`; NaN where there is no sample."""
        return self._tracker.memory_peak(t, rows)

    def collect_evidence(self, t: float, rows: Indices, *, is_long_running: Sequence[bool]) -> list[Evidence]:
        """Return the evidence about these containers; `is_long_running` is False for those of Jobs."""
        return self._tracker.collect_evidence(t, rows, is_long_running=is_long_running)

    def first_sample_at(self) -> float | None:
        """Return the time of the first sample of any container; None where there is none."""
        return self._tracker.first_sample_at(self.find_rows(self._rows))

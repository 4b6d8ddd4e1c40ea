"""Save the dashboard to a file, and show it again anywhere, without the cluster.

The file is versioned JSON. It has details only for the most important workloads, to keep it small. It is read-only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec

from trimtab.errors import TrimtabError
from trimtab.kube.errors import DECODE_ERRORS
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.web.backends.backend import DashboardBackend
from trimtab.web.model import (
    ActionError,
    HistoryEntry,
    IntentView,
    NodeSummary,
    Overview,
    ViewRecord,
    WorkloadAction,
    WorkloadDetail,
    WorkloadRow,
)

VERSION = 1
MAX_DETAILS = 30
MAX_HISTORY = 5000


class DashboardSnapshot(ViewRecord, frozen=True, kw_only=True):
    """The complete data of a dashboard at one time."""

    version: int = VERSION
    name: str
    overview: Overview
    workloads: tuple[WorkloadRow, ...] = ()
    details: tuple[WorkloadDetail, ...] = ()
    intents: tuple[IntentView, ...] = ()
    nodes: tuple[NodeSummary, ...] = ()
    history: tuple[HistoryEntry, ...] = ()

    def encode(self) -> bytes:
        # Readers check the version first, so it is written although it is the default.
        return msgspec.json.encode({"version": self.version, **msgspec.to_builtins(self)})


class _Versioned(msgspec.Struct):
    version: int


def read_snapshot(path: Path) -> DashboardSnapshot:
    """Read a snapshot from its file; raises `TrimtabError` with one line if that fails."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise TrimtabError(f"--snapshot {path}: cannot be read: {error.strerror}") from None
    try:
        version = msgspec.json.decode(text, type=_Versioned).version
        if version != VERSION:
            raise TrimtabError(
                f"--snapshot {path}: has version {version}, but this trimtab reads version {VERSION}; save a new snapshot"
            )
        return msgspec.json.decode(text, type=DashboardSnapshot)
    except DECODE_ERRORS as error:
        raise TrimtabError(f"--snapshot {path}: is not a dashboard snapshot: {error}") from None


async def take_snapshot(backend: DashboardBackend) -> DashboardSnapshot:
    """Take a snapshot of a backend."""
    rows = tuple(await backend.workloads())
    most_important = sorted(rows, key=lambda row: (-len(row.risks), -abs(row.saving), -(row.changed or 0.0)))
    details = [await backend.workload(row.key) for row in most_important[:MAX_DETAILS]]
    return DashboardSnapshot(
        name=backend.name,
        overview=await backend.overview(),
        workloads=rows,
        details=tuple(found for found in details if found),
        intents=tuple(await backend.intents()),
        nodes=tuple(await backend.nodes()),
        history=tuple(await backend.history(limit=MAX_HISTORY)),
    )


class SnapshotBackend:
    """The backend of a snapshot file."""

    def __init__(self, snapshot: DashboardSnapshot) -> None:
        self._snapshot = snapshot
        self._details = {found.row.key: found for found in snapshot.details}
        self._rows = {row.key: row for row in snapshot.workloads}
        self.name = snapshot.name
        self.read_only_reason = "this is a snapshot, which is read-only"
        self.stop_reason = ""
        self.currency = snapshot.overview.money.currency
        self.version = 1
        self.observed_at = snapshot.overview.at
        self.problem = snapshot.overview.problem

    async def wait_changed(self, after: int) -> int:
        if after != self.version:
            return self.version
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async def overview(self) -> Overview:
        return self._snapshot.overview

    async def workloads(self) -> Sequence[WorkloadRow]:
        return self._snapshot.workloads

    async def workload(
        self,
        key: WorkloadKey,
        *,
        wait: bool = True,  # noqa: ARG002 - a file has nothing to wait for
    ) -> WorkloadDetail | None:
        if found := self._details.get(key):
            # The actions of the saved operator cannot be run from its file.
            return msgspec.structs.replace(found, acts={})
        row = self._rows.get(key)
        return WorkloadDetail(row=row, events=tuple(await self.history(key=key))) if row else None

    async def intents(self) -> Sequence[IntentView]:
        return self._snapshot.intents

    async def nodes(self) -> Sequence[NodeSummary]:
        return self._snapshot.nodes

    async def history(
        self, *, key: WorkloadKey | None = None, what: str = "", before: int | None = None, limit: int = 50
    ) -> Sequence[HistoryEntry]:
        return filter_history(self._snapshot.history, key=key, what=what, before=before, limit=limit)

    async def entry(self, number: int) -> HistoryEntry | None:
        return next((entry for entry in self._snapshot.history if entry.id == number), None)

    async def run_action(self, act: WorkloadAction, key: WorkloadKey, *, who: str, why: str) -> str:
        raise ActionError(f"{act} {key}, for {who} ({why}): {self.read_only_reason}")

    async def undo(self, number: int, *, who: str, why: str) -> str:
        raise ActionError(f"undo {number}, for {who} ({why}): {self.read_only_reason}")


def filter_history(
    entries: Sequence[HistoryEntry], *, key: WorkloadKey | None, what: str, before: int | None, limit: int
) -> Sequence[HistoryEntry]:
    """Filter entries, newest first; with `before`, only those after the entry of that number."""
    found = [entry for entry in entries if (key is None or entry.key == key) and what in {"", entry.what}]
    if before is not None:
        place = next((place for place, entry in enumerate(found) if entry.id == before), len(found))
        found = found[place + 1 :]
    return found[:limit]

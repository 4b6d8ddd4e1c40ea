"""The port between the pages and what they show: a live operator, the demo's simulated cluster, or a file.

Reads cost no request where that can be had; only one workload's page asks for its past. Who may act is not asked here:
that is `access`. What cannot be done is an `ActError`, in one line for the person who asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from trimtab.errors import TrimtabError
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.web.model import (
    HistoryEntry,
    IntentView,
    NodeSummary,
    Overview,
    WorkloadAction,
    WorkloadDetail,
    WorkloadRow,
)


class ActionError(TrimtabError):
    """Why what was asked for was not done."""


class DashboardBackend(Protocol):
    """What can be seen of a cluster, and done about it."""

    name: str
    """Of the cluster."""
    read_only_reason: str
    """Why nobody can act here; empty where some can."""
    currency: str

    @property
    def observed_at(self) -> float:
        """Of when it is what is shown."""
        ...

    @property
    def problem(self) -> str:
        """What keeps all of it from being up to date; empty where nothing does."""
        ...

    @property
    def version(self) -> int:
        """Another number whenever there is something new to see."""
        ...

    async def wait_changed(self, after: int) -> int:
        """Wait until there is another version than this; the answer is it."""
        ...

    async def overview(self) -> Overview: ...

    async def workloads(self) -> Sequence[WorkloadRow]:
        """All of them; the same object for as long as nothing has changed."""
        ...

    async def workload(self, key: WorkloadKey) -> WorkloadDetail | None: ...

    async def intents(self) -> Sequence[IntentView]: ...

    async def nodes(self) -> Sequence[NodeSummary]: ...

    async def history(
        self, *, key: WorkloadKey | None = None, what: str = "", before: int | None = None, limit: int = 50
    ) -> Sequence[HistoryEntry]:
        """Newest first; those older than the entry numbered `before`."""
        ...

    async def entry(self, number: int) -> HistoryEntry | None: ...

    async def run_action(self, act: WorkloadAction, key: WorkloadKey, *, who: str, why: str) -> str:
        """Do it; the answer tells what comes of it."""
        ...

    async def undo(self, number: int, *, who: str, why: str) -> str:
        """Bring the workload of a history entry back to what it had before that."""
        ...

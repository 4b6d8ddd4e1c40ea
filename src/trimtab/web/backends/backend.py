"""The port between the pages and their data: a live operator, the demo's simulated cluster, or a file.

Reads avoid requests to the cluster; only the page of one workload reads its history. Authorization is not done here but
in `auth`. A failed action raises `ActionError` with one line for the user.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

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


class DashboardBackend(Protocol):
    """The data of a cluster, and the actions on it."""

    name: str
    """The name of the cluster."""
    read_only_reason: str
    """The reason why nobody can act here; empty if actions are possible."""

    @property
    def currency(self) -> str:
        """The currency sign or word in front of amounts."""
        ...

    @property
    def stop_reason(self) -> str:
        """The description of the emergency stop in effect; empty if there is none."""
        ...

    @property
    def observed_at(self) -> float:
        """The time of the data that is shown."""
        ...

    @property
    def problem(self) -> str:
        """The problem that keeps the data from being up to date; empty if there is none."""
        ...

    @property
    def version(self) -> int:
        """The version of the data, which changes whenever there is something new."""
        ...

    async def wait_changed(self, after: int) -> int:
        """Wait for another version than this, and return it."""
        ...

    async def overview(self) -> Overview: ...

    async def workloads(self) -> Sequence[WorkloadRow]:
        """Return all workloads; the same object as long as nothing changed."""
        ...

    async def workload(self, key: WorkloadKey, *, wait: bool = True) -> WorkloadDetail | None:
        """Return a workload's details; without `wait`, its past only if it is known already."""
        ...

    async def intents(self) -> Sequence[IntentView]: ...

    async def nodes(self) -> Sequence[NodeSummary]: ...

    async def history(
        self, *, key: WorkloadKey | None = None, what: str = "", before: int | None = None, limit: int = 50
    ) -> Sequence[HistoryEntry]:
        """Return history entries, newest first, older than the entry numbered `before`."""
        ...

    async def entry(self, number: int) -> HistoryEntry | None: ...

    async def run_action(self, act: WorkloadAction, key: WorkloadKey, *, who: str, why: str) -> str:
        """Run an action and return its result for the user."""
        ...

    async def undo(self, number: int, *, who: str, why: str) -> str:
        """Hold the workload of a history entry at its size before that entry."""
        ...

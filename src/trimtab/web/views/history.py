"""Build history entries from the records of the store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from trimtab.actuation.resources import format_sizes, parse_sizes
from trimtab.store import HistoryRecord as Stored
from trimtab.web.model import HistoryEntry


def build_history_entry(stored: Stored) -> HistoryEntry:
    return HistoryEntry(
        id=stored.id,
        at=stored.timestamp,
        kind=stored.kind,
        namespace=stored.namespace,
        name=stored.name,
        container=stored.container,
        what=stored.what,
        before=_format_sizes(stored.before, stored.container),
        after=_format_sizes(stored.after, stored.container),
        who=stored.who,
        why=_format_reason(stored),
        undo=stored.what == "applied" and bool(stored.before),
    )


def merge_kills(entries: Iterable[HistoryEntry]) -> list[HistoryEntry]:
    """Merge the OOM kills of each container into its newest one, for entries newest first.

    A container in a crash loop is killed every few minutes, and would push everything else out of a short list.
    """
    merged: dict[object, HistoryEntry] = {}
    for entry in entries:
        identity: object = (entry.key, entry.container) if entry.what == "killed" else entry.id
        newest = merged.get(identity)
        merged[identity] = (
            msgspec.structs.replace(newest, times=newest.times + entry.times, since=entry.at)
            if newest
            else entry
        )
    return [
        msgspec.structs.replace(
            entry, why=f"{entry.why}, {entry.times} times since {_format_time(entry.since)}"
        )
        if entry.times > 1
        else entry
        for entry in merged.values()
    ]


def _format_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _format_sizes(side: Mapping[str, Any] | None, container: str) -> str:
    sizes = parse_sizes(side, container)
    text = format_sizes(sizes)
    return text.partition(": ")[2] if len(sizes) == 1 else text  # a single container needs no name


def _format_reason(stored: Stored) -> str:
    """Return the reason of an entry; for a recommendation only the lines about its CPU and memory."""
    lines = stored.why.splitlines()
    relevant = [line for line in lines if line.startswith(("cpu", "memory"))]
    return "\n".join(relevant) if stored.what == "recommended" and relevant else stored.why

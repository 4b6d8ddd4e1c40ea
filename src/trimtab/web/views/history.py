"""Build history entries from the records of the store and from OOM kills."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from trimtab.actuation.resources import format_sizes
from trimtab.api.format import format_short
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.sizing.evidence import OomKills
from trimtab.store import HistoryRecord as Stored
from trimtab.web.model import HistoryEntry
from trimtab.web.views.resources import parse_sizes


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


def build_kill_entries(key: WorkloadKey, container: str, kills: Iterable[OomKills]) -> list[HistoryEntry]:
    """Build an entry for the OOM kills at each size; the store's history has none, because kills are observed."""
    return [
        HistoryEntry(
            id=0,
            at=each.last,
            kind=key.kind,
            namespace=key.namespace,
            name=key.name,
            container=container,
            what="killed",
            who="the kernel",
            why=f"OOM-killed at {format_short('memory', each.memory)}{_format_times(each)}",
            times=each.count,
            since=each.first,
        )
        for each in kills
    ]


def _format_times(kills: OomKills) -> str:
    if kills.count == 1:
        return ""
    since = datetime.fromtimestamp(kills.first, UTC).strftime("%Y-%m-%d %H:%M")
    return f", {kills.count} times since {since} UTC"


def number_kills(kills: Iterable[HistoryEntry]) -> tuple[HistoryEntry, ...]:
    """Number the kills, newest first, with negative numbers from their times, so that numbers stay stable."""
    found: dict[int, HistoryEntry] = {}
    for kill in sorted(kills, key=lambda kill: (kill.at, kill.key, kill.container)):
        number = -int(kill.at * 1000)
        while number in found:  # the kills of one step share their time
            number -= 1
        found[number] = msgspec.structs.replace(kill, id=number)
    return tuple(reversed(found.values()))


def _format_sizes(side: Mapping[str, Any] | None, container: str) -> str:
    sizes = parse_sizes(side, container)
    text = format_sizes(sizes)
    return text.partition(": ")[2] if len(sizes) == 1 else text  # a single container needs no name


def _format_reason(stored: Stored) -> str:
    """Return the reason of an entry; for a recommendation only the lines about its CPU and memory."""
    lines = stored.why.splitlines()
    relevant = [line for line in lines if line.startswith(("cpu", "memory"))]
    return "\n".join(relevant) if stored.what == "recommended" and relevant else stored.why

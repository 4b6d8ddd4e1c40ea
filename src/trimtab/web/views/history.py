"""The store's history as the pages show it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from trimtab.actuation.resources import format_sizes
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.scan.render.units import format_memory
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
    """Return an entry for the OOM kills at each size: the store's history has none, for they are learned and not done."""
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
            why=f"out of memory, with {format_memory(each.memory)}{_format_times(each)}",
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
    """The newest first, each with a number of its own: below 0, and by its time, so that it keeps it when others come."""
    found: dict[int, HistoryEntry] = {}
    for kill in sorted(kills, key=lambda kill: (kill.at, kill.key, kill.container)):
        number = -int(kill.at * 1000)
        while number in found:  # pods of one step are told of at one time
            number -= 1
        found[number] = msgspec.structs.replace(kill, id=number)
    return tuple(reversed(found.values()))


def _format_sizes(side: Mapping[str, Any] | None, container: str) -> str:
    sizes = parse_sizes(side, container)
    text = format_sizes(sizes)
    return text.partition(": ")[2] if len(sizes) == 1 else text  # of one, all know which


def _format_reason(stored: Stored) -> str:
    """Of a recommendation, whose reasons begin with what it rests on, only what was done to its numbers."""
    lines = stored.why.splitlines()
    telling = [line for line in lines if line.startswith(("cpu", "memory"))]
    return "\n".join(telling) if stored.what == "recommended" and telling else stored.why

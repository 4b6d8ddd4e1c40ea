"""What came of a demo, in a few figures: for programs as a document, for people as lines with a chart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from trimtab.plural import counted
from trimtab.scan.render.text_chart import chart
from trimtab.scan.render.units import cpu_text, memory_text, money_text, share_text
from trimtab.web.backends.backend import Board
from trimtab.web.model import HistoryEntry, Overview, Plot, Role, Values

Document = dict[str, Any]

MOST_HISTORY = 100_000
CHART_HEIGHT = 10


async def summary(board: Board, *, days: float, seed: int) -> Document:
    """All figures; times are simulated."""
    overview, rows = await board.overview(), await board.workloads()
    history = await board.history(limit=MOST_HISTORY)
    counts = Counter(entry.what for entry in history)
    intents = await board.intents()
    return {
        "days": days,
        "seed": seed,
        "workloads": len(rows),
        "pods": sum(row.pods for row in rows),
        "states": overview.states,
        "cpuCores": _resource(overview.cpu),
        "memoryBytes": _resource(overview.memory),
        "moneyMonth": {
            "atFirst": round(overview.money.at_first, 2),
            "now": round(overview.money.requested, 2),
            "saved": round(overview.money.at_first - overview.money.requested, 2),
            "toSave": round(overview.money.to_save, 2),
        },
        "nodes": {
            "neededAtFirst": overview.nodes_at_first,
            "neededNow": overview.nodes_needed,
            "there": overview.nodes,
        },
        "changes": {what: counts[what] for what in ("applied", "reverted", "recommended")},
        "kills": [_told(entry) for entry in history if entry.what == "killed"],
        "reverted": [_told(entry) for entry in history if entry.what == "reverted"],
        "intents": [
            {
                "name": f"{intent.namespace}/{intent.name}",
                "met": all(objective.met for objective in intent.objectives),
            }
            for intent in intents
        ],
        "series": {"times": list(overview.cpu.times), **_series(overview)},
    }


def lines(found: Document, *, width: int) -> Iterator[RenderableType]:
    """For a terminal."""
    money, nodes, changes = found["moneyMonth"], found["nodes"], found["changes"]
    yield Text(
        f"{counted(found['days'], 'simulated day')}, {counted(found['workloads'], 'workload')} "
        f"in {counted(found['pods'], 'pod')}, seed {found['seed']}",
        style="bold",
    )
    yield ""
    yield Text("CPU that is used, and what is requested for it:")
    series = found["series"]
    used = np.array([np.nan if each is None else each for each in series["cpuUsed"]]) * 1000
    first, last = series["cpuRequested"][0] * 1000, series["cpuRequested"][-1] * 1000
    drawn = {"requested at first": first, "requested now": last}
    yield from (
        Text(row, no_wrap=True) for row in chart(used, drawn, text=cpu_text, width=width, height=CHART_HEIGHT)
    )
    yield ""
    yield Text(
        f"Requested   {money_text(money['atFirst'])} -> {money_text(money['now'])} a month, "
        f"{share_text(abs(money['saved']), money['atFirst'])} {'less' if money['saved'] >= 0 else 'more'}; "
        f"{money_text(money['toSave'])} to save still"
    )
    for name, key, text in (("CPU", "cpuCores", _cores), ("memory", "memoryBytes", memory_text)):
        each = found[key]
        yield Text(
            f"{name:<11} {text(each['requestedAtFirst'])} -> {text(each['requestedNow'])} requested, "
            f"{text(each['usedMean'])} used on average"
        )
    yield Text(
        f"Nodes       {nodes['neededAtFirst']} -> {nodes['neededNow']} needed of {nodes['there']}: "
        f"{(nodes['neededAtFirst'] or 0) - (nodes['neededNow'] or 0)} freed"
    )
    yield Text(f"Changes     {changes['applied']} applied, {changes['reverted']} taken back")
    yield from _notable("OOM kills", found["kills"])
    yield from _notable("Taken back", found["reverted"])
    for intent in found["intents"]:
        yield Text(f"Intent      {intent['name']}: {'met' if intent['met'] else 'not met'}")


def _notable(title: str, entries: Sequence[Document]) -> Iterator[RenderableType]:
    """Of each workload what was last told of it, and how often something was."""
    times = Counter(entry["workload"] for entry in entries)
    last = {entry["workload"]: entry["why"] for entry in sorted(entries, key=lambda entry: entry["at"])}
    for place, (workload, count) in enumerate(times.most_common(3)):
        often = f" ({count} times)" if count > 1 else ""
        yield Text(
            f"{title if not place else '':<11} {workload}{often}: {last[workload]}",
            no_wrap=True,
            overflow="ellipsis",
        )
    if len(times) > 3:
        yield Text(f"{'':<11} and {counted(len(times) - 3, 'more workload')}", style="dim")


def _cores(amount: float) -> str:
    return cpu_text(amount * 1000)


def _told(entry: HistoryEntry) -> Document:
    return {"at": entry.at, "workload": f"{entry.namespace}/{entry.name}", "why": entry.why}


def _values(plot: Plot, role: Role) -> Values:
    return next((curve.values for curve in plot.curves if curve.role is role), ())


def _resource(plot: Plot) -> Document:
    requested = [each for each in _values(plot, Role.REQUESTED) if each is not None]
    used = [each for each in _values(plot, Role.USED) if each is not None]
    return {
        "requestedAtFirst": requested[0] if requested else 0.0,
        "requestedNow": requested[-1] if requested else 0.0,
        "usedMean": sum(used) / len(used) if used else 0.0,
    }


def _series(overview: Overview) -> Document:
    return {
        f"{name}{role.value.capitalize()}": list(_values(plot, role))
        for name, plot in (("cpu", overview.cpu), ("memory", overview.memory))
        for role in (Role.REQUESTED, Role.USED, Role.ALLOCATABLE)
    }

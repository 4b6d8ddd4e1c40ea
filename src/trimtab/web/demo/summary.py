"""Summarize a demo: as a document for programs, as text with a chart for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.text import Text

from trimtab.api.quantity import ResourceName, format_short
from trimtab.plural import pluralize
from trimtab.scan.pricing import format_money, format_share
from trimtab.scan.render.text_chart import draw_chart
from trimtab.web.backends.backend import DashboardBackend
from trimtab.web.model import CurveRole, CurveValues, HistoryEntry, Overview, Plot

SummaryDocument = dict[str, Any]

MAX_HISTORY = 100_000
CHART_HEIGHT = 10


async def build_summary(backend: DashboardBackend, *, days: float, seed: int) -> SummaryDocument:
    """Build the document of all figures; times are simulated."""
    overview, rows = await backend.overview(), await backend.workloads()
    history = await backend.history(limit=MAX_HISTORY)
    counts = Counter(entry.what for entry in history)
    intents = await backend.intents()
    return {
        "days": days,
        "seed": seed,
        "workloads": len(rows),
        "pods": sum(row.pods for row in rows),
        "states": overview.states,
        "cpuCores": _resource_record(overview.cpu),
        "memoryBytes": _resource_record(overview.memory),
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
        "kills": [_entry_record(entry) for entry in history if entry.what == "killed"],
        "reverted": [_entry_record(entry) for entry in history if entry.what == "reverted"],
        "intents": [
            {
                "name": f"{intent.namespace}/{intent.name}",
                "met": all(objective.met for objective in intent.objectives),
            }
            for intent in intents
        ],
        "series": {"times": list(overview.cpu.times), **_series_record(overview)},
    }


def render_summary(found: SummaryDocument, *, width: int) -> Iterator[RenderableType]:
    """Render the summary for a terminal."""
    money, nodes, changes = found["moneyMonth"], found["nodes"], found["changes"]
    yield Text(
        f"{pluralize(found['days'], 'simulated day')}, {pluralize(found['workloads'], 'workload')} "
        f"in {pluralize(found['pods'], 'pod')}, seed {found['seed']}",
        style="bold",
    )
    yield ""
    yield Text("CPU used, and CPU requested:")
    series = found["series"]
    used = np.array([np.nan if each is None else each for each in series["cpuUsed"]]) * 1000
    first, last = series["cpuRequested"][0] * 1000, series["cpuRequested"][-1] * 1000
    drawn = {"requested initially": first, "requested now": last}
    yield from (
        Text(row, no_wrap=True)
        for row in draw_chart(
            used, drawn, text=partial(format_short, "cpu"), width=width, height=CHART_HEIGHT
        )
    )
    yield ""
    yield Text(
        f"Requested   {format_money(money['atFirst'])} -> {format_money(money['now'])} a month, "
        f"{format_share(abs(money['saved']), money['atFirst'])} {'less' if money['saved'] >= 0 else 'more'}; "
        f"{format_money(money['toSave'])} more can be saved"
    )
    yield _render_resource("cpu", "CPU", found["cpuCores"], unit=1000)
    yield _render_resource("memory", "memory", found["memoryBytes"])
    yield Text(
        f"Nodes       {nodes['neededAtFirst']} -> {nodes['neededNow']} needed of {nodes['there']}: "
        f"{(nodes['neededAtFirst'] or 0) - (nodes['neededNow'] or 0)} freed"
    )
    yield Text(f"Changes     {changes['applied']} applied, {changes['reverted']} reverted")
    yield from _render_entries("OOM kills", found["kills"])
    yield from _render_entries("Reverted", found["reverted"])
    for intent in found["intents"]:
        yield Text(f"Intent      {intent['name']}: {'met' if intent['met'] else 'not met'}")


def _render_entries(title: str, entries: Sequence[SummaryDocument]) -> Iterator[RenderableType]:
    """Render the last entry of each workload, and the number of its entries."""
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
        yield Text(f"{'':<11} and {pluralize(len(times) - 3, 'more workload')}", style="dim")


def _render_resource(resource: ResourceName, title: str, found: SummaryDocument, *, unit: float = 1) -> Text:
    first, now, used = (
        format_short(resource, found[name] * unit)
        for name in ("requestedAtFirst", "requestedNow", "usedMean")
    )
    return Text(f"{title:<11} {first} -> {now} requested, {used} used on average")


def _entry_record(entry: HistoryEntry) -> SummaryDocument:
    return {"at": entry.at, "workload": f"{entry.namespace}/{entry.name}", "why": entry.why}


def _curve_values(plot: Plot, role: CurveRole) -> CurveValues:
    return next((curve.values for curve in plot.curves if curve.role is role), ())


def _resource_record(plot: Plot) -> SummaryDocument:
    requested = [each for each in _curve_values(plot, CurveRole.REQUESTED) if each is not None]
    used = [each for each in _curve_values(plot, CurveRole.USED) if each is not None]
    return {
        "requestedAtFirst": requested[0] if requested else 0.0,
        "requestedNow": requested[-1] if requested else 0.0,
        "usedMean": sum(used) / len(used) if used else 0.0,
    }


def _series_record(overview: Overview) -> SummaryDocument:
    return {
        f"{name}{role.value.capitalize()}": list(_curve_values(plot, role))
        for name, plot in (("cpu", overview.cpu), ("memory", overview.memory))
        for role in (CurveRole.REQUESTED, CurveRole.USED, CurveRole.ALLOCATABLE)
    }

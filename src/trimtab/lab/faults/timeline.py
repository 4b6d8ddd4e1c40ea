"""A run as an HTML page: lanes of processes, workloads and faults over time, and below every entry of the trace by hour.

The page is self-contained: the chart is SVG, and it has no scripts and no external resources. The template engine
escapes all texts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from trimtab.lab.faults.records import Violation
from trimtab.lab.faults.runner import CaseResult
from trimtab.lab.faults.trace import FAILED, KILLED, STARTED, STOPPED, TraceEntry, format_time

if TYPE_CHECKING:
    from jinja2 import Environment

WIDTH, LABEL, PITCH = 1220, 330, 20
MAX_TITLE_LINES = 8
"""The number of entries that the tooltip of a tick shows."""
HOUR = 3600.0

COLOURS = {
    "annotate": "#2c6fbb",
    "resize": "#0b6e4f",
    "evict": "#b7791f",
    "patch": "#7b4fa3",
    "OOMKilled": "#c0392b",
    KILLED: "#c0392b",
    FAILED: "#c0392b",
}
"""The colours of ticks by the kind of entry."""
OTHER, FAULT, PROCESS = "#718096", "#d98c3f", "#a9c7ea"
LEGEND = (
    *((kind, COLOURS[kind]) for kind in ("annotate", "resize", "evict", "patch")),
    ("killed or failed", COLOURS[KILLED]),
    ("anything else", OTHER),
    ("a process runs", PROCESS),
    ("a fault is active", FAULT),
)


class Tick(NamedTuple):
    """A tick in a lane for all entries of one kind that are at the same place."""

    x: float
    colour: str
    title: str


class Bar(NamedTuple):
    """A span of time in a lane."""

    x: float
    length: float
    colour: str
    title: str


class Lane(NamedTuple):
    """A row of the chart."""

    group: str
    label: str
    bars: Sequence[Bar]
    ticks: Sequence[Tick]


class Hour(NamedTuple):
    """The entries of one hour; it is open on the page if an invariant was violated in it."""

    title: str
    is_open: bool
    lines: Sequence[str]


class _Scale(NamedTuple):
    begin: float
    end: float

    def place(self, at: float) -> float:
        share = (min(max(at, self.begin), self.end) - self.begin) / (self.end - self.begin)
        return round(LABEL + share * (WIDTH - LABEL), 1)


def render_timeline(result: CaseResult, *, command: str, hours: tuple[float, float] | None = None) -> str:
    """Render the page of a run; `command` repeats it, and `hours` after its start limit the page to a part of it."""
    world = result.case.world
    first, last = hours or (0.0, world.days * 24)
    scale = _Scale(world.start + first * HOUR, world.start + last * HOUR)
    entries = [each for each in result.entries if scale.begin <= each.at <= scale.end]
    lanes = [
        *_build_process_lanes(entries, result.entries, scale),
        *_build_workload_lanes(entries, [str(each.key) for each in world.workloads], scale),
        *_build_fault_lanes(entries, result, scale),
    ]
    return (
        _build_environment()
        .get_template("timeline.html")
        .render(
            title=f"Seed {result.case.seed}",
            command=command,
            result=result,
            world=world,
            lanes=lanes,
            times=list(_list_times(scale)),
            violations=[(scale.place(each.at), each) for each in result.violations],
            hours=_group_by_hour(entries, result.violations),
            legend=LEGEND,
            format_time=format_time,
            width=WIDTH,
            label=LABEL,
            pitch=PITCH,
        )
        + "\n"
    )


def _build_process_lanes(
    entries: Sequence[TraceEntry], everything: Sequence[TraceEntry], scale: _Scale
) -> Iterator[Lane]:
    life: dict[str, list[float]] = {}
    for each in everything:
        if each.kind == STARTED:
            life[each.actor] = [each.at, scale.end]
        elif each.kind in {STOPPED, KILLED} and each.actor in life:
            life[each.actor][1] = min(life[each.actor][1], each.at)
    for name, (begin, end) in life.items():
        if end < scale.begin or begin > scale.end:
            continue
        bar = _build_bar(begin, end, scale, PROCESS, f"{name} runs")
        yield Lane("Processes", name, [bar], _build_ticks((e for e in entries if e.actor == name), scale))


def _build_workload_lanes(
    entries: Sequence[TraceEntry], workloads: Sequence[str], scale: _Scale
) -> Iterator[Lane]:
    for name in workloads:
        own = (each for each in entries if each.target == name and each.actor != "fault")
        yield Lane("Workloads", name, [], _build_ticks(own, scale))


def _build_fault_lanes(entries: Sequence[TraceEntry], result: CaseResult, scale: _Scale) -> Iterator[Lane]:
    start = result.case.world.start
    for fault in result.plan.faults:
        begin, end = start + fault.start, start + fault.end
        if end < scale.begin or begin > scale.end:
            continue
        details = [f"share {fault.share:g}"] if fault.share < 1 else []
        details += [f"amount {fault.amount:g}"] if fault.amount else []
        label = f"{fault.kind} {fault.target}".strip()
        bar = _build_bar(begin, end, scale, FAULT, " ".join([label, *details]))
        hits = (
            each
            for each in entries
            if each.actor == "fault" and (each.kind, each.target) == (fault.kind, fault.target)
        )
        yield Lane("Faults", label, [bar], _build_ticks(hits, scale))


def _build_bar(begin: float, end: float, scale: _Scale, colour: str, title: str) -> Bar:
    x = scale.place(begin)
    return Bar(
        x, max(scale.place(end) - x, 2.0), colour, f"{title}: {format_time(begin)} to {format_time(end)}"
    )


def _build_ticks(entries: Iterator[TraceEntry], scale: _Scale) -> list[Tick]:
    """Build one tick for all entries of a colour that would be drawn on each other."""
    places: defaultdict[tuple[float, str], list[TraceEntry]] = defaultdict(list)
    for each in entries:
        places[round(scale.place(each.at)), COLOURS.get(each.kind, OTHER)].append(each)
    ticks = []
    # What is drawn last is seen: writes, and not what follows from them.
    for (x, colour), found in sorted(places.items(), key=lambda place: (place[0][1] != OTHER, place[0])):
        lines = [f"{format_time(each.at)} {each.text}" for each in found[:MAX_TITLE_LINES]]
        more = [f"and {len(found) - len(lines)} more"] if len(found) > len(lines) else []
        ticks.append(Tick(x, colour, "\n".join([*lines, *more])))
    return ticks


def _list_times(scale: _Scale) -> Iterator[tuple[float, str]]:
    """List about eight times at full hours, with their places."""
    span = scale.end - scale.begin
    every = next((each for each in (1, 2, 3, 6, 12, 24, 48) if span / HOUR / each <= 8), 96) * HOUR
    at = scale.begin - scale.begin % every
    while at <= scale.end:
        if at >= scale.begin:
            yield scale.place(at), datetime.fromtimestamp(at, UTC).strftime("%a %H:%M")
        at += every


def _group_by_hour(entries: Sequence[TraceEntry], violations: Sequence[Violation]) -> list[Hour]:
    broken = {each.at // HOUR for each in violations}
    hours = []
    for hour, found in groupby(entries, key=lambda each: each.at // HOUR):
        own = list(found)
        kinds = Counter("faults" if each.actor == "fault" else each.kind for each in own)
        summary = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common(6))
        hours.append(
            Hour(f"{format_time(hour * HOUR)[:-6]}: {summary}", hour in broken, [str(e) for e in own])
        )
    return hours


@cache
def _build_environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("trimtab.lab.faults"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

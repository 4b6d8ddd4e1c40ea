"""Filter, sort and page the table of nodes, and lay out its heat map, for thousands of nodes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from trimtab.web.model import NodeSummary
from trimtab.web.views.table_query import PAGE_SIZE, Page, SortedQuery, parse_page, toggle_sort

CELL, GAP = 9, 1
LEVELS = 5
"""The number of colours; a share above 1, as of pressure that cannot occur, has the last one."""
UNKNOWN = "unknown"
DEFAULT = "-cpu"


def _share(part: float | None, whole: float) -> float | None:
    return None if part is None or not whole else part / whole


class NodeColumn(NamedTuple):
    """A column that shows a share of a node."""

    title: str
    share: Callable[[NodeSummary], float | None]


COLUMNS: Mapping[str, NodeColumn] = {
    "cpu": NodeColumn("CPU requested", lambda node: _share(node.cpu_requested, node.cpu)),
    "cpu-used": NodeColumn("CPU used", lambda node: _share(node.cpu_used, node.cpu)),
    "memory": NodeColumn("Memory requested", lambda node: _share(node.memory_requested, node.memory)),
    "memory-used": NodeColumn("Memory used", lambda node: _share(node.memory_used, node.memory)),
    "pressure": NodeColumn("Time spent waiting", lambda node: max(node.pressure.values(), default=None)),
}


_AMOUNTS: Mapping[str, Callable[[NodeSummary], float]] = {
    "pods": lambda node: node.pods,
    "cost": lambda node: node.cost or 0.0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeQuery(SortedQuery):
    """The query of a viewer for nodes; invalid values become the defaults."""

    sort: str = DEFAULT
    """The sort column, name, pods, cost or one of `COLUMNS`, with a leading - for descending order."""

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> NodeQuery:
        sort = given.get("sort", DEFAULT)
        return cls(
            text=given.get("q", "")[:200].strip(),
            sort=sort if sort.removeprefix("-") in {*COLUMNS, *_AMOUNTS, "name"} else DEFAULT,
            page=parse_page(given),
        )

    @property
    def heat(self) -> NodeColumn:
        """The column that colours the heat map: that of the order if it has shares."""
        return COLUMNS.get(self.column, COLUMNS["cpu"])

    def toggle_sort(self, column: str) -> str:
        return toggle_sort(self.sort, column, ascending_first={"name"})


@dataclass(frozen=True, slots=True)
class HeatMap:
    """A square for each matching node in the order of the table, as one SVG path for each colour."""

    columns: int
    width: int
    height: int
    paths: Mapping[str, str]
    """The path by the colour's name, `0` to `4` or unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePage(Page):
    """One page of the matching nodes, with the heat map of all of them."""

    rows: Sequence[NodeSummary]
    heat_map: HeatMap


def select_page(nodes: Sequence[NodeSummary], query: NodeQuery) -> NodePage:
    words = query.text.lower().split()
    found = [node for node in nodes if all(word in f"{node.name} {node.policy}".lower() for word in words)]
    found.sort(key=lambda node: node.name)
    if query.column == "name":
        found = found[::-1] if query.descending else found
    elif amount := _AMOUNTS.get(query.column):
        found.sort(key=amount, reverse=query.descending)
    else:
        share = query.heat.share
        known = [node for node in found if share(node) is not None]
        known.sort(key=lambda node: share(node) or 0.0, reverse=query.descending)
        found = known + [node for node in found if share(node) is None]
    pages = max(1, -(-len(found) // PAGE_SIZE))
    number = min(query.page, pages)
    return NodePage(
        rows=found[(number - 1) * PAGE_SIZE : number * PAGE_SIZE],
        total=len(found),
        number=number,
        pages=pages,
        heat_map=build_heat_map([query.heat.share(node) for node in found]),
    )


def build_heat_map(shares: Sequence[float | None]) -> HeatMap:
    columns = max(1, min(len(shares), 125 if len(shares) > 1000 else 50))
    squares: dict[str, list[str]] = {}
    for place, share in enumerate(shares):
        level = UNKNOWN if share is None else str(min(LEVELS - 1, max(0, int(share * LEVELS))))
        row, column = divmod(place, columns)
        x, y = column * (CELL + GAP), row * (CELL + GAP)
        squares.setdefault(level, []).append(f"M{x} {y}h{CELL}v{CELL}h-{CELL}z")
    return HeatMap(
        columns=columns,
        width=columns * (CELL + GAP),
        height=-(-len(shares) // columns) * (CELL + GAP),
        paths={level: "".join(found) for level, found in sorted(squares.items())},
    )

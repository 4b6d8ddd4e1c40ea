"""Filter, sort and page the workload table, fast enough for ten thousand workloads.

The module is pure. The search texts are built once per list of rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from trimtab.web.model import WorkloadRow

PAGE_SIZE = 50

SortKey = Callable[[WorkloadRow], Any]


def _excess(has: float | None, should: float | None) -> float:
    return (has or 0.0) - (should if should is not None else has or 0.0)


SORTS: Mapping[str, SortKey] = {
    "name": lambda row: (row.namespace, row.name, row.kind),
    "state": lambda row: (row.state, row.namespace, row.name),
    "pods": lambda row: row.pods,
    "cpu": lambda row: _excess(row.has.cpu, row.should.cpu if row.should else None) * row.pods,
    "memory": lambda row: _excess(row.has.memory, row.should.memory if row.should else None) * row.pods,
    "cost": lambda row: row.cost,
    "saving": lambda row: row.saving,
    "risk": lambda row: (len(row.risks), row.cost),
    "changed": lambda row: row.changed or 0.0,
}
DEFAULT = "-saving"


def parse_page(given: Mapping[str, str]) -> int:
    # Python refuses to convert thousands of digits, with an exception that would be an error 500.
    page = given.get("page", "1")
    return max(1, int(page)) if page.isdecimal() and len(page) < 7 else 1


def toggle_sort(sort: str, column: str, *, ascending_first: AbstractSet[str]) -> str:
    """Return the sort order after a click on a column: names ascending and amounts descending first, then reversed."""
    first, other = column, f"-{column}"
    if column not in ascending_first:
        first, other = other, first
    return other if sort == first else first


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedQuery:
    """The part of a viewer's query that all tables have."""

    text: str = ""
    sort: str = ""
    """The sort column, with a leading - for descending order."""
    page: int = 1

    @property
    def descending(self) -> bool:
        return self.sort.startswith("-")

    @property
    def column(self) -> str:
        return self.sort.removeprefix("-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The place of a page among all matching rows."""

    total: int
    """The number of all matching rows."""
    number: int
    pages: int

    @property
    def first(self) -> int:
        return (self.number - 1) * PAGE_SIZE + 1 if self.total else 0

    @property
    def last(self) -> int:
        return min(self.number * PAGE_SIZE, self.total)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableQuery(SortedQuery):
    """The query of a viewer for workloads; invalid values become the defaults."""

    state: str = ""
    namespace: str = ""
    risk: bool = False
    sort: str = DEFAULT
    """The sort column from `SORTS`, with a leading - for descending order."""

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> TableQuery:
        sort = given.get("sort", DEFAULT)
        return cls(
            text=given.get("q", "")[:200].strip(),
            state=given.get("state", ""),
            namespace=given.get("namespace", ""),
            risk=given.get("risk", "") == "1",
            sort=sort if sort.removeprefix("-") in SORTS else DEFAULT,
            page=parse_page(given),
        )

    def toggle_sort(self, column: str) -> str:
        return toggle_sort(self.sort, column, ascending_first={"name", "state"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePage(Page):
    """One page of the matching workloads."""

    rows: Sequence[WorkloadRow]
    cost: float
    saving: float


class WorkloadTable:
    """The rows of one version of the backend, prepared for searching."""

    def __init__(self, rows: Sequence[WorkloadRow]) -> None:
        self.rows = rows
        self._texts = [
            f"{row.namespace}/{row.name} {row.kind} {row.policy} {row.state}".lower() for row in rows
        ]
        self._costs = [row.cost for row in rows]
        self._savings = [row.saving for row in rows]
        self._orders: dict[str, list[int]] = {}
        self.states = Counter(row.state for row in rows)
        self.namespaces = sorted({row.namespace for row in rows})
        self.at_risk = sum(bool(row.risks) for row in rows)
        """The number of workloads with any risk."""

    def page(self, query: TableQuery) -> TablePage:
        found = self._sort_rows(query.sort)
        texts = self._texts
        for word in query.text.lower().split():
            found = [place for place in found if word in texts[place]]
        if query.state or query.namespace or query.risk:
            found = [place for place in found if _matches(self.rows[place], query)]
        pages = max(1, -(-len(found) // PAGE_SIZE))
        number = min(query.page, pages)
        return TablePage(
            rows=[self.rows[place] for place in found[(number - 1) * PAGE_SIZE : number * PAGE_SIZE]],
            total=len(found),
            number=number,
            pages=pages,
            cost=sum(map(self._costs.__getitem__, found)),
            saving=sum(map(self._savings.__getitem__, found)),
        )

    def _sort_rows(self, sort: str) -> list[int]:
        # Every key that a viewer types asks for the same order again.
        if sort not in self._orders:
            key = SORTS[sort.removeprefix("-")]
            by_name = sorted(range(len(self.rows)), key=lambda place: SORTS["name"](self.rows[place]))
            self._orders[sort] = sorted(
                by_name, key=lambda place: key(self.rows[place]), reverse=sort.startswith("-")
            )
        return self._orders[sort]


def _matches(row: WorkloadRow, query: TableQuery) -> bool:
    return (
        (not query.state or row.state == query.state)
        and (not query.namespace or row.namespace == query.namespace)
        and (not query.risk or bool(row.risks))
    )

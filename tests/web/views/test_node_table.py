"""The table of nodes and its heat map."""

from __future__ import annotations

import pytest

from trimtab.web.model import NodeSummary
from trimtab.web.views.node_table import COLUMNS, NodeQuery, build_heat_map, select_page

NODES = [
    NodeSummary(
        name=f"node-{number:04d}",
        cpu=10.0,
        cpu_requested=number % 11,
        cpu_used=None if number % 2 else number % 7,
        memory=10.0,
        pods=number % 5,
        cost=float(number % 9),
        pressure={"cpu": 0.1, "memory": 0.3} if number == 42 else {},
        policy="batch" if number < 3 else "",
    )
    for number in range(5000)
]


@pytest.mark.parametrize("column", [*COLUMNS, "name", "pods", "cost"])
def test_every_column_sorts_all_nodes_both_ways(column: str) -> None:
    for sort in (column, f"-{column}"):
        pages = [select_page(NODES, NodeQuery(sort=sort, page=number)) for number in (1, 100)]
        assert [page.total for page in pages] == [5000, 5000]
        assert (pages[1].first, pages[1].last) == (4951, 5000)
        assert {node.name for node in pages[0].rows}.isdisjoint(node.name for node in pages[1].rows)


def test_unknown_shares_come_last_in_both_orders() -> None:
    for sort in ("pressure", "-pressure"):
        assert select_page(NODES, NodeQuery(sort=sort)).rows[0].name == "node-0042"


def test_search_finds_names_and_policies() -> None:
    assert select_page(NODES, NodeQuery(text="BATCH")).total == 3
    assert select_page(NODES, NodeQuery(text="node-49 5")).total == 19


def test_query_falls_back_to_defaults() -> None:
    assert NodeQuery.parse({"sort": "-nothing", "page": "9" * 5000}) == NodeQuery()


def test_heat_map_has_a_square_for_each_node_in_its_colour() -> None:
    found = build_heat_map([0.0, 0.19, 0.2, 1.0, 3.0, None])
    assert {level: path.count("M") for level, path in found.paths.items()} == {
        "0": 2,
        "1": 1,
        "4": 2,
        "unknown": 1,
    }
    assert (found.columns, found.width, found.height) == (6, 60, 10)
    all_nodes = select_page(NODES, NodeQuery()).heat_map
    assert sum(path.count("M") for path in all_nodes.paths.values()) == 5000
    assert sum(map(len, all_nodes.paths.values())) < 120_000

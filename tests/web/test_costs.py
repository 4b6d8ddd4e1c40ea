"""The page of costs groups by any label, and shows values as text whatever they contain."""

from __future__ import annotations

import aiohttp
import msgspec
import pytest

from trimtab.kube.cache.projection import MAX_KEPT_ANNOTATION, ProjectionCache
from trimtab.web.app import build_app
from trimtab.web.auth import LocalAccess
from trimtab.web.backends.snapshot import SnapshotBackend
from trimtab.web.server import serve_dashboard
from trimtab.web.views.costs import MAX_GROUPS, CostGroups
from web.scene import scene

SCENE = scene(6)
HOSTILE = '"><script>alert(1)</script>'
ROWS = tuple(
    msgspec.structs.replace(row, labels=(("team", HOSTILE if number % 2 else "a"),) if number < 4 else ())
    for number, row in enumerate(SCENE.workloads)
)


def test_costs_are_grouped_by_label_namespace_and_policy_without_a_loss() -> None:
    total = sum(row.cost for row in ROWS)
    for key in ("team", "namespace", "policy", "nobody-has-this"):
        found = CostGroups.build(ROWS, {"by": key})
        assert found.key == key
        assert sum(each.workloads for each in found.groups) == len(ROWS)
        assert found.cost == pytest.approx(total)
    by_team = CostGroups.build(ROWS, {"by": "team"})
    assert {each.name: each.workloads for each in by_team.groups} == {"a": 2, HOSTILE: 2, None: 2}
    assert "team" in by_team.keys
    assert CostGroups.build(ROWS, {}).key == "namespace"


def test_costs_are_grouped_by_labels_that_have_the_names_of_other_keys() -> None:
    rows = [msgspec.structs.replace(ROWS[0], labels=(("namespace", "x"), ("policy", "y"), ("team", "a")))]
    assert CostGroups.build(rows, {}).keys == (
        "namespace",
        "policy",
        "label:namespace",
        "label:policy",
        "team",
    )
    for key, name in (
        ("label:namespace", "x"),
        ("label:policy", "y"),
        ("label:team", "a"),
        ("namespace", ROWS[0].namespace),
    ):
        assert [each.name for each in CostGroups.build(rows, {"by": key}).groups] == [name]


def test_page_shows_the_most_expensive_of_many_groups() -> None:
    rows = [
        msgspec.structs.replace(ROWS[0], labels=(("team", str(number)),), cost=float(number))
        for number in range(MAX_GROUPS + 10)
    ]
    found = CostGroups.build(rows, {"by": "team"})
    assert (len(found.groups), found.total) == (MAX_GROUPS, MAX_GROUPS + 10)
    assert found.groups[0].name == str(MAX_GROUPS + 9)
    assert found.cost == sum(row.cost for row in rows)


def test_kept_annotations_are_short_ones_with_their_keys() -> None:
    found = {"example.com/centre": "7", "long": "x" * (MAX_KEPT_ANNOTATION + 1), "other": "y"}
    raw = msgspec.Raw(msgspec.json.encode(found))
    assert ProjectionCache().read_own_annotations(raw) == ()
    cache = ProjectionCache(annotations=["example.com/centre", "long"])
    assert cache.read_own_annotations(raw) == (("example.com/centre", "7"),)


async def test_page_and_document_show_hostile_values_as_text() -> None:
    board = SnapshotBackend(msgspec.structs.replace(SCENE, workloads=ROWS))
    async with (
        serve_dashboard(build_app(board, LocalAccess()), "127.0.0.1:0") as url,
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session,
    ):
        async with session.get(f"{url}/costs", params={"by": "team"}) as answer:
            page = await answer.text()
        async with session.get(f"{url}/costs", params={"by": HOSTILE}) as answer:
            by_hostile = await answer.text()
        async with session.get(f"{url}/costs.json", params={"by": "team"}) as answer:
            document = await answer.json()
    assert "<script>alert" not in page + by_hostile
    assert "&lt;script&gt;alert(1)" in page
    assert document["groupBy"] == "team"
    assert {each["name"]: each["workloads"] for each in document["groups"]} == {"a": 2, HOSTILE: 2, None: 2}

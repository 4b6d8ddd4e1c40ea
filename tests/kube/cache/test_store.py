from dataclasses import dataclass, field, replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.kube.cache.store import Cache


@dataclass(frozen=True, eq=False)
class Thing:
    name: str
    version: int
    namespace: str = "shop"
    uid: str = "u1"
    node: str | None = None


@dataclass
class Diary:
    """A handler that records its events."""

    lines: list[tuple[Thing | None, Thing | None]] = field(default_factory=list)

    def __call__(self, old: Thing | None, new: Thing | None, /) -> None:
        self.lines.append((old, new))


@pytest.fixture
def cache() -> Cache[Thing]:
    return Cache({"node": lambda thing: thing.node})


@pytest.fixture
def diary(cache: Cache[Thing]) -> Diary:
    diary = Diary()
    cache.on_change(diary)
    return diary


def test_cache_adds_and_finds_an_object(cache: Cache[Thing], diary: Diary) -> None:
    web = Thing("web", 1)
    cache.put(web)
    assert cache.get("web", "shop") is web
    assert cache.in_namespace("shop") == [web]
    assert len(cache) == 1
    assert diary.lines == [(None, web)]


def test_cache_ignores_older_versions(cache: Cache[Thing], diary: Diary) -> None:
    new, old = Thing("web", 5), Thing("web", 4)
    cache.put(new)
    cache.put(old)
    assert cache.get("web", "shop") is new
    assert diary.lines == [(None, new)]


def test_cache_takes_a_full_list_whatever_its_versions(cache: Cache[Thing], diary: Diary) -> None:
    new, restored, another = Thing("web", 5), Thing("web", 4), Thing("web", 3, uid="u2")
    cache.put(new)
    cache.put(restored, listed=True)
    cache.put(restored, listed=True)
    cache.put(another, listed=True)
    assert list(cache) == [another]
    assert diary.lines == [(None, new), (new, restored), (restored, None), (None, another)]


def test_cache_takes_the_last_object_if_versions_are_no_numbers(cache: Cache[Thing]) -> None:
    cache.put(Thing("web", 0, node="a"))
    cache.put(Thing("web", 0, node="b"))
    assert [thing.node for thing in cache] == ["b"]


def test_cache_reports_no_change_for_the_same_version(cache: Cache[Thing], diary: Diary) -> None:
    cache.put(Thing("web", 5))
    cache.put(Thing("web", 5))
    assert len(diary.lines) == 1


def test_cache_reports_an_object_replaced_under_its_name_as_deleted_and_added(
    cache: Cache[Thing], diary: Diary
) -> None:
    first, second = Thing("web", 1, uid="u1"), Thing("web", 7, uid="u2")
    cache.put(first)
    cache.put(second)
    assert diary.lines == [(None, first), (first, None), (None, second)]
    assert len(cache) == 1


def test_cache_ignores_the_deletion_of_a_former_namesake(cache: Cache[Thing], diary: Diary) -> None:
    second = Thing("web", 7, uid="u2")
    cache.put(second)
    cache.remove(Thing("web", 6, uid="u1"))
    assert cache.get("web", "shop") is second


def test_cache_drops_what_a_full_list_does_not_contain(cache: Cache[Thing], diary: Diary) -> None:
    stays, goes = Thing("a", 1, uid="a"), Thing("b", 2, uid="b")
    cache.put(stays)
    cache.put(goes)
    cache.keep_only({"a"})
    assert list(cache) == [stays]
    assert diary.lines[-1] == (goes, None)


def test_cache_index_follows_an_object_from_value_to_value(cache: Cache[Thing]) -> None:
    waiting = Thing("web", 1)
    cache.put(waiting)
    assert cache.find("node", None) == []
    placed = replace(waiting, version=2, node="n1")
    cache.put(placed)
    assert cache.find("node", "n1") == [placed]
    moved = replace(placed, version=3, node="n2")
    cache.put(moved)
    assert cache.find("node", "n1") == []
    assert cache.find("node", "n2") == [moved]
    cache.remove(moved)
    assert cache.find("node", "n2") == []


def test_cache_calls_a_late_handler_for_existing_objects(cache: Cache[Thing]) -> None:
    web = Thing("web", 1)
    cache.put(web)
    diary = Diary()
    cache.on_change(diary)
    assert diary.lines == [(None, web)]


def test_cache_isolates_a_failing_handler(cache: Cache[Thing]) -> None:
    def broken(_old: Thing | None, _new: Thing | None, /) -> None:
        raise RuntimeError("handler")

    cache.on_change(broken)
    diary = Diary()
    cache.on_change(diary)
    cache.put(Thing("web", 1))
    assert len(cache) == 1
    assert len(diary.lines) == 1


every_operation = product(("put", "remove"), "abc", ("u1", "u2"), range(1, 10), (None, "n1", "n2"))
operations = st.lists(st.sampled_from(list(every_operation)), max_size=40)


@settings(max_examples=300)
@given(operations)
def test_cache_handlers_and_indexes_agree_for_any_watch(
    operations: list[tuple[str, str, str, int, str | None]],
) -> None:
    cache: Cache[Thing] = Cache({"node": lambda thing: thing.node})
    diary = Diary()
    cache.on_change(diary)
    for operation, name, uid, version, node in operations:
        thing = Thing(name, version, uid=uid, node=node)
        cache.put(thing) if operation == "put" else cache.remove(thing)
    rebuilt: dict[str, Thing] = {}
    for old, new in diary.lines:
        name = (new or old).name  # type: ignore[union-attr] # never both None
        assert rebuilt.get(name) is old
        if new is None:
            del rebuilt[name]
        else:
            rebuilt[name] = new
            if old is not None:
                assert new.version > old.version
                assert new.uid == old.uid
    assert {thing.name: thing for thing in cache} == rebuilt
    assert len(cache) == len(rebuilt)
    for node in ("n1", "n2"):
        assert set(cache.find("node", node)) == {thing for thing in rebuilt.values() if thing.node == node}

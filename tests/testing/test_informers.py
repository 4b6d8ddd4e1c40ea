"""The caches of an informer set, which the fake fills and tests/integration/testing lets a server fill."""

from testing.ports import InformersUnderTest
from trimtab.kube.cache.informer import Scope
from trimtab.kube.kinds.metadata import Metadata, metadata_projection
from trimtab.kube.rest.resources import CONFIG_MAPS


def _team(found: Metadata) -> str:
    return dict(found.labels).get("team", "")


async def test_informers_add_and_remove_records(informers_under_test: InformersUnderTest) -> None:
    made = informers_under_test
    cache = made.informers.watch_resource(CONFIG_MAPS, metadata_projection(), scope=Scope(made.namespace))
    assert cache.get("one", made.namespace) is None
    await made.create("one", {})
    await made.until(lambda: cache.get("one", made.namespace) is not None)
    await made.delete("one")
    await made.until(lambda: cache.get("one", made.namespace) is None)


async def test_informers_find_records_by_index(informers_under_test: InformersUnderTest) -> None:
    made = informers_under_test
    cache = made.informers.watch_resource(
        CONFIG_MAPS, metadata_projection(), scope=Scope(made.namespace), indexes={"team": _team}
    )
    await made.create("one", {"team": "a"})
    await made.create("two", {"team": "b"})
    await made.until(lambda: cache.get("two", made.namespace) is not None)
    assert [each.name for each in cache.find("team", "a")] == ["one"]
    await made.delete("one")
    await made.until(lambda: not list(cache.find("team", "a")))


async def test_informers_report_each_change_to_handlers(informers_under_test: InformersUnderTest) -> None:
    made = informers_under_test
    cache = made.informers.watch_resource(CONFIG_MAPS, metadata_projection(), scope=Scope(made.namespace))
    changes: list[tuple[str, str]] = []
    cache.on_change(lambda old, new: changes.append((old.name if old else "", new.name if new else "")))
    await made.create("one", {})
    await made.until(lambda: ("", "one") in changes)
    await made.delete("one")
    await made.until(lambda: ("one", "") in changes)


async def test_informers_that_are_synced_report_no_error(informers_under_test: InformersUnderTest) -> None:
    made = informers_under_test
    made.informers.watch_resource(CONFIG_MAPS, metadata_projection(), scope=Scope(made.namespace))
    await made.create("one", {})
    await made.informers.wait_synced()
    assert made.informers.unsynced_reason(CONFIG_MAPS, made.namespace) == ""
    assert made.informers.errors_by_resource() == {}

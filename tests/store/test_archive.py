"""All of a store as JSON lines, and back."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, update

from store.builders import KEY, effect, entry, event
from trimtab.store import ArchiveError, Effect, HistoryRecord, PlannerEvent, StateKey, Store, archive
from trimtab.store.tables import metadata, states

words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
times = st.floats(0, 2e9)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
maps = st.dictionaries(words, values, max_size=2)
objectives = st.dictionaries(words, st.none() | st.floats(allow_nan=False, allow_infinity=False), max_size=2)
learned = st.dictionaries(
    st.builds(StateKey, words, words, words), st.tuples(st.binary(max_size=40), times), max_size=2
)
effects = st.lists(
    st.builds(
        Effect, name=words, group=words, profile_name=words, data=maps, static=st.booleans(), timestamp=times
    ),
    max_size=2,
)
events = st.lists(
    st.builds(
        PlannerEvent,
        name=words,
        timestamp=times,
        current_objectives=objectives,
        desired_objectives=objectives,
        resources=maps,
        annotations=maps,
        pods=maps,
        data=maps,
        plan=st.none() | st.lists(maps, max_size=2),
    ),
    max_size=2,
)
histories = st.lists(
    st.builds(
        HistoryRecord,
        timestamp=times,
        cluster=words,
        namespace=words,
        kind=words,
        name=words,
        container=words,
        what=words,
        before=st.none() | maps,
        after=st.none() | maps,
        who=words,
        why=words,
        id=st.just(0),
    ),
    max_size=2,
)


async def exported(store: Store) -> list[bytes]:
    return [line async for line in store.export_lines()]


async def empty(store: Store) -> None:
    async with store._database.begin_write() as connection:
        for table in metadata.tables.values():
            await connection.execute(delete(table))


async def fill(store: Store) -> None:
    await store.states.save(KEY, b"learned", timestamp=1)
    await store.effects.append([effect(1), effect(2, static=True)])
    await store.events.append([event(1), event(1), event(2, plan=None)])
    await store.history.append([entry(1), entry(2, before=None), entry(2, before=None)])


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(learned=learned, effects=effects, events=events, histories=histories)
async def test_archive_imports_what_it_exported(
    store: Store,
    learned: dict[StateKey, tuple[bytes, float]],
    effects: list[Effect],
    events: list[PlannerEvent],
    histories: list[HistoryRecord],
) -> None:
    await empty(store)
    for key, (data, timestamp) in learned.items():
        await store.states.save(key, data, timestamp=timestamp)
    await store.effects.append(effects)
    await store.events.append(events)
    await store.history.append(histories)

    out = await exported(store)
    assert len(out) == 2 + len(learned) + len(effects) + len(events) + len(histories)
    await empty(store)
    for _ in range(2):  # importing twice is importing once
        await store.import_lines(out)
    assert await exported(store) == out


async def test_archive_import_adds_to_existing_rows(store: Store) -> None:
    await fill(store)
    out = await exported(store)
    await empty(store)
    await store.history.append([entry(9, why="meanwhile")])
    await store.import_lines(out)
    assert [found.timestamp for found in await store.history.find()] == [9, 2, 2, 1]


async def test_archive_import_keeps_the_later_of_two_states(store: Store) -> None:
    await store.states.save(KEY, b"older", timestamp=1)
    older = await exported(store)
    await store.states.save(KEY, b"newer", timestamp=2)
    newer = await exported(store)

    await store.import_lines(older)
    assert await exported(store) == newer
    await empty(store)
    await store.import_lines(older)
    await store.import_lines(newer)
    assert await exported(store) == newer


async def test_archive_exports_and_imports_more_than_a_page(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "BATCH_SIZE", 20)
    await store.history.append([entry(t) for t in range(45)])
    await store.events.append([event(t) for t in range(21)])
    await store.effects.append([effect(t) for t in range(40)])
    out = await exported(store)
    assert len(out) == 2 + 45 + 21 + 40
    await empty(store)
    assert await store.import_lines(out) == 45 + 21 + 40
    assert await exported(store) == out


async def test_archive_lines_are_json_with_their_kind(store: Store) -> None:
    await fill(store)
    lines = [json.loads(line) for line in await exported(store)]
    assert [line["record"] for line in lines] == [
        "trimtab store",
        "state",
        *["effect"] * 2,
        *["event"] * 3,
        *["history"] * 3,
        "end",
    ]
    assert lines[2] == {  # the field names of the knowledge base that others know
        "record": "effect",
        "name": "default/intent",
        "group": "vertical_scaling",
        "profileName": "default/p99latency",
        "data": {"popt": [[100, 0.2, 50]]},
        "static": False,
        "timestamp": 1.0,
        "cluster": "prod",
    }


async def test_archive_exports_the_rest_beside_a_damaged_state(store: Store) -> None:
    await fill(store)
    async with store._database.begin_write() as connection:
        await connection.execute(update(states).values(data=b"?"))
    out = await exported(store)
    await empty(store)
    assert await store.import_lines(out) == 8


def changed(number: int, **fields: Any) -> Callable[[list[bytes]], list[bytes]]:
    def change(lines: list[bytes]) -> list[bytes]:
        line = json.dumps(json.loads(lines[number]) | fields).encode()
        return [*lines[:number], line, *lines[number + 1 :]]

    return change


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        pytest.param(lambda lines: [], "line 0: the file is truncated; export it again", id="nothing"),
        pytest.param(
            lambda lines: lines[:-1], "line 10: the file is truncated; export it again", id="no end"
        ),
        pytest.param(
            lambda lines: lines[:4] + lines[5:], "line 10: the file is truncated; export it again", id="a gap"
        ),
        pytest.param(lambda lines: lines[1:], "line 1: the file must have one header, first", id="no head"),
        pytest.param(lambda lines: lines * 2, "line 12: the file must have one header, first", id="twice"),
        pytest.param(lambda lines: [*lines[:4], b'{"record": ', *lines[5:]], "line 5: ", id="half a line"),
        pytest.param(lambda lines: [*lines[:4], b"\xff\xfe", *lines[5:]], "line 5: ", id="no text"),
        pytest.param(changed(0, format=2), "line 1: format 2 was written by a newer Trimtab", id="newer"),
        pytest.param(changed(1, data="AAAA"), "line 2: the state does not match its checksum", id="damaged"),
        pytest.param(
            changed(4, name=7), r"line 5: Expected `str`, got `int` - at `\$.name`", id="wrong type"
        ),
    ],
)
async def test_archive_import_rejects_a_damaged_archive_whole(
    store: Store, spoil: Callable[[list[bytes]], list[bytes]], complaint: str
) -> None:
    await fill(store)
    lines = await exported(store)
    await empty(store)
    with pytest.raises(ArchiveError, match=f"^{complaint}.*; nothing was imported$"):
        await store.import_lines(spoil(lines))
    assert len(await exported(store)) == 2

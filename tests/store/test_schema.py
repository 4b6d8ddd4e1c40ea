"""The schema is made, migrated, and refused when it is of tomorrow."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, insert, inspect, text

from store.builders import KEY, effect, entry, event
from trimtab.store import AddressError, NewerSchemaError, Store, StoreError
from trimtab.store.database import to_row
from trimtab.store.schema import VERSION_TABLE, _read_versions
from trimtab.store.tables import effects, events, history, metadata

VERSIONS = Path(__file__).parents[2] / "src/trimtab/store/migrations/versions"


async def test_schema_migrations_create_the_declared_tables(store: Store) -> None:
    def difference(connection: Connection) -> object:
        options = {"version_table": VERSION_TABLE, "compare_type": True}
        return compare_metadata(MigrationContext.configure(connection, opts=options), metadata)

    async with store._database.begin_write() as connection:
        await connection.run_sync(create_by_migrations)
        assert await connection.run_sync(difference) == []


async def test_new_schema_is_what_the_migrations_make(store: Store) -> None:
    """The order of columns may differ: a migration adds them at the end."""

    def describe(connection: Connection) -> dict[str, object]:
        database = inspect(connection)
        return {
            table: {
                "columns": {
                    column["name"]: {**column, "type": str(column["type"])}
                    for column in database.get_columns(table)
                },
                "indexes": {
                    index["name"]: (index["column_names"], index["unique"], _describe_options(index))
                    for index in database.get_indexes(table)
                },
                "unique": database.get_unique_constraints(table),
                "key": database.get_pk_constraint(table),
                "rows": connection.execute(text(f"SELECT * FROM {table}")).all(),
            }
            for table in sorted(database.get_table_names())
        }

    async with store._database.begin_write() as connection:
        created = await connection.run_sync(describe)
        await connection.run_sync(create_by_migrations)
        assert await connection.run_sync(describe) == created
    assert set(created) == {*metadata.tables, VERSION_TABLE}


def _describe_options(index: Any) -> dict[str, str]:
    return {name: str(value) for name, value in index.get("dialect_options", {}).items()}


async def test_schema_keeps_all_rows_when_opened_again(address: str) -> None:
    async with Store.open(address) as store:
        await store.states.save(KEY, b"learned", timestamp=1)
        await store.history.append([entry(1)])
    async with Store.open(address) as store:
        found = await store.states.load(KEY)
        assert found
        assert found.data == b"learned"
        assert len(await store.history.find()) == 1


async def test_schema_is_created_once_by_many_openings(address: str) -> None:
    async def open_and_write(number: int) -> None:
        async with Store.open(address) as store:
            await store.history.append([entry(number)])

    await asyncio.gather(*map(open_and_write, range(6)))
    async with Store.open(address) as store:
        assert len(await store.history.find()) == 6


async def test_newer_schema_is_rejected_in_one_line_and_not_changed(address: str) -> None:
    async with Store.open(address) as store, store._database.begin_write() as connection:
        await connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    with pytest.raises(
        NewerSchemaError,
        match=r"^store\.url: the store's schema is version 9999, this Trimtab knows versions up to \d{4};"
        " upgrade Trimtab or give it another store$",
    ):
        async with Store.open(address):
            pass
    with pytest.raises(NewerSchemaError):  # it was not "repaired" by the first attempt
        async with Store.open(address):
            pass


async def test_schema_is_not_created_or_migrated_by_a_reader(address: str) -> None:
    with pytest.raises(AddressError, match=r"does not exist|contains no Trimtab store"):
        async with Store.open(address, read_only=True):
            pass
    async with Store.open(address) as store:
        await store.history.append([entry(1)])
        async with Store.open(address, read_only=True) as read:
            assert len(await read.history.find()) == 1
            await store.history.append([entry(2)])
            assert len(await read.history.find()) == 2
        for version, error in (("9999", NewerSchemaError), (None, AddressError)):
            async with store._database.begin_write() as connection:
                await connection.execute(text(f"DELETE FROM {VERSION_TABLE}"))
                if version:
                    await connection.execute(text(f"INSERT INTO {VERSION_TABLE} VALUES ('{version}')"))
            with pytest.raises(error):
                async with Store.open(address, read_only=True):
                    pass


async def test_schema_migration_that_fails_changes_nothing(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the plug is pulled")

    async def open_and_list() -> set[str]:
        async with Store.open(address) as store, store._database.begin_read() as connection:
            return set(await connection.run_sync(lambda each: inspect(each).get_table_names()))

    # The last thing that creating does, and the last thing that the second migration does.
    for failing in ("trimtab.store.tables.metadata.create_all", "alembic.op.create_index"):
        with monkeypatch.context() as patch:
            patch.setattr(failing, fail)
            with pytest.raises(RuntimeError):
                await open_and_list()
        assert await open_and_list() == {*metadata.tables, VERSION_TABLE}
        async with Store.open(address) as store, store._database.begin_write() as connection:
            await connection.run_sync(create_first_schema)


def create_by_migrations(connection: Connection) -> None:
    create_first_schema(connection)
    command.upgrade(_read_versions(connection)[0], "head")


def create_first_schema(connection: Connection) -> None:
    metadata.drop_all(connection)
    connection.execute(text(f"DROP TABLE {VERSION_TABLE}"))
    command.upgrade(_read_versions(connection)[0], "0001")


@pytest.mark.parametrize(("clusters", "adopted"), [(["prod"], "prod"), (["prod", "stage"], ""), ([], "")])
async def test_schema_migration_assigns_effects_and_events_to_the_only_known_cluster(
    address: str, clusters: list[str], adopted: str
) -> None:
    def go_back(connection: Connection) -> None:
        create_first_schema(connection)
        for cluster in clusters:
            row = to_row(entry(1, cluster=cluster))
            del row["event_key"]
            del row["transition"]
            connection.execute(insert(history).values(row))
        for table, record in ((events, event(1)), (effects, effect(1))):
            row = to_row(record)
            del row["cluster"]
            connection.execute(insert(table).values(row))

    async with Store.open(address) as store, store._database.begin_write() as connection:
        await connection.run_sync(go_back)
    async with Store.open(address) as store:
        assert await store.events.find() == [event(1, cluster=adopted)]
        assert await store.effects.find(cluster="prod", name="default/intent") == [effect(1, cluster=adopted)]


@pytest.mark.parametrize(
    "dropped",
    [
        "TABLE trimtab_effects",
        "TABLE trimtab_events",
        "TABLE trimtab_history",
        "INDEX trimtab_events_by_name",
    ],
)
async def test_schema_of_the_first_version_with_a_dropped_part_is_migrated(
    address: str, dropped: str
) -> None:
    async with Store.open(address) as store, store._database.begin_write() as connection:
        await connection.run_sync(create_first_schema)
        await connection.execute(text(f"DROP {dropped}"))
    async with Store.open(address) as store:
        await store.history.append([entry(1)])
        await store.events.append([event(1, cluster="prod")])
        await store.effects.append([effect(1, cluster="prod")])
        assert await store.events.find(cluster="prod") == [event(1, cluster="prod")]
        assert await store.effects.find(cluster="prod", name="default/intent") == [effect(1, cluster="prod")]


@pytest.mark.parametrize("version", [path.name[:4] for path in sorted(VERSIONS.glob("0*.py"))])
@pytest.mark.parametrize("lost", [f"DELETE FROM {VERSION_TABLE}", f"DROP TABLE {VERSION_TABLE}"])
async def test_schema_with_a_lost_version_is_recovered(address: str, version: str, lost: str) -> None:
    def go_back(connection: Connection) -> None:
        create_first_schema(connection)
        command.upgrade(_read_versions(connection)[0], version)

    def difference(connection: Connection) -> object:
        options = {"version_table": VERSION_TABLE, "compare_type": True}
        return compare_metadata(MigrationContext.configure(connection, opts=options), metadata)

    async with Store.open(address) as store, store._database.begin_write() as connection:
        await connection.run_sync(go_back)
        await connection.execute(text(lost))
    for number in (1, 2):
        async with Store.open(address) as store:
            await store.history.append([entry(number)])
            assert len(await store.history.find()) == number
            async with store._database.begin_read() as connection:
                assert await connection.run_sync(difference) == []


async def test_schema_with_unknown_columns_and_a_lost_version_is_rejected(address: str) -> None:
    """It may be of a newer version, whose migrations must not run twice."""
    async with Store.open(address) as store, store._database.begin_write() as connection:
        await connection.execute(text("ALTER TABLE trimtab_history ADD COLUMN tomorrow TEXT"))
        await connection.execute(text(f"DELETE FROM {VERSION_TABLE}"))
    with pytest.raises(StoreError, match=r"^store\.url: the store has tables, but neither a version"):
        async with Store.open(address):
            pass


async def test_new_and_current_schema_are_opened_without_alembic(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trimtab.store.schema._read_versions", None)
    async with Store.open(address) as store, store._database.begin_write() as connection:
        await connection.execute(text("DROP TABLE trimtab_history"))
    for read_only in (False, True):
        async with Store.open(address, read_only=read_only) as store:
            assert await store.history.find() == []


def test_schema_versions_are_consecutive() -> None:
    numbers = [int(path.name[:4]) for path in sorted(VERSIONS.glob("0*.py"))]
    scripts = ScriptDirectory(str(VERSIONS.parent))
    assert [each.revision for each in scripts.walk_revisions()] == [
        f"{number:04}" for number in reversed(numbers)
    ]
    assert numbers == list(range(1, len(numbers) + 1))

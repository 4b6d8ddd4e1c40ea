"""Store URLs of the user, and one clear line for an invalid one."""

import asyncio
import os
import signal
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
from sqlalchemy import make_url, text

from harness.process import free_port
from store.builders import entry
from store.test_database import url_error
from trimtab.store import AccessError, AddressError, Store, StoreError, UnavailableError, timeout_connection


@pytest.mark.postgres
@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
async def test_store_url_accepts_schemes_of_postgresql(scheme: str, postgres: str) -> None:
    async with Store.open(postgres.replace("postgresql", scheme, 1)) as store:
        await store.history.append([entry(1)])


@pytest.mark.postgres
async def test_store_takes_the_password_from_a_file_that_its_group_may_read(
    postgres: str, tmp_path: Path
) -> None:
    """As a Secret is mounted in a pod with an fsGroup: libpq itself ignores such a file."""
    url = make_url(postgres)
    file = tmp_path / "pgpass"
    file.write_text(f"*:*:*:{url.username}:{url.password}\n")
    file.chmod(0o440)
    mounted = url.set(query={"passfile": str(file)})._replace(password=None)
    async with Store.open(mounted.render_as_string()) as store:
        await store.history.append([entry(1)])


@pytest.mark.postgres
async def test_store_reports_and_hides_a_wrong_password(postgres: str) -> None:
    url = make_url(postgres).set(password="guessed")
    error = await url_error(url.render_as_string(hide_password=False))
    assert isinstance(error, AccessError)
    assert str(error).endswith("; check the user, its password and its rights")
    assert "guessed" not in str(error)


@pytest.mark.postgres
async def test_store_reports_an_unknown_user(postgres: str) -> None:
    url = make_url(postgres).set(username="nobody")
    assert isinstance(await url_error(url.render_as_string(hide_password=False)), AccessError)


@pytest.mark.postgres
async def test_store_reports_an_unknown_database(postgres: str) -> None:
    url = make_url(postgres).set(database="none")
    error = await url_error(url.render_as_string(hide_password=False))
    assert isinstance(error, AddressError)
    assert str(error).endswith('database "none" does not exist; create the database or name another')


@pytest.mark.postgres
async def test_store_reports_an_unknown_option(postgres: str) -> None:
    error = await url_error(f"{postgres}?colour=red")
    assert isinstance(error, AddressError)
    assert str(error).endswith("invalid connection option \"colour\"; correct the options after the '?'")


@pytest.mark.postgres
async def test_store_reports_a_missing_right(postgres: str) -> None:
    url = make_url(postgres)
    with psycopg.connect(postgres, autocommit=True) as admin:
        admin.execute("DROP ROLE IF EXISTS guest")
        admin.execute("CREATE ROLE guest LOGIN PASSWORD 'guest'")
    guest = url.set(username="guest", password="guest").render_as_string(hide_password=False)
    error = await url_error(guest)
    assert isinstance(error, AccessError)
    assert "permission denied" in str(error)


@pytest.mark.postgres
async def test_store_that_may_wait_starts_before_its_server(postgres: str) -> None:
    real, port = make_url(postgres), free_port()
    passing: list[asyncio.Task[None]] = []

    async def copy(source: asyncio.StreamReader, into: asyncio.StreamWriter) -> None:
        while some := await source.read(1 << 16):
            into.write(some)
        into.close()
        await into.wait_closed()

    async def pass_on(here: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        answers, there = await asyncio.open_connection(real.host, real.port)
        passing.extend(asyncio.create_task(each) for each in (copy(here, there), copy(answers, back)))

    away = real.set(port=port).render_as_string(hide_password=False)
    assert isinstance(await url_error(away), UnavailableError)
    async with Store.open(away, allow_unavailable=True) as store:
        for number in range(2):
            with pytest.raises(UnavailableError):
                await store.history.append([entry(number)])
        async with await asyncio.start_server(pass_on, "127.0.0.1", port):
            await store.history.append([entry(2)])
            assert len(await store.history.find()) == 1
            await store._database.close()
            await asyncio.gather(*passing)


@pytest.mark.postgres
async def test_store_reconnects_after_a_lost_connection(postgres: str) -> None:
    async with Store.open(postgres) as store:
        await store.history.append([entry(1)])
        with psycopg.connect(postgres, autocommit=True) as admin:
            admin.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        await store.history.append([entry(2)])
        assert len(await store.history.find()) == 2


@pytest.mark.postgres
async def test_store_reports_a_connection_lost_during_a_write(postgres: str) -> None:
    async with Store.open(postgres) as store:
        with pytest.raises(UnavailableError, match=r"; check that the server runs"):
            async with store._database.begin_write() as connection:
                await connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")
        await store.history.append([entry(1)])
        assert len(await store.history.find()) == 1


@pytest.mark.postgres
async def test_store_replaces_a_frozen_connection(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hang_up = timeout_connection.TimeoutConnection._shut_down_socket

    def once(self: timeout_connection.TimeoutConnection) -> None:
        monkeypatch.setattr(timeout_connection, "STATEMENT_TIMEOUT", 60.0)
        hang_up(self)

    monkeypatch.setattr(timeout_connection.TimeoutConnection, "_shut_down_socket", once)
    async with Store.open(postgres) as store:
        (backend,) = await store._database.fetch_rows(text("SELECT pg_backend_pid()"))
        monkeypatch.setattr(timeout_connection, "STATEMENT_TIMEOUT", 0.2)
        os.kill(backend[0], signal.SIGSTOP)
        try:
            async with asyncio.timeout(60):
                await store.history.append([entry(1)])
        finally:
            os.kill(backend[0], signal.SIGCONT)
        assert len(await store.history.find()) == 1


@pytest.mark.postgres
@pytest.mark.parametrize(
    "loss", ["DROP SCHEMA public CASCADE; CREATE SCHEMA public", "DROP TABLE trimtab_history"]
)
async def test_store_recreates_missing_tables_at_the_next_use(postgres: str, loss: LiteralString) -> None:
    async with Store.open(postgres) as store:
        with psycopg.connect(postgres, autocommit=True) as admin:
            admin.execute(loss)
        with pytest.raises(StoreError, match="missing tables are created again"):
            await store.history.append([entry(1)])
        await store.history.append([entry(2)])
        assert len(await store.history.find()) == 1

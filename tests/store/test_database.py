"""Store URLs of the user, and one clear line for an invalid one."""

import asyncio
import socket
import sys
from pathlib import Path

import pytest

from harness.process import free_port
from store.builders import entry
from trimtab.errors import TrimtabError
from trimtab.store import AddressError, Store, StoreError, UnavailableError


async def url_error(address: str | Path) -> StoreError:
    with pytest.raises(StoreError) as caught:
        async with Store.open(address):
            pass
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("store.url: ")
    assert isinstance(caught.value, TrimtabError), "which a command prints as it is, without a traceback"
    return caught.value


def made(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


@pytest.mark.parametrize("form", ["{}", "sqlite:///{}", "sqlite+aiosqlite:///{}"])
async def test_store_url_may_be_a_file(form: str, file: Path) -> None:
    async with Store.open(form.format(file)) as store:
        await store.history.append([entry(1)])
    assert made(file.parent) == [file.name]


async def test_store_url_file_may_have_any_name(tmp_path: Path) -> None:
    file = tmp_path / "with space, 100 % and ä?.db"
    async with Store.open(file):
        pass
    assert made(tmp_path) == [file.name]


@pytest.mark.parametrize(
    "address",
    [
        "",
        ":memory:",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///x.db?mode=ro",
        "mysql://me:secret@there/db",
        "postgresql:/me:secret@there/db",
        "postgresql//me:secret@there/db",
        "postgresql://me:secret@there:port/db",
        "postgresql://me:se/cr@et@there:port/db",
        "me:secret@there/db",
        "postgresql:me:secret@there/db",
        "mysql://me:/secret@there/db",
        "mysql://there/db?user=me&password=secret",
    ],
)
async def test_store_url_error_hides_the_password(address: str) -> None:
    error = await url_error(address)
    assert isinstance(error, AddressError)
    assert "give the path of a file, sqlite:///FILE or postgresql://USER@HOST/DATABASE" in str(error)
    assert "secret" not in str(error)
    assert "cr@et" not in str(error)


async def test_store_url_rejects_a_folder(tmp_path: Path) -> None:
    assert str(await url_error(tmp_path)) == f"store.url: {tmp_path} is a folder; name a file in it"


async def test_store_url_reports_a_missing_folder(tmp_path: Path) -> None:
    error = await url_error(tmp_path / "none" / "trimtab.db")
    assert (
        str(error) == f"store.url: the folder {tmp_path}/none does not exist; create it or name another file"
    )


async def test_store_reports_an_unreachable_server() -> None:
    error = await url_error(f"postgresql://me:secret@127.0.0.1:{free_port()}/db")
    assert isinstance(error, UnavailableError)
    assert str(error).endswith("; check that the server runs and can be reached")
    assert "secret" not in str(error)


async def test_store_asks_an_unreachable_server_once_for_all_waiters() -> None:
    """Or the last of them waits as often as long for one that does not even refuse."""
    asked: list[int] = []

    def hang_up(_: asyncio.StreamReader, back: asyncio.StreamWriter) -> None:
        asked.append(len(asked))
        back.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        async with Store.open(
            f"postgresql://trimtab@{host}:{port}/t?sslmode=disable", allow_unavailable=True
        ) as store:
            for uses in (5, 1):
                asked.clear()
                found = await asyncio.gather(
                    *(store.history.find() for _ in range(uses)), return_exceptions=True
                )
                assert [type(each) for each in found] == [UnavailableError] * uses
                assert len(asked) == 1


async def test_store_retries_with_advice_while_it_waits() -> None:
    with pytest.raises(AddressError):
        async with Store.open("/nowhere/at/all/trimtab.db", allow_unavailable=True):
            pass


async def test_store_reports_a_server_that_never_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        port = deaf.getsockname()[1]
        error = await url_error(f"postgresql://me@127.0.0.1:{port}/db?connect_timeout=2")
    assert isinstance(error, UnavailableError)


async def test_store_names_the_missing_extra_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    error = await url_error("postgresql://me@127.0.0.1/db")
    assert str(error).endswith("run: pip install 'trimtab[postgres]'")

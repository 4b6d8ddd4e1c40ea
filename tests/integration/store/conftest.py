"""A store of each kind: what holds for one must hold for the other."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from sqlalchemy import make_url

from store.conftest import file, store  # noqa: F401 - fixtures

POSTGRES_15 = 150_000
_NUMBERS = itertools.count()


@contextmanager
def fresh_database(server: str) -> Iterator[str]:
    """An empty database on the server, for one test."""
    url = make_url(server).set(drivername="postgresql")
    name = f"store_{next(_NUMBERS)}"
    with psycopg.connect(url.render_as_string(hide_password=False), autocommit=True) as admin:
        # Half the CPU, where the server knows of it: before, there was no other way.
        how = " STRATEGY FILE_COPY" if admin.info.server_version >= POSTGRES_15 else ""
        admin.execute(f"CREATE DATABASE {name}{how}".encode())
        try:
            yield url.set(database=name).render_as_string(hide_password=False)
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture
def postgres(postgres_url: str) -> Iterator[str]:
    with fresh_database(postgres_url) as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def address(request: pytest.FixtureRequest) -> str:
    """Return an address at which a store can be opened that does not exist yet."""
    return str(request.getfixturevalue("file" if request.param == "sqlite" else "postgres"))

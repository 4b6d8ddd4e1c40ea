"""The fixtures that every room shares: the real things of `harness`, started once a session."""

from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from harness import UnavailableError
from harness.postgres import Postgres
from harness.quantity import GoQuantity

T = TypeVar("T")


def _or_skip(make: Callable[[], T]) -> T:
    try:
        return make()
    except UnavailableError as why:
        pytest.skip(str(why))


@pytest.fixture(scope="session")
def go_quantity() -> GoQuantity:
    """How Go reads quantities and durations: `go_quantity.ask(["quantity 1.5Gi"])`."""
    return _or_skip(GoQuantity)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """The URL of an empty database on a PostgreSQL server of our own."""
    with _or_skip(Postgres) as server:
        yield server.url

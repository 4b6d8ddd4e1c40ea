import psycopg
import pytest


@pytest.mark.postgres
def test_postgres_stores_rows(postgres_url: str) -> None:
    with psycopg.connect(postgres_url.replace("+psycopg", "")) as connection:
        connection.execute("CREATE TEMPORARY TABLE events (what text)")
        connection.execute("INSERT INTO events VALUES ('resized')")
        assert connection.execute("SELECT what FROM events").fetchall() == [("resized",)]


@pytest.mark.postgres
def test_postgres_requires_its_password(postgres_url: str) -> None:
    scheme, _, rest = postgres_url.replace("+psycopg", "").partition("://")
    user, _, place = rest.partition(":")
    without = f"{scheme}://{user}:wrong@{place.partition('@')[2]}"
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(without)

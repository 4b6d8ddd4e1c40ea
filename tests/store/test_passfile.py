"""Password files of PostgreSQL, by the rules of libpq."""

from pathlib import Path

import pytest

from trimtab.store.passfile import find_password, read_password

WANTED = ("db.shop", "5432", "trimtab", "me")


@pytest.mark.parametrize(
    ("text", "password"),
    [
        ("db.shop:5432:trimtab:me:secret", "secret"),
        ("*:*:*:me:any", "any"),
        ("# db.shop:5432:trimtab:me:commented", None),
        ("other:5432:trimtab:me:no\\ndb.shop:*:trimtab:me:second", "second"),
        (r"db.shop:5432:trimtab:me:a\:b\\c", r"a:b\c"),
        (r"db.shop:5432:trimtab:\*:literal", None),
        ("db.shop:5432:trimtab:you:else", None),
        ("db.shop:5432", None),
        ("db.shop:5432:trimtab:me:", ""),
        ("db.shop:5432:trimtab:me\\ndb.shop:5432:trimtab:me:second", "second"),
        ("db.shop:5432:trimtab:me:ends\\", "ends\\"),
        ("db.shop:5432:trimtab:me:cut\u2028not\fcut", "cut\u2028not\fcut"),
        ("db.shop:5432:trimtab:me:windows\r", "windows"),
    ],
)
def test_find_password_returns_that_of_the_first_matching_line(text: str, password: str | None) -> None:
    assert find_password(text.replace("\\n", "\n"), WANTED) == password


@pytest.mark.parametrize(
    ("parameters", "password"),
    [
        ({"host": "a", "port": 1}, "of a"),
        ({"hostaddr": "10.0.0.1"}, "of the address"),
        ({"host": "b", "hostaddr": "10.0.0.1"}, "of b"),
        ({}, "local"),
        ({"host": "a,b", "port": 1}, None),
        ({"hostaddr": "10.0.0.1,10.0.0.2"}, None),
        ({"host": "a,b", "port": "1,2"}, None),
    ],
)
def test_read_password_takes_that_of_the_only_host(
    tmp_path: Path, parameters: dict[str, object], password: str | None
) -> None:
    """Only libpq knows which of several hosts it connects to."""
    file = tmp_path / "pgpass"
    lines = (
        "a:1:*:me:of a",
        "10.0.0.1:5432:*:me:of the address",
        "b:5432:*:me:of b",
        "localhost:*:*:me:local",
    )
    file.write_bytes("\n".join(lines).encode())
    assert read_password({"user": "me", "passfile": str(file), **parameters}) == password

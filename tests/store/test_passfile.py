"""Password files of PostgreSQL, by the rules of libpq."""

import pytest

from trimtab.store.passfile import find_password

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
    ],
)
def test_find_password_returns_that_of_the_first_matching_line(text: str, password: str | None) -> None:
    assert find_password(text.replace("\\n", "\n"), WANTED) == password

"""From what the user wrote to the database it means. Nothing is opened here."""

import os
import re
from pathlib import Path

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from trimtab.store.database import Backend
from trimtab.store.errors import SETTING, AddressError
from trimtab.store.postgres import PostgreSQL
from trimtab.store.sqlite import SQLite

_FORMS = "give the path of a file, sqlite:///FILE or postgresql://USER@HOST/DATABASE"


def backend(address: str | os.PathLike[str], *, only_to_read: bool = False) -> Backend:
    """The database at a path or URL; `AddressError` where it is neither."""
    # A mistyped URL must not pass for a file name: the error would show its password.
    if not isinstance(address, str) or not (":/" in address or "@" in address):
        return _file(os.fspath(address), only_to_read=only_to_read)
    try:
        url = make_url(address)
    except (ArgumentError, ValueError) as error:
        raise _unknown(address) from error
    match url.drivername.partition("+")[0]:
        case "sqlite" if not (url.host or url.query):
            return _file(url.database or "", only_to_read=only_to_read)
        case "postgresql" | "postgres":
            return PostgreSQL(url, only_to_read=only_to_read)
        case _:
            raise _unknown(address)


def _file(path: str, *, only_to_read: bool) -> SQLite:
    if path in {"", ":memory:"} or "\0" in path:
        raise _unknown(path)  # what is kept in memory is no store
    return SQLite(Path(path), only_to_read=only_to_read)


def _unknown(address: str) -> AddressError:
    # However it is mistyped: a password stands before the last @, or is an option.
    shown = re.sub(r"^(\w*:/*)?.*@", r"\1***@", address, flags=re.DOTALL)
    path, mark, options = shown.partition("?")
    shown = path + mark + re.sub(r"=[^&]*", "=***", options)
    return AddressError(f"{SETTING}: {shown!r} is no store that is known; {_FORMS}")

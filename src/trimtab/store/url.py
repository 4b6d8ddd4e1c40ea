"""Select the database for a path or URL. Nothing is opened here."""

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


def select_backend(address: str | os.PathLike[str], *, read_only: bool = False) -> Backend:
    """Return the database at a path or URL; raise `AddressError` if it is neither."""
    # A mistyped URL must not be treated as a file name: the error would show its password.
    if not isinstance(address, str) or not (":/" in address or "@" in address):
        return _select_sqlite(os.fspath(address), read_only=read_only)
    try:
        url = make_url(address)
    except (ArgumentError, ValueError) as error:
        raise _make_address_error(address) from error
    match url.drivername.partition("+")[0]:
        case "sqlite" if not (url.host or url.query):
            return _select_sqlite(url.database or "", read_only=read_only)
        case "postgresql" | "postgres":
            return PostgreSQL(url, read_only=read_only)
        case _:
            raise _make_address_error(address)


def _select_sqlite(path: str, *, read_only: bool) -> SQLite:
    if path in {"", ":memory:"} or "\0" in path:
        raise _make_address_error(path)  # a database in memory would not persist
    return SQLite(Path(path), read_only=read_only)


def _make_address_error(address: str) -> AddressError:
    # Hide the password in any mistyped URL: it is before the last @, or in an option.
    shown = re.sub(r"^(\w*:/*)?.*@", r"\1***@", address, flags=re.DOTALL)
    path, mark, options = shown.partition("?")
    shown = path + mark + re.sub(r"=[^&]*", "=***", options)
    return AddressError(f"{SETTING}: {shown!r} is not a supported store; {_FORMS}")

"""Read the password of a PostgreSQL user from a password file.

libpq ignores a file that its group may read. The file of a Secret is exactly that where a pod has an fsGroup, and without
one a pod that does not run as root cannot read it. Whether others may read the file is the manifest's business here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_FIELD = r"((?:\\.|[^:\\]|\\$)*)"
_LINE = re.compile(f"{':'.join([_FIELD] * 5)}(?::|$)")
_HOST, _PORT = "localhost", "5432"


def read_password(parameters: dict[str, Any]) -> str | None:
    """Return the password for these connection parameters from their `passfile`; None if the file has none.

    It is None too for several hosts, which may have different passwords: libpq reads the file for each of them.
    """
    hosts = [str(parameters.get(name) or "") for name in ("host", "hostaddr")]
    if "," in "".join(hosts):
        return None
    try:
        text = Path(parameters["passfile"]).read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return None  # libpq continues without a password too, and the server rejects the user
    user = str(parameters.get("user", ""))
    wanted = (
        hosts[0] or hosts[1] or _HOST,
        str(parameters.get("port") or _PORT),
        str(parameters.get("dbname") or user),
        user,
    )
    return find_password(text, wanted)


def find_password(text: str, wanted: tuple[str, str, str, str]) -> str | None:
    """Return the password of the first line that matches host, port, database and user; `*` matches all."""
    for line in text.split("\n"):
        found = None if line.startswith("#") else _LINE.match(line.rstrip("\r"))
        if found is None:
            continue
        *keys, password = found.groups()
        if all(key == "*" or _unescape(key) == value for key, value in zip(keys, wanted, strict=True)):
            return _unescape(password)
    return None


def _unescape(field: str) -> str:
    return re.sub(r"\\(.)", r"\1", field)

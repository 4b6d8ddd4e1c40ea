"""Read the password of a PostgreSQL user from a password file.

libpq ignores a file that its group may read. The file of a Secret is exactly that where a pod has an fsGroup, and without
one a pod that does not run as root cannot read it. Whether others may read the file is the manifest's business here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_FIELD = re.compile(r"((?:\\.|[^:\\])*)(?::|$)")
_HOST, _PORT = "localhost", "5432"


def read_password(parameters: dict[str, Any]) -> str | None:
    """Return the password for these connection parameters from their `passfile`; None if the file has none."""
    try:
        text = Path(parameters["passfile"]).read_text()
    except (OSError, UnicodeDecodeError):
        return None  # libpq continues without a password too, and the server rejects the user
    user = str(parameters.get("user", ""))
    for host in str(parameters.get("host") or _HOST).split(","):
        wanted = (
            host,
            str(parameters.get("port") or _PORT).partition(",")[0],
            str(parameters.get("dbname") or user),
            user,
        )
        found = find_password(text, wanted)
        if found is not None:
            return found
    return None


def find_password(text: str, wanted: tuple[str, str, str, str]) -> str | None:
    """Return the password of the first line that matches host, port, database and user; `*` matches all."""
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        fields = [re.sub(r"\\(.)", r"\1", each) for each in _FIELD.findall(line)]
        keys = _FIELD.findall(line)[:4]
        if len(fields) > 4 and all(
            raw == "*" or field == value for raw, field, value in zip(keys, fields, wanted, strict=False)
        ):
            return fields[4]
    return None

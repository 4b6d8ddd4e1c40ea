"""Import optional packages, with an error that names the extra of Trimtab that installs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from trimtab.errors import TrimtabError


@contextmanager
def require_extra(extra: str, needed_by: str, *, alternative: str = "") -> Iterator[None]:
    """Turn a failed import in the block into one line with the command that installs the extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        # A module of ours that is missing is a defect, and no extra would install it.
        if error.name is None or error.name.split(".")[0] == "trimtab":
            raise
        hint = f"; or {alternative}" if alternative else ""
        raise TrimtabError(
            f"{needed_by}: {error.name} is not installed; run: pip install 'trimtab[{extra}]'{hint}"
        ) from None

"""The number that chance begins with, as every command takes it: refused where there is no such beginning."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from trimtab.errors import TrimtabError

MAX_SEED = 2**63
"""Compiled code counts no further."""


def _check_seed(_: type, seed: int) -> None:
    if not 0 <= seed < MAX_SEED:
        raise TrimtabError(f"--seed {seed}: must not be negative, and less than {MAX_SEED}")


Seed = Annotated[int, Parameter(validator=_check_seed)]

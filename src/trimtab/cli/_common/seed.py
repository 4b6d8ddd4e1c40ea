"""The seed option that all commands share, with its validation."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from trimtab.errors import TrimtabError

MAX_SEED = 2**63
"""The limit of a seed in compiled code."""


def _check_seed(_: type, seed: int) -> None:
    if not 0 <= seed < MAX_SEED:
        raise TrimtabError(f"--seed {seed}: must not be negative, and must be less than {MAX_SEED}")


Seed = Annotated[int, Parameter(validator=_check_seed)]

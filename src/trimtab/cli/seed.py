"""The number that chance begins with, as every command takes it: refused where there is no such beginning."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from trimtab.errors import TrimtabError


def _not_negative(_: type, seed: int) -> None:
    if seed < 0:
        raise TrimtabError(f"--seed {seed}: must not be negative")


Seed = Annotated[int, Parameter(validator=_not_negative)]

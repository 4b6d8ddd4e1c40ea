"""What one check of `trimtab doctor` found."""

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "problem"]

SHOWN_AT_MOST = 6


@dataclass(frozen=True)
class Finding:
    """What one check found, and what to do about it when that is not well."""

    check: str
    state: State
    found: str
    advice: str = ""


def some(names: list[str]) -> str:
    """The first few, and how many more there are."""
    more = f" and {len(names) - SHOWN_AT_MOST} more" if len(names) > SHOWN_AT_MOST else ""
    return ", ".join(names[:SHOWN_AT_MOST]) + more

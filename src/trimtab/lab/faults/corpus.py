"""Cases in files: shrunk failures, which every test run repeats."""

from __future__ import annotations

from pathlib import Path

import msgspec

from trimtab.lab.faults.runner import FaultCase


class CorpusCase(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A case in a file, with what it once violated."""

    invariant: str
    """The invariant that the case violated before the defect was fixed."""
    defect: str = ""
    """One sentence about the defect."""
    case: FaultCase


def load_case(path: Path) -> CorpusCase:
    """Load a case from a file."""
    return msgspec.json.decode(path.read_bytes(), type=CorpusCase)


def save_case(path: Path, case: FaultCase, *, invariant: str, defect: str = "") -> None:
    """Save a case to a file that people can read and compare."""
    text = msgspec.json.encode(CorpusCase(invariant=invariant, defect=defect, case=case))
    path.write_bytes(msgspec.json.format(text, indent=1) + b"\n")

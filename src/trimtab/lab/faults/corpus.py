"""Cases of the operator and of the node agent: drawn from seeds, run, and in files; tests repeat shrunk failures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from trimtab.lab.faults.node_runner import NodeCase, NodeCaseResult, draw_node_case, run_node_case
from trimtab.lab.faults.runner import CaseResult, FaultCase, draw_case, run_case

Subject = Literal["operator", "node"]
AnyCase = FaultCase | NodeCase


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusCase:
    """A case in a file, with what it once violated."""

    invariant: str
    """The invariant that the case violated before the defect was fixed."""
    defect: str
    """One sentence about the defect."""
    case: AnyCase


class _StoredCase(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    invariant: str
    defect: str = ""
    subject: Subject = "operator"
    case: msgspec.Raw


def draw_any_case(seed: int, intensity: str, subject: Subject) -> AnyCase:
    """Draw the case of a seed."""
    return draw_node_case(seed, intensity) if subject == "node" else draw_case(seed, intensity)


async def run_any_case(case: AnyCase) -> CaseResult | NodeCaseResult:
    """Run a case from its first second to its last."""
    return await (run_node_case(case) if isinstance(case, NodeCase) else run_case(case))


def load_case(path: Path) -> CorpusCase:
    """Load a case from a file."""
    stored = msgspec.json.decode(path.read_bytes(), type=_StoredCase)
    kind: type[FaultCase | NodeCase] = NodeCase if stored.subject == "node" else FaultCase
    case = msgspec.json.decode(stored.case, type=kind)
    return CorpusCase(invariant=stored.invariant, defect=stored.defect, case=case)


def save_case(path: Path, case: AnyCase, *, invariant: str, defect: str = "") -> None:
    """Save a case to a file that people can read and compare."""
    stored = _StoredCase(
        invariant=invariant,
        defect=defect,
        subject="node" if isinstance(case, NodeCase) else "operator",
        case=msgspec.Raw(msgspec.json.encode(case)),
    )
    path.write_bytes(msgspec.json.format(msgspec.json.encode(stored), indent=1) + b"\n")

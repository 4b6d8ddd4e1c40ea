"""Documents name targets of the Makefile that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "bench").glob("*.py"),
    ROOT / "tests/README.md",
]


def test_documents_name_targets_that_exist() -> None:
    known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        (str(page.relative_to(ROOT)), target)
        for page in PAGES
        for target in re.findall(r"(?:`|^    |^)make ([a-z][a-z-]+)", page.read_text(), re.MULTILINE)
    }
    assert {target for _, target in named} >= {"demo", "cluster", "test"}
    assert {(page, target) for page, target in named if target not in known} == set()

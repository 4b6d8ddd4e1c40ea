"""The reverse patches of fixes of the past fit the present code."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lab.faults.mutants.__main__ import SOURCE, list_patches


@pytest.mark.parametrize("patch", list_patches(), ids=lambda path: path.stem)
def test_reverse_patch_of_a_fix_applies_to_the_code(patch: Path) -> None:
    command = ["git", "apply", "--check", str(patch)]
    assert patch.read_text().startswith("Reverts ")
    result = subprocess.run(command, cwd=SOURCE.parent, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{result.stderr}write the patch anew"

"""Changes as diffs, commands and patches."""

import subprocess
from pathlib import Path

import pytest

from trimtab.scan.patches.render import render_edit


@pytest.mark.parametrize("ends", ["\n", "", "\r\n", "\u2028\n"])
def test_render_edit_applies_with_any_line_ending(ends: str, tmp_path: Path) -> None:
    before, after = (f"# one\x0btwo\nrequests:\n  cpu: {cpu}{ends}" for cpu in ("1", "100m"))
    file = tmp_path / "values.yaml"
    file.write_bytes(before.encode())
    subprocess.run(
        ["git", "apply", "-"],
        input=render_edit("values.yaml", before, after).encode(),
        cwd=tmp_path,
        check=True,
    )
    assert file.read_bytes().decode() == after

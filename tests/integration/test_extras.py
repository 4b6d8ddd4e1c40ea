"""An optional package that is missing is reported in one line with its extra."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

_WITHOUT = """
import sys
for name in {missing!r}:
    sys.modules[name] = None
"""


def _run_without(missing: tuple[str, ...], code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _WITHOUT.format(missing=missing) + code],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("module", ["trimtab.lab.environments", "trimtab.lab.emulator.environment"])
def test_environments_without_gymnasium_name_the_extra(module: str, tmp_path: Path) -> None:
    ended = _run_without(("gymnasium",), f"import {module}", tmp_path)
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == (
        "trimtab.errors.TrimtabError: trimtab.lab.environments: gymnasium is not installed; run: pip install 'trimtab[lab]'"
    )


def test_simulation_runs_with_the_base_install(tmp_path: Path) -> None:
    optional = ("scipy", "gymnasium", "jax", "optax", "ray", "pyarrow", "matplotlib", "tensorboardX")
    command = ["simulate", "none", "--workloads", "3", "--days", "1", "--warm-up", "0", "--output", "json"]
    ended = _run_without(optional, f"from trimtab.cli import run; sys.exit(run({command!r}))", tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("[")

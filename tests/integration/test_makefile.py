"""The Makefile: its targets expand, and name files, folders and modules that exist."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
TARGETS = re.findall(r"^([a-z-]+):.*## ", MAKEFILE, re.MULTILINE)
MADE = {".venv", "site", "build", "dist", "__pycache__"}
"""The folders that targets create."""


def expand(target: str) -> str:
    """Return the commands that a target would run."""
    done = subprocess.run(
        ["make", "--always-make", "--dry-run", "--no-print-directory", target],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout


@pytest.mark.parametrize("target", TARGETS)
def test_target_names_files_and_modules_that_exist(target: str) -> None:
    commands = expand(target)
    assert commands.strip(), "nothing would be run"
    paths = re.findall(
        r"(?<![\w./-])((?:tests|bench|src|tools|examples|docs|deploy|charts)(?:/[\w.-]+)+)", commands
    )
    missing = [
        path
        for path in paths
        if not (ROOT / path.rstrip(".")).exists() and not MADE.intersection(Path(path).parts)
    ]
    assert missing == []
    modules = re.findall(r"python -m ([\w.]+)", commands)
    assert [name for name in modules if not _exists(name)] == []


def _exists(module: str) -> bool:
    if (ROOT / module.replace(".", "/")).with_suffix(".py").exists():
        return True
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def test_help_lists_every_target() -> None:
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    assert [target for target in TARGETS if f"make {target} " not in plain] == []
    assert len(plain.splitlines()) == len(TARGETS)


def test_benchmarks_can_be_started() -> None:
    """They take minutes to hours, but an import that moved fails at once."""
    script = "import runpy, sys\nfor file in sys.argv[1:]: runpy.run_path(file, run_name='imported')"
    files = map(str, sorted((ROOT / "bench").glob("*.py")))
    command = [sys.executable, "-c", script, *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr

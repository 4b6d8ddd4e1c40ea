"""The page of commands says what they say, shells can complete them, and kubectl finds them."""

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from trimtab.cli import COMMANDS, run
from trimtab.cli.docsgen import manual

ROOT = Path(__file__).parents[2]


def test_the_page_is_what_the_commands_say() -> None:
    page = (ROOT / "docs" / "reference" / "commands.md").read_text()
    assert page == manual(), "run `python -m trimtab.cli.docsgen docs/reference/commands.md`"
    assert all(f"## trimtab {name}\n" in page for name in COMMANDS)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_is_told_of_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in COMMANDS)
    if shell == "bash" and (bash := shutil.which("bash")):
        asked = 'COMP_WORDS=(trimtab doc); COMP_CWORD=1; COMP_LINE="trimtab doc"; _trimtab; echo "${COMPREPLY[@]}"'
        done = subprocess.run([bash, "-c", f"{script}\n{asked}"], capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["doctor"]


def test_kubectl_finds_the_same_program() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["kubectl-trimtab"] == scripts["trimtab"]

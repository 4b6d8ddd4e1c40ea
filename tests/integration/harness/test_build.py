"""Builds of the harness: made once, with a clear error if impossible."""

import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from harness import UnavailableError, build, packages

TESTS = Path(build.__file__).parent.parent


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TEST_CACHE", str(tmp_path))
    return tmp_path


def test_build_compiles_a_program_once_for_two_runs(go_quantity: object, cache: Path) -> None:
    command = [sys.executable, "-c", "from harness import build; print(build.QUANTITY.built())"]
    environment = os.environ | {"PYTHONPATH": str(TESTS)}
    both = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [run.communicate() for run in both]
    assert {out.strip() for out, _ in said} == {str(build.QUANTITY.folder)}
    assert sum("built in" in progress for _, progress in said) == 1
    assert {entry.name for entry in cache.iterdir()} == {build.QUANTITY.folder.name, "quantity.lock"}


def test_build_compiles_other_sources_again(tmp_path: Path) -> None:
    (tmp_path / "quantity").mkdir()
    (tmp_path / "quantity" / "main.go").write_text("package main")
    other = replace(build.QUANTITY, home=tmp_path)
    assert other.folder.name.startswith(f"quantity-{build.KUBERNETES}-")
    assert other.folder != build.QUANTITY.folder


def test_build_shows_the_compiler_output_of_a_failure(go_quantity: object, tmp_path: Path) -> None:
    (tmp_path / "quantity").mkdir()
    (tmp_path / "quantity" / "go.mod").write_text("module quantity\n")
    (tmp_path / "quantity" / "main.go").write_text("package main\nfunc main() { nonsense() }\n")
    broken = replace(build.QUANTITY, home=tmp_path)
    with pytest.raises(RuntimeError, match=r"(?s)quantity did not build.*undefined: nonsense"):
        broken.built()
    assert not broken.folder.exists()


def test_build_names_the_missing_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UnavailableError, match="kube cannot be built: there is no `go` on PATH; install Go"):
        build.KUBE.built()


def test_build_names_missing_packages_without_apt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(packages.PROOF, "prometheus", "no/such/file")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UnavailableError, match="missing, and there is no apt-get: prometheus"):
        packages.install("prometheus")


def _collect(*arguments: str) -> list[str]:
    """Return the ids of the tests that pytest would run."""
    listed = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments, "--numprocesses", "0", "--collect-only", "-q"],
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    return [line for line in listed.stdout.splitlines() if "::" in line]


def test_make_test_fast_runs_most_tests_and_none_of_integration() -> None:
    printed = subprocess.run(
        ["make", "--dry-run", "test-fast"], cwd=TESTS.parent, capture_output=True, text=True, check=True
    )
    program, *arguments = shlex.split(printed.stdout.splitlines()[-1])
    assert program == "pytest"
    fast = _collect(*arguments)
    assert not [test for test in fast if test.startswith("tests/integration/")]
    assert len(fast) >= 0.85 * len(_collect())


def test_tests_have_no_variable_that_the_configuration_would_refuse() -> None:
    """The operator refuses each TRIMTAB_ variable that is no setting of its own: with one of ours set, it would not start."""
    ours = re.findall(r"TRIMTAB_[A-Z_]+", (TESTS.parent / "Makefile").read_text())
    for file in TESTS.rglob("*.py"):
        ours += re.findall(r"""environ(?:\.get\(|\[)['"](TRIMTAB_[A-Z_]+)""", file.read_text())
    assert ours == []

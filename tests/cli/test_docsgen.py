"""The reference pages match the code, shells can complete the commands, and kubectl finds them."""

import tomllib
from pathlib import Path

import pytest

from trimtab.cli import COMMANDS
from trimtab.cli.docsgen import PAGES, main

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"


@pytest.mark.parametrize("name", PAGES)
def test_reference_page_matches_the_code(name: str) -> None:
    assert (REFERENCE / name).read_text() == PAGES[name](), "run `make reference`"


def test_reference_folder_has_only_generated_pages(tmp_path: Path) -> None:
    main(tmp_path)
    assert {page.name for page in REFERENCE.iterdir()} == {page.name for page in tmp_path.iterdir()}


@pytest.mark.parametrize("name", PAGES)
def test_reference_explains_every_row(name: str) -> None:
    rows = [line for line in (REFERENCE / name).read_text().splitlines() if line.startswith("| `")]
    assert [row for row in rows if row.endswith("|  |")] == []


def test_commands_page_has_a_section_for_every_command() -> None:
    page = (REFERENCE / "commands.md").read_text()
    assert all(f"## trimtab {name}\n" in page for name in COMMANDS)


def test_kubectl_plugin_is_the_same_program() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["kubectl-trimtab"] == scripts["trimtab"]

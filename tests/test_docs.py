"""What the documentation shows works: its manifests are taken, its commands are understood, its links lead somewhere."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from cyclopts import CycloptsError

from trimtab.api import KINDS
from trimtab.cli import build_app
from trimtab.sizing.strategy import STRATEGIES

ROOT = Path(__file__).parents[1]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
GENERATED = "reference"  # compared with the code by tests/cli/test_docsgen.py
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
GUIDES = [page for page in PAGES if page.stem in {"simulate", "workloads", "write-a-strategy"}]
BY_NAME = {kind.__name__: kind for kind in KINDS}
ids = [str(page.relative_to(ROOT)) for page in PAGES]


def blocks(page: Path, *kinds: str) -> Iterator[str]:
    for kind, text in FENCE.findall(page.read_text()):
        if kind in kinds:
            yield text


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_manifests_of_our_kinds_are_taken(page: Path) -> None:
    for text in blocks(page, "yaml"):
        for document in yaml.safe_load_all(text):
            if isinstance(document, dict) and str(document.get("apiVersion", "")).startswith("trimtab.io/"):
                BY_NAME[document["kind"]].model_validate(document)


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_commands_are_understood(page: Path) -> None:
    for line in _commands(page) if page.parent.name != GENERATED else ():
        words = shlex.split(line, comments=True)[1:]
        if words and words[0].startswith("-"):
            continue
        try:
            build_app(*words[:1]).parse_args(words, exit_on_error=False, print_error=False)
        except CycloptsError as error:
            pytest.fail(f"{line}: {error}")


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_settings_are_those_of_their_strategy(page: Path) -> None:
    for strategy, setting in re.findall(r"--strategy ([\w-]+) --setting (\w+)=", page.read_text()):
        assert setting in STRATEGIES.load_type(strategy).settings_type.model_fields


def _commands(page: Path) -> Iterator[str]:
    shown = "\n".join(re.findall(r"^    (trimtab .*)$", page.read_text(), re.MULTILINE))
    for text in (*blocks(page, "sh", "console", "bash"), shown):
        for line in text.replace("\\\n", " ").splitlines():
            plain = line.removeprefix("$ ").split(" | ")[0].split(" > ")[0]
            for part in plain.split("; "):
                if part.strip().startswith("trimtab ") and "…" not in part and "[OPTIONS]" not in part:
                    yield part.strip()


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_links_within_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_python_in_a_guide_runs(page: Path) -> None:
    names: dict[str, object] = {"__name__": "docs"}
    for text in blocks(page, "python"):
        exec(compile(text, str(page), "exec"), names)


def test_docs_navigation_has_each_page_once() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    named = re.findall(r": ([\w/-]+\.md)$", text[text.index("\nnav:") :], re.MULTILINE)
    there = [str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")]
    assert sorted(named) == sorted(there)

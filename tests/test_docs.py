"""Checks of the documentation: its examples work, its names exist, and its length is limited."""

import inspect
import re
import shlex
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from cyclopts import CycloptsError
from pydantic.alias_generators import to_snake

from trimtab.api import KINDS, OptimizationPolicySpec
from trimtab.api.model import ApiModel, nested_model, upgrade_fields
from trimtab.cli import build_app
from trimtab.lab import Simulation
from trimtab.operator.config.model import OperatorConfig
from trimtab.scan.pricing import ResourcePrices
from trimtab.sizing.strategy import STRATEGIES

ROOT = Path(__file__).parents[1]
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
GENERATED = "reference"  # compared with the code by tests/cli/test_docsgen.py
USER_PAGES = [
    page for page in PAGES if not {"research", GENERATED, "CONTRIBUTING.md"}.intersection(page.parts)
]
BUDGET = 20_000
"""The most words that users are asked to read; docs/research and generated pages do not count."""
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
GUIDES = [
    page for page in PAGES if page.stem in {"simulate", "test-a-plugin", "workloads", "write-a-strategy"}
]
BY_NAME = {kind.__name__: kind for kind in KINDS}
ids = [str(page.relative_to(ROOT)) for page in PAGES]


def blocks(page: Path, *kinds: str) -> Iterator[str]:
    for kind, text in FENCE.findall(page.read_text()):
        if kind in kinds:
            yield text


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_manifests_and_settings_are_valid_and_have_their_present_names(page: Path) -> None:
    for text in blocks(page, "yaml"):
        for document in yaml.safe_load_all(text):
            model, given = _find_model(document)
            if model is not None:
                model.model_validate(given)
                assert upgrade_fields(model, given)[1] == []


def _find_model(document: dict[str, Any]) -> tuple[type[ApiModel] | None, dict[str, Any]]:
    """Return the model for a document or a part of one, by its first lines."""
    if "apiVersion" in document:
        return BY_NAME.get(document["kind"]), document  # none for a kind of another project
    if document.keys() == {"spec"}:
        return OptimizationPolicySpec, document["spec"]
    if document.keys() <= ResourcePrices.model_fields.keys():
        ResourcePrices.model_validate(document)
        return None, document
    return OperatorConfig, document


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
            plain = re.split(r" (?:\|\|?|>|&&) ", line.removeprefix("$ "))[0]
            for part in plain.split("; "):
                if part.strip().startswith("trimtab ") and "…" not in part and "[OPTIONS]" not in part:
                    yield part.strip()


@pytest.mark.parametrize("page", PAGES, ids=ids)
def test_links_within_lead_somewhere(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target
            assert not anchor or anchor in _list_anchors((page.parent / target) if target else page), target


@cache
def _list_anchors(page: Path) -> frozenset[str]:
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return frozenset(
        re.sub(r"[^\w\s-]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    )


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.stem)
def test_python_in_a_guide_runs(page: Path) -> None:
    names: dict[str, object] = {"__name__": "docs"}
    for text in blocks(page, "python"):
        exec(compile(text, str(page), "exec"), names)


def test_pictures_are_those_that_pages_show() -> None:
    shown = {
        path.name
        for page in PAGES
        for path in map(Path, re.findall(r"\(([^)\s]*pictures/[^)\s]+)", page.read_text()))
    }
    assert shown == {path.name for path in (ROOT / "docs/pictures").iterdir()}


def test_simulation_has_the_arguments_and_members_of_its_guide() -> None:
    text = (ROOT / "docs/how-to/simulate.md").read_text()
    table = text[text.index("| argument or member |") :].partition("\n\n")[0]
    named = re.findall(r"`(\w+)", "\n".join(row.split("|")[1] for row in table.splitlines()))
    source = inspect.getsource(Simulation)
    assert len(named) > 8
    assert [name for name in named if not re.search(rf"\b{name}: |self\.{name}\b|def {name}\b", source)] == []


def test_changelog_has_one_entry_a_line_below_a_heading_of_its_own() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    headings = [number for number, line in enumerate(lines) if re.match(r"[A-Z#]", line)]
    for beside in (-1, 1):
        assert [lines[number] for number in headings[1:] if lines[number + beside]] == []
    assert [line for line in lines if re.search(r"\S\.- \S", line)] == []
    entries = [line for line in lines if line.startswith("- ")]
    assert len(entries) == len(set(entries))
    groups = "\n".join(lines).split("\n\n")
    appended = [
        after for group, after in pairwise(groups) if group.startswith("- ") and after.startswith("- ")
    ]
    assert appended == []


def test_docs_navigation_has_each_page_once() -> None:
    text = (ROOT / "mkdocs.yml").read_text()
    named = re.findall(r": ([\w/-]+\.md)$", text[text.index("\nnav:") :], re.MULTILINE)
    there = [str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")]
    assert sorted(named) == sorted(there)


def test_user_pages_are_within_their_budget() -> None:
    counts = {page: len(re.findall(r"[A-Za-z][A-Za-z'-]+", page.read_text())) for page in USER_PAGES}
    assert sum(counts.values()) <= BUDGET, "shorten these or others: " + ", ".join(
        f"{page.relative_to(ROOT)} {counts[page]}"
        for page in sorted(counts, key=lambda each: -counts[each])[:8]
    )


PROSE = [*USER_PAGES, *(ROOT / f"{name}.md" for name in ("CHANGELOG", "CONTRIBUTING", "SECURITY"))]
SOURCES = ("src/trimtab", "charts", "deploy", "examples", "tests", "tools")
SUFFIXES = {".py", ".yaml", ".json", ".proto", ".html", ".txt", ".go", ".md", ".tpl"}
FILES = ("Makefile", "Dockerfile", "pyproject.toml", "CHANGELOG.md", "SECURITY.md")
WORD = re.compile(r"[A-Za-z_][\w-]*")
FOREIGN = {
    # Other projects' options and series, and metrics and variables of the platform.
    *("--allow-hpa", "--history_duration", "--cpu_percentile", "--use_oomkill_data", "--use-oomkill-data"),
    *("allow-hpa", "use-oomkill-data", "history_duration", "cpu_percentile", "use_oomkill_data"),
    *(
        "--build-arg",
        "honor_labels",
        "k8s_namespace_name",
        "k8s_pod_name",
        "k8s_container_name",
        "periods_total",
    ),
    *("SOLR_HEAP", "release_agent", "verify-full"),
    # Placeholders.
    *("MineStrategy", "MineSettings", "MineSource", "YOUR-TRACES"),
}


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_names_in_code_spans_exist(page: Path) -> None:
    """Check metrics, log keys, settings, fields, options, paths and Python names, by the words that they consist of."""
    unknown = [
        span
        for span in _list_spans(page)
        if not _is_metric(span) and not all(_is_known_word(word) for word in WORD.findall(span))
    ]
    assert unknown == []


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_settings_in_code_spans_have_their_present_names(page: Path) -> None:
    unknown = []
    for span in _list_spans(page):
        name = re.split(r"[:= ]", span, maxsplit=1)[0]
        if name.endswith(tuple(SUFFIXES)):
            continue
        head, *below = name.replace("[]", "").removeprefix("spec.").split(".")
        roots = [model for model in ROOTS if head in _by_alias(model)] if below else []
        if roots and not any(_has_path(model, [head, *below]) for model in roots) and not _is_log_key(name):
            unknown.append(span)
    assert unknown == []


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_events_and_conditions_exist(page: Path) -> None:
    named = re.findall(r"\b(?:Events?|conditions?|Warning) `(\w+)`", page.read_text())
    assert [name for name in named if f'"{name}"' not in _read_code()] == []


@pytest.mark.parametrize("page", PROSE, ids=lambda page: str(page.relative_to(ROOT)))
def test_options_in_code_spans_exist(page: Path) -> None:
    ours = set(re.findall(r"--[a-z][\w-]*", (ROOT / "docs/reference/commands.md").read_text())) | FOREIGN
    unknown = [
        option
        for span in _list_spans(page)
        if span.startswith(("--", "trimtab "))
        for option in re.findall(r"--[a-z][\w-]*", span)
        if option not in ours and option not in _read_code()
    ]
    assert unknown == []


def _list_spans(page: Path) -> list[str]:
    """List the code spans of a page; of tables of renamed things, those in the column of the present names."""
    text = FENCE.sub("", page.read_text())
    text = re.sub(r"^    .*$", "", text, flags=re.MULTILINE)
    for table in re.findall(r"^\|[^\n]*\| old \|.*?(?=\n\n)", text + "\n\n", re.MULTILINE | re.DOTALL):
        text = text.replace(table, "\n".join(row.split("|")[-2] for row in table.splitlines()))
    return re.findall(r"`([^`\n]+)`", text)


ROOTS: tuple[type[ApiModel], ...] = (
    OperatorConfig,
    OptimizationPolicySpec,
    *(model for kind in KINDS if (model := nested_model(kind.model_fields["spec"].annotation))),
    *(
        model
        for name in ("updateStrategy", "limitPolicy", "changes")
        if (model := nested_model(OptimizationPolicySpec.model_fields[to_snake(name)].annotation))
    ),
)


def _by_alias(model: type[ApiModel]) -> dict[str, Any]:
    return {field.alias or name: field.annotation for name, field in model.model_fields.items()}


def _has_path(model: type[ApiModel], path: Iterable[str]) -> bool:
    head, *below = path
    if head not in (fields := _by_alias(model)):
        return False
    inner = nested_model(fields[head])
    return not below or inner is None or _has_path(inner, below)


def _is_log_key(name: str) -> bool:
    return f'"{name}"' in _read_code()


def _is_metric(span: str) -> bool:
    """A family of metrics is registered under a part of its name, and the client adds `_total` to counters."""
    if not (found := re.fullmatch(r"trimtab_(?:node_|agent_)?(\w+?)(?:_total)?(?:\{[\w,]+\})?[*…]?", span)):
        return False
    return any(name in _read_code() for name in (f'"{found[1]}', f"_{found[1]}", f"}}{found[1]}"))


def _is_known_word(word: str) -> bool:
    return word in _list_words() or word in FOREIGN or word.rstrip("-") in _list_words()


@cache
def _read_code() -> str:
    return "\n".join(path.read_text() for path in (ROOT / "src/trimtab").rglob("*.py"))


@cache
def _list_words() -> frozenset[str]:
    files = [ROOT / name for name in FILES]
    files += [
        path
        for folder in SOURCES
        for path in (ROOT / folder).rglob("*.*")
        if path.suffix in SUFFIXES and path != Path(__file__)
    ]
    names = {part for path in (*files, Path(__file__)) for part in (*path.relative_to(ROOT).parts, path.stem)}
    return frozenset(names.union(*(WORD.findall(path.read_text()) for path in files)))

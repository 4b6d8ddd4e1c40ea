"""The page docs/research/properties.md names, for each correctness property of the OptiPod design, exactly its tests."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "research" / "properties.md"
COUNT = 32


def listed() -> dict[int, tuple[str, set[str]]]:
    """Return the title and the named tests of each property of the page, by number."""
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \| ([^|]+) \|$", PAGE.read_text(), flags=re.MULTILINE)
    return {int(number): (title, set(re.findall(r"`([^`]+)`", tests))) for number, title, tests in rows}


def written() -> dict[int, set[str]]:
    """Return the files of the existing tests, by number; each draws its examples with hypothesis."""
    found: dict[int, set[str]] = {}
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef) and (match := re.match(r"test_property_(\d+)_", node.name)):
                drawn = [ast.unparse(each) for each in node.decorator_list]
                assert any(each.startswith("given(") for each in drawn), f"{node.name} draws no examples"
                place = f"{file.relative_to(ROOT / 'tests')}::{node.name}"
                found.setdefault(int(match[1]), set()).add(place)
    return found


def test_properties_page_names_exactly_the_tests_of_each_property() -> None:
    page, tests = listed(), written()
    assert sorted(page) == list(range(1, COUNT + 1))
    assert {number: names for number, (_, names) in page.items()} == tests


def test_property_test_has_the_title_of_its_property() -> None:
    for number, (title, names) in listed().items():
        slug = re.sub(r"[^a-z0-9]+", "_", title.lower())
        assert {name.rpartition("::")[2] for name in names} == {f"test_property_{number}_{slug}"}

"""The page docs/research/fields.md names, for each field of the kinds, a test that exists."""

import ast
from functools import cache
from pathlib import Path

from tools.field_effects import NO_TEST, list_fields, read_page

ROOT = Path(__file__).parents[1]


@cache
def list_tests(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / "tests" / file).read_text())
    return frozenset(
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def test_fields_page_names_a_test_for_each_field_of_each_kind() -> None:
    page = read_page()
    assert page.keys() == {each.path for each in list_fields()}
    wrong = [
        test
        for test in set(page.values()) - {NO_TEST}
        if (parts := test.split("::"))[1] not in list_tests(parts[0])
    ]
    assert wrong == []

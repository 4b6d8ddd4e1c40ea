"""Prove that each field of the kinds changes something: `python -m tools.field_effects`.

docs/research/fields.md names a test for each field of a spec. The test must fail once the field has no effect: every reader
gets its default then, whatever a manifest says. A required field has no default; reading it fails. Each field is tried in a
process of its own, forked from one that has imported what the tests need. `--find` looks for such a test of each field.
"""

from __future__ import annotations

import ast
import contextlib
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic.alias_generators import to_snake

from trimtab.api import KINDS
from trimtab.api.model import ApiModel, nested_model

ROOT = Path(__file__).parents[1]
NO_TEST = "none"
"""The entry of a field that no test proves yet."""
PAGE = ROOT / "docs" / "research" / "fields.md"
MAX_CANDIDATES = 14
TIME_LIMIT = 60


class Field(NamedTuple):
    """One field of a kind, at one path."""

    path: str
    model: type[ApiModel]
    name: str

    @property
    def reader(self) -> str:
        """The attribute by which code reads it; several paths may share one."""
        return f"{self.model.__name__}.{self.name}"


def list_fields() -> list[Field]:
    """List the fields of all specs that hold a value of their own, not those that only group others."""
    return [
        each
        for kind in KINDS
        for each in _walk(f"{kind.__name__} spec", nested_model(kind.model_fields["spec"].annotation))
    ]


def _walk(path: str, model: type[ApiModel] | None) -> Iterator[Field]:
    for name, field in model.model_fields.items() if model else ():
        below = nested_model(field.annotation)
        place = f"{path}.{field.alias or name}"
        if below is not None:
            yield from _walk(f"{place}[]" if "tuple[" in str(field.annotation) else place, below)
        elif model is not None:
            yield Field(place, model, name)


def read_page() -> dict[str, str]:
    """Return the test of each field, as the page lists them."""
    rows = re.findall(r"^\| `([^`]+)` \| `?([^`|]+?)`? \|$", PAGE.read_text(), flags=re.MULTILINE)
    return dict(rows)


class _FirstFailure:
    """A pytest plugin that keeps the first test that fails."""

    def __init__(self) -> None:
        self.test = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.test:
            self.test = report.nodeid.partition("[")[0]


def find_failing_test(field: Field, tests: list[str]) -> str:
    """Return the first of these tests that fails once the field has no effect; empty if none does."""
    if not tests:
        return ""
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        signal.alarm(TIME_LIMIT)
        _remove_effect(field.model, field.name)
        failure = _FirstFailure()
        with Path(os.devnull).open("w") as nowhere, contextlib.redirect_stdout(nowhere):
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
            pytest.main(["-x", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", *tests], [failure])
        os.write(writing, failure.test.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        found = answer.read()
    os.waitpid(process, 0)
    return found


def _remove_effect(model: type[ApiModel], name: str) -> None:
    field = model.model_fields[name]

    def read(_self: object) -> Any:
        if field.is_required():
            raise LookupError(f"{model.__name__}.{name} is read")
        return field.get_default(call_default_factory=True)

    # A property takes precedence over the values of an instance, and pydantic does not look at it any more.
    setattr(model, name, property(read))


def list_candidates(field: Field) -> list[str]:
    """List tests that mention a field, those that mention the parts above it too first."""
    *groups, alias = (step.removesuffix("[]") for step in field.path.split(".")[1:])
    above = {*groups, *map(to_snake, groups), field.model.__name__} - {"lsr", "ls", "be"}
    own = {field.name, alias}
    word = re.compile(rf"\b({'|'.join(sorted(own | above))})\b")
    found: list[tuple[int, str]] = []
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        text = file.read_text()
        if {
            "integration",
            "lab",
            "web",
            "scan",
            "cli",
            "security",
            "test_properties.py",
            "api",
            "test_upgrade.py",
            "config",
        } & set(file.parts) or not word.search(text):
            continue
        for node in ast.parse(text).body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not node.name.startswith(
                "test_"
            ):
                continue
            written = "\n".join(map(ast.unparse, node.decorator_list)) + (
                ast.get_source_segment(text, node) or ""
            )
            shared = sum(1 + 2 * (each in own) for each in own | above if re.search(rf"\b{each}\b", written))
            if shared and "given(" not in written:
                found.append((-shared, f"{file.relative_to(ROOT)}::{node.name}"))
    return [test for _, test in sorted(found)[:MAX_CANDIDATES]]


def main(arguments: list[str]) -> int:
    """Check the page; with `--find`, look for a test of each field, or of those whose path contains an argument."""
    os.chdir(ROOT)
    pytest.main(
        ["-q", "--collect-only", "tests/operator/policy", "tests/actuation", "tests/node", "tests/sizing"]
    )
    readers = {each.reader: each for each in list_fields()}
    if arguments[:1] == ["--find"]:
        for reader, field in readers.items():
            if not arguments[1:] or any(each in field.path for each in arguments[1:]):
                test = find_failing_test(field, list_candidates(field))
                print(f"FOUND {reader} {field.path} {test}", flush=True)
        return 0
    page = read_page()
    named = [field for field in readers.values() if page[field.path] != NO_TEST]
    unproven = [
        f"{field.path}: {page[field.path]} passes although the field has no effect"
        for field in named
        if not find_failing_test(field, [f"tests/{page[field.path]}"])
    ]
    print("\n".join(unproven) or f"{len(named)} of {len(readers)} fields have an effect by their tests")
    return int(bool(unproven))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

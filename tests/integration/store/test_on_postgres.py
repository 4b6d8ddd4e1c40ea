"""The tests of tests/store that open a store, once more on PostgreSQL: what holds for a file must hold for a server."""

from importlib import import_module
from inspect import isfunction, signature
from pathlib import Path

import pytest

pytestmark = pytest.mark.postgres


@pytest.fixture
def address(postgres: str) -> str:
    return postgres


def _parametrizes_address(test: object) -> bool:
    return any(
        "address" in mark.args[0] for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"
    )


def _tests_that_open_a_store() -> dict[str, object]:
    found: dict[str, object] = {}
    for file in sorted((Path(__file__).parents[2] / "store").glob("test_*.py")):
        for name, test in vars(import_module(f"store.{file.stem}")).items():
            if not name.startswith("test_") or not isfunction(test) or _parametrizes_address(test):
                continue
            if {"address", "store"} & set(signature(test).parameters):
                found[f"{file.stem}_{name.removeprefix('test_')}"] = test
    return found


globals().update(_tests_that_open_a_store())

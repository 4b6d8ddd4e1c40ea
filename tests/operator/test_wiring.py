"""The composition root: no other module of Trimtab or of its tests puts controllers together."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WIRING = "src/trimtab/operator/wiring.py"
PARTS = {
    "CompetingControllers",
    "IngestCycle",
    "IntentController",
    "IntentObserver",
    "PlanExecutor",
    "PlanningService",
    "PolicyStatusWriter",
    "RecommenderSafeSizes",
    "SizingReconciler",
}
"""Parts that only the wiring constructs: each needs several others."""
READERS = {
    # `trimtab plan` previews one Intent from a client that may only read: it has no leader and no controllers.
    "src/trimtab/operator/intents/preview.py": {"IntentObserver"},
}
UNIT_TESTS = {
    # The unit under test beside stand-ins for its neighbours.
    "tests/operator/intents/test_intent_index.py": {"PlanExecutor"},
    "tests/integration/operator/webhook/test_pod_sizing.py": {"CompetingControllers"},
}


def list_constructed(path: Path) -> Iterator[str]:
    """List the parts that a module constructs, under whatever name it imports them."""
    tree = ast.parse(path.read_text())
    names = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if names.get(called, called) in PARTS:
                yield names.get(called, called)


@pytest.mark.parametrize("folder", ["src", "bench", "examples", "tests", "tools"])
def test_wiring_is_the_only_module_that_constructs_controllers(folder: str) -> None:
    allowed = READERS | UNIT_TESTS
    found = {
        name: wrong
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (name := str(path.relative_to(ROOT))) != WIRING
        and (wrong := set(list_constructed(path)) - allowed.get(name, set()))
    }
    assert not found, f"build them with build_operator of {WIRING}"


def test_wiring_constructs_every_part() -> None:
    """Otherwise a renamed part would no longer be checked."""
    assert set(list_constructed(ROOT / WIRING)) == PARTS


@pytest.mark.parametrize("allowed", [READERS, UNIT_TESTS])
def test_exceptions_are_still_needed(allowed: dict[str, set[str]]) -> None:
    for name, parts in allowed.items():
        assert set(list_constructed(ROOT / name)) == parts, name


def test_list_constructed_sees_renamed_imports(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("from x import IngestCycle as Cycle\nimport y\nCycle()\ny.PlanExecutor()\n")
    assert set(list_constructed(module)) == {"IngestCycle", "PlanExecutor"}

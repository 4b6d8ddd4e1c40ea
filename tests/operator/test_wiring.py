"""The composition root: no other module of Trimtab or of its tests puts controllers together."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WIRING = "src/trimtab/operator/wiring.py"
PARTS = {
    "AdmissionHandlers",
    "AuditRecorder",
    "ChangeExecutor",
    "CompetingControllers",
    "IngestCycle",
    "IntentController",
    "IntentObserver",
    "IntentStatusWriter",
    "PlanExecutor",
    "PlanningService",
    "PodSizer",
    "PolicyResolver",
    "PolicyStatusWriter",
    "Recommender",
    "RecommenderSafeSizes",
    "SizingReconciler",
    "VpaRecommender",
    "WebhookLifecycle",
}
"""Parts that only the wiring constructs: each needs several others."""
READERS = {
    # The emulator resizes one pod, which no operator selects, as the operator would.
    "src/trimtab/lab/emulator/emulation.py": {"ChangeExecutor"},
    # `trimtab plan` previews one Intent from a client that may only read: it has no leader and no controllers.
    "src/trimtab/operator/intents/preview.py": {"IntentObserver"},
    # `trimtab scan` recommends by the same policies from one list of the cluster, likewise without controllers.
    "src/trimtab/scan/scan.py": {"PolicyResolver"},
}
UNIT_TESTS = {
    "tests/actuation": {"ChangeExecutor"},
    "tests/integration/actuation": {"ChangeExecutor"},
    "tests/integration/operator/test_deploy.py": {"WebhookLifecycle"},
    "tests/integration/operator/test_rights.py": {"WebhookLifecycle"},
    "tests/integration/operator/webhook/test_webhook.py": {"AdmissionHandlers", "WebhookLifecycle"},
    "tests/integration/recommender": {"Recommender"},
    "tests/integration/security": {"WebhookLifecycle"},
    "tests/operator/intents/test_guardrails.py": {"PlanExecutor"},
    "tests/operator/intents/test_status_writer.py": {"IntentStatusWriter"},
    "tests/operator/policy/test_resolver.py": {"PolicyResolver"},
    "tests/operator/test_audit.py": {"AuditRecorder", "ChangeExecutor"},
    "tests/recommender/test_workload_effective_size.py": {"ChangeExecutor"},
    "tests/operator/test_seed_properties.py": {"ChangeExecutor", "Recommender"},
    "tests/operator/test_upgrade.py": {"AdmissionHandlers"},
    "tests/operator/webhook": {"AdmissionHandlers"},
    "tests/recommender": {"ChangeExecutor", "Recommender"},
    "tests/security/fuzz/object_targets.py": {"AdmissionHandlers"},
    "tests/security/test_tenants.py": {"PlanningService", "PolicyResolver"},
    "tests/web/backends/test_current_usage.py": {"Recommender"},
}
"""The unit under test beside stand-ins for its neighbours, by module or folder."""


def list_constructed(path: Path) -> Iterator[str]:
    """List the parts that a module constructs, under whatever name it imports them."""
    text = path.read_text()
    if not any(part in text for part in PARTS):
        return  # without the time to parse it
    tree = ast.parse(text)
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


def list_allowed(name: str) -> set[str]:
    """Return the parts that a module, or its folders, may construct."""
    places = [name, *map(str, Path(name).parents)]
    return set().union(*((READERS | UNIT_TESTS).get(place, set()) for place in places))


@pytest.mark.parametrize("folder", ["src", "bench", "examples", "tests", "tools"])
def test_wiring_is_the_only_module_that_constructs_controllers(folder: str) -> None:
    found = {
        name: wrong
        for path in sorted((ROOT / folder).rglob("*.py"))
        if (name := str(path.relative_to(ROOT))) != WIRING
        and (wrong := set(list_constructed(path)) - list_allowed(name))
    }
    assert not found, f"build them with build_operator of {WIRING}"


def test_wiring_constructs_every_part() -> None:
    """Otherwise a renamed part would no longer be checked."""
    assert set(list_constructed(ROOT / WIRING)) == PARTS


@pytest.mark.parametrize("allowed", [READERS, UNIT_TESTS])
def test_exceptions_are_still_needed(allowed: dict[str, set[str]]) -> None:
    for name, parts in allowed.items():
        paths = (ROOT / name).rglob("*.py") if (ROOT / name).is_dir() else [ROOT / name]
        assert {each for path in paths for each in list_constructed(path)} == parts, name


def test_list_constructed_sees_renamed_imports(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text("from x import IngestCycle as Cycle\nimport y\nCycle()\ny.PlanExecutor()\n")
    assert set(list_constructed(module)) == {"IngestCycle", "PlanExecutor"}

"""The dashboard imports the operator's read model and configuration, and none of its parts."""

from __future__ import annotations

import ast
from pathlib import Path

import trimtab.web

ALLOWED = (
    "trimtab.operator.views",
    "trimtab.operator.paid_pods.count_paid_pods_of_view",
    "trimtab.operator.config",
    "trimtab.operator.app.EmbeddedService",
)
"""The views and a pure function of one, the configuration, and the type of a service inside the operator's process."""
FORBIDDEN_ATTRIBUTES = {"recommender", "policy_resolver", "status_writer", "cluster_state", "lock", "cohorts"}
"""The parts of the operator that the dashboard used to reach through its state, and whose lock it took."""
WEB = Path(trimtab.web.__file__).parent
MODULES = [path for path in WEB.rglob("*.py") if "demo" not in path.relative_to(WEB).parts]
"""All modules but the demo, which runs an operator of its own."""


def imported_names(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{each.name}" for each in node.names}
    return found


def test_web_imports_only_views_and_config_of_the_operator() -> None:
    outside = {
        f"{path.relative_to(WEB)} imports {name}"
        for path in MODULES
        for name in imported_names(path)
        if name.startswith("trimtab.operator") and not name.startswith(ALLOWED)
    }
    assert not outside
    assert any("trimtab.operator.views.OperatorViews" in imported_names(path) for path in MODULES)


def test_web_reaches_into_no_part_of_the_operator() -> None:
    reached = {
        f"{path.relative_to(WEB)}:{node.lineno} .{node.attr}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in FORBIDDEN_ATTRIBUTES
    }
    assert not reached

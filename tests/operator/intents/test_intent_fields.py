"""Each field of an Intent and of a KPIProfile that the controller reads changes the goal."""

from collections.abc import Mapping
from typing import Any

import pytest

from trimtab.api import Intent, KPIProfile
from trimtab.intents.kpi.measurement import resolve_kpi
from trimtab.intents.objective import Goal
from trimtab.kube.kinds.custom import resolve_target_key
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.intents.state_builder import build_goal

CONFIG = OperatorConfig()
TARGET = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
OBJECTIVE = {"name": "latency", "value": 0.2, "measuredBy": "latency"}


def intent(objective: Mapping[str, object] = {}, **spec: object) -> Intent:
    body = {"targetRef": TARGET, "objectives": [{**OBJECTIVE, **objective}], **spec}
    return Intent.read(manifest("Intent", body))


def manifest(kind: str, spec: Mapping[str, object]) -> dict[str, Any]:
    named = {"name": "web", "namespace": "shop"}
    return {"apiVersion": "trimtab.io/v1alpha1", "kind": kind, "metadata": named, "spec": spec}


def goal(found: Intent, **profile: object) -> Goal:
    read = KPIProfile.read(manifest("KPIProfile", {"type": "latency", **profile}))
    return build_goal(
        "shop/web",
        found.spec,
        namespace="shop",
        resolve_kpi=lambda _: resolve_kpi(
            read.spec, CONFIG.intents.default_queries, rules=CONFIG.query_rules
        ),
        settings=CONFIG.intents,
    )


def test_goal_has_what_an_objective_says() -> None:
    found = goal(intent({"name": "p99", "value": 0.5, "tolerance": 0.25})).objectives[0]
    assert (found.name, found.value, found.tolerance) == ("p99", 0.5, 0.25)


def test_goal_has_the_priority_of_its_intent() -> None:
    assert goal(intent(priority=0.9)).priority == 0.9


def test_goal_has_unit_and_direction_of_its_kpi() -> None:
    found = goal(intent(), unit="hours", minimize=False).objectives[0]
    assert (found.unit, found.less_is_better) == ("hours", False)


def test_goal_has_the_description_of_its_kpi() -> None:
    """The dashboard shows it beside the objective."""
    found = goal(intent(), description="Slowest of a hundred <requests>")
    assert found.objectives[0].description == "Slowest of a hundred <requests>"


@pytest.mark.parametrize(
    ("target", "key"),
    [
        (TARGET, WorkloadKey("Deployment", "shop", "web")),
        ({**TARGET, "kind": "StatefulSet"}, WorkloadKey("StatefulSet", "shop", "web")),
        (
            {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "web"},
            WorkloadKey("Rollout.argoproj.io", "shop", "web"),
        ),
    ],
)
def test_target_of_an_intent_is_the_workload_of_its_kind_and_group(
    target: dict[str, str], key: WorkloadKey
) -> None:
    assert resolve_target_key(intent(targetRef=target).spec.target_ref, "shop") == key

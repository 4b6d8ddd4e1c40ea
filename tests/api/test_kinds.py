"""Meaning of the other kinds beyond their fields."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from trimtab.api import KINDS, Intent, KPIProfile, NodeMetric, NodeQoSPolicy

ROOT = Path(__file__).parents[2]


EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
BY_NAME = {kind.__name__: kind for kind in KINDS}


def profile(**spec: Any) -> KPIProfile:
    return KPIProfile.read({"spec": spec})


def test_kind_has_an_example() -> None:
    assert {yaml.safe_load(path.read_text())["kind"] for path in EXAMPLES} == set(BY_NAME)


@pytest.mark.parametrize(
    ("kind", "less"), [("latency", True), ("power", True), ("throughput", False), ("availability", False)]
)
def test_kpi_profile_type_decides_whether_less_is_better(kind: str, *, less: bool) -> None:
    assert profile(type=kind).spec.less_is_better is less
    assert profile(type=kind, minimize=not less).spec.less_is_better is not less


def test_memory_is_released_to_two_percent_below_the_threshold() -> None:
    def released(**evict: int) -> int:
        return NodeQoSPolicy.read({"spec": {"memoryEvict": evict}}).spec.memory_evict.release_to_percent

    assert released() == 68
    assert released(thresholdPercent=50) == 48
    assert released(lowerPercent=60) == 60


def test_best_effort_pods_get_less_of_the_cache_even_when_another_share_is_set() -> None:
    spec = NodeQoSPolicy.read({"spec": {"resctrl": {"be": {"mbaPercent": 40}}}}).spec
    assert (spec.resctrl.be.cat_range_end_percent, spec.resctrl.ls.cat_range_end_percent) == (30, 100)


def test_intent_targets_a_deployment_by_default() -> None:
    intent = Intent.read(
        {
            "spec": {
                "targetRef": {"name": "web"},
                "objectives": [{"name": "p99", "value": 20, "measuredBy": "p99"}],
            }
        }
    )
    assert (intent.spec.target_ref.kind, intent.spec.priority, intent.spec.active) == (
        "Deployment",
        0.01,
        True,
    )


def test_node_metric_reads_back_as_written() -> None:
    usage = {"cpu": "1500m", "memory": "3Gi"}
    report = {
        "updateTime": "2026-11-01T10:00:00Z",
        "nodeMetric": {
            "nodeUsage": usage,
            "aggregatedNodeUsages": [{"duration": "5m0s", "usage": {"avg": usage, "p99": usage}}],
        },
        "podsMetric": [{"namespace": "shop", "name": "web-1", "podUsage": usage}],
        "prodReclaimableMetric": {"resource": usage},
    }
    assert NodeMetric.read({"status": report}).to_manifest()["status"] == report

"""The requests on which a HorizontalPodAutoscaler scales."""

from typing import Any

from harness.builders.records import project_object
from trimtab.kube.kinds.hpas import (
    AutoscalerTarget,
    HorizontalPodAutoscaler,
    UtilizationTarget,
    hpa_projection,
)


def hpa(
    *metrics: dict[str, Any], current: tuple[dict[str, Any], ...] | None = None
) -> HorizontalPodAutoscaler:
    spec = {
        "scaleTargetRef": {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "web"},
        "minReplicas": 0,
        "maxReplicas": 9,
        "metrics": metrics,
    }
    metadata = {"name": "web", "namespace": "shop"}
    return project_object(
        hpa_projection(), {"metadata": metadata, "spec": spec, "status": {"currentMetrics": current}}
    )


def test_hpa_keeps_only_metrics_that_are_shares_of_a_request() -> None:
    share = {"type": "Utilization", "averageUtilization": 80}
    found = hpa(
        {"type": "Resource", "resource": {"name": "cpu", "target": share}},
        {
            "type": "ContainerResource",
            "containerResource": {"name": "memory", "container": "web", "target": share},
        },
        {
            "type": "Resource",
            "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}},
        },
        {"type": "Resource", "resource": {"name": "example.com/gpu", "target": share}},
        {
            "type": "External",
            "external": {"metric": {"name": "queue"}, "target": {"type": "Value", "value": "9"}},
        },
        current=({"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 63}}},),
    )
    assert found.target == AutoscalerTarget("Rollout", "argoproj.io", "web")
    assert (found.min_replicas, found.max_replicas) == (0, 9)
    assert found.utilization_targets == (
        UtilizationTarget("cpu", 80, current=63),
        UtilizationTarget("memory", 80, "web"),
    )


def test_hpa_that_has_not_run_yet_has_no_observation() -> None:
    share = {"type": "Utilization", "averageUtilization": 80}
    (found,) = hpa({"type": "Resource", "resource": {"name": "cpu", "target": share}}).utilization_targets
    assert found.current is None

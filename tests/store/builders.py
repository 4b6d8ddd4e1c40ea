"""Records for the tests: each gives only what the test is about."""

from typing import Any

from trimtab.store import Effect, HistoryRecord, PlannerEvent, StateKey

KEY = StateKey("prod", "trimtab", "0")


def entry(timestamp: float = 0, **given: Any) -> HistoryRecord:
    usual: dict[str, Any] = {
        "cluster": "prod",
        "namespace": "shop",
        "kind": "Deployment",
        "name": "cart",
        "container": "app",
        "what": "applied",
        "before": {"cpu": "1"},
        "after": {"cpu": "200m"},
        "who": "trimtab-operator",
        "why": "p95 of a week is 150m",
    }
    return HistoryRecord(timestamp=timestamp, **usual | given)


def effect(timestamp: float = 0, **given: Any) -> Effect:
    usual: dict[str, Any] = {
        "cluster": "prod",
        "name": "default/intent",
        "group": "vertical_scaling",
        "profile_name": "default/p99latency",
        "data": {"popt": [[100, 0.2, 50]]},
    }
    return Effect(timestamp=timestamp, **usual | given)


def event(timestamp: float = 0, **given: Any) -> PlannerEvent:
    usual: dict[str, Any] = {
        "cluster": "prod",
        "name": "default/intent",
        "current_objectives": {"default/p99latency": 200.0},
        "desired_objectives": {"default/p99latency": 100.0},
        "resources": {"0_cpu_requests": 1000},
        "annotations": {},
        "pods": {"pod_0": {"availability": 1.0, "nodename": "node_0", "state": "Running"}},
        "data": {},
        "plan": [{"name": "scaleCPU", "properties": {"value": 400}}],
    }
    return PlannerEvent(timestamp=timestamp, **usual | given)

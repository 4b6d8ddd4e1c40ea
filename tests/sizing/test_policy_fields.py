"""Fields of a policy that decide about sizes, from the manifest to the recommendation."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sizing.containers import DAY, GIB, HAS, NOW, WELL_KNOWN, rules, sized
from trimtab.api.quantity import MIB, ResourceName
from trimtab.kube.kinds.pods import Resources
from trimtab.sizing.constraints import AutoscalerConstraint, Constraints
from trimtab.sizing.evidence import Evidence, UsageShift, find_usage_shifts

NOTHING = Resources()


@pytest.mark.parametrize(("history", "shrinks"), [("24h", True), ("336h", False)])
def test_minimum_history_delays_decreases(history: str, shrinks: bool) -> None:  # noqa: FBT001 - a case
    week = Evidence(
        samples=2000,
        run_seconds=7 * DAY,
        first_sample_at=NOW - 7 * DAY,
        last_sample_at=NOW,
        memory_peak=200 * MIB,
    )
    found = sized(500, GIB, evidence=week, asked=rules(metricsConfig={"minimumHistory": history}))
    assert ((found.resources.cpu_request or 0) < 1000) == shrinks


SHIFT = UsageShift("cpu", factor=0.2, since=NOW - 3600.0, until=NOW + 23 * 3600.0)


@pytest.mark.parametrize(("mode", "is_held"), [("HoldDecreases", True), ("Report", False), ("Ignore", False)])
def test_usage_shift_holds_decreases_as_the_policy_says(mode: str, is_held: bool) -> None:  # noqa: FBT001 - a case
    shifted = msgspec.structs.replace(WELL_KNOWN, usage_shift=SHIFT)
    asked = rules(changes={"usageShift": mode})
    found = sized(500, 300 * MIB, evidence=shifted, asked=asked)
    assert (found.resources == HAS) == is_held
    assert ("CPU usage was 0.2 times the lowest of this time of day" in found.text) == is_held
    assert bool(find_usage_shifts({"web": shifted}, asked)) == (mode != "Ignore")


def test_usage_shift_lets_increases_pass() -> None:
    shifted = msgspec.structs.replace(WELL_KNOWN, usage_shift=SHIFT)
    found = sized(1500, 300 * MIB, evidence=shifted, asked=rules())
    assert (found.resources.cpu_request, found.resources.memory_request) == (1500, HAS.memory_request)


@pytest.mark.parametrize("keep", [True, False])
def test_keep_qos_class_keeps_a_best_effort_pod_without_requests(keep: bool) -> None:  # noqa: FBT001 - a case
    asked = rules(updateStrategy={"keepQosClass": keep})
    found = sized(500, GIB, has=NOTHING, evidence=WELL_KNOWN, asked=asked)
    assert (found.resources == NOTHING) == keep


@pytest.mark.parametrize(("mode", "is_held"), [("Hold", True), ("Rescale", False)])
def test_hpa_mode_hold_keeps_what_an_autoscaler_watches(mode: str, is_held: bool) -> None:  # noqa: FBT001 - a case
    scaler = AutoscalerConstraint(name="web", resource="cpu", target=0.8, highest_seen=0.2)
    found = sized(
        500,
        GIB,
        asked=rules(updateStrategy={"hpaMode": mode}),
        around=Constraints(qos_class="Burstable", autoscalers=(scaler,)),
    )
    assert (found.resources.cpu_request == HAS.cpu_request) == is_held
    assert ("HPA web scales on its utilization" in found.text) == is_held


@pytest.mark.parametrize(
    ("resource", "rule", "limit"),
    [
        ("cpu", {"mode": "Multiplier", "multiplier": 3}, 2400),
        ("cpu", {"mode": "Headroom", "headroom": "700m"}, 1500),
        ("cpu", {"mode": "Remove"}, None),
        ("memory", {"mode": "Multiplier", "multiplier": 3}, 2400 * MIB),
        ("memory", {"mode": "Headroom", "headroom": "700Mi"}, 1500 * MIB),
        ("memory", {"mode": "Remove"}, None),
    ],
)
def test_limit_policy_sets_the_limit_of_each_resource(
    resource: ResourceName, rule: dict[str, Any], limit: int | None
) -> None:
    asked = rules(updateStrategy={"updateRequestsOnly": False}, limitPolicy={resource: rule})
    found = sized(800, 800 * MIB, asked=asked).resources.select(resource)
    assert found.limit == limit


@pytest.mark.parametrize("resource", ["cpu", "memory"])
def test_changes_limit_the_step_of_each_resource(resource: ResourceName) -> None:
    had = HAS.select(resource).request or 0
    asked = rules(
        changes={"minimum": 0, resource: {"increase": 0.25, "decrease": 0.1}},
        updateStrategy={"updateRequestsOnly": False},
    )
    more = sized(9000, 9 * GIB, asked=asked).resources.select(resource)
    less = sized(100, 300 * MIB, asked=asked).resources.select(resource)
    assert more.request == pytest.approx(1.25 * had, rel=0.02)
    assert less.request == pytest.approx(0.9 * had, rel=0.02)

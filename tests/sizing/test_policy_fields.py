"""Fields of a policy that decide about sizes, from the manifest to the recommendation."""

from __future__ import annotations

import pytest

from sizing.containers import DAY, GIB, HAS, NOW, WELL_KNOWN, rules, sized
from trimtab.api.quantity import MIB
from trimtab.kube.kinds.pods import Resources
from trimtab.sizing.constraints import AutoscalerConstraint, Constraints
from trimtab.sizing.evidence import Evidence

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

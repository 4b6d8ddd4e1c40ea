"""Fields of a policy that decide about sizes, from the manifest to the recommendation."""

from __future__ import annotations

import pytest

from sizing.containers import DAY, GIB, NOW, WELL_KNOWN, rules, sized
from trimtab.api.quantity import MIB
from trimtab.kube.kinds.pods import Resources
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

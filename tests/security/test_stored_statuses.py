"""Whoever may write the status of one object must not stop the work for all others."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from harness.e2e.intent_loop import ScalableWorld, bed, intent, profile
from trimtab.kube.kinds.pods import Resources

GIB = 1 << 30
OBJECTIVE = {"name": "p99", "value": 0.1, "measuredBy": "p99"}


def build_status(time: Any) -> dict[str, Any]:
    return {
        "plan": {"executedAt": time, "madeAt": time},
        "objectives": [{"name": "p99", "verdict": "Met", "since": time}],
    }


@pytest.mark.parametrize(
    "status",
    [
        # The API server accepts the first three for a field with the format date-time.
        build_status("2026-02-31T00:00:00Z"),
        build_status("2026-11-01T23:59:60Z"),
        build_status("2026-11-19t10:00:00z"),
        build_status(5),
        {"plan": "x"},
        {"objectives": ["x"]},
        {"objectives": [{"verdict": "Met"}]},
        {"conditions": [{"status": "x"}]},
        {"plan": {"performedAt": [1]}},
        ["x"],
    ],
)
async def test_stored_status_of_one_intent_does_not_stop_the_others(status: object, tmp_path: Path) -> None:
    hostile = replace(
        intent("hostile", objectives=[OBJECTIVE], target="other"), status=msgspec.json.encode(status)
    )
    async with bed(
        ScalableWorld(template={"web": Resources(500, 500, GIB, GIB)}, replicas=2),
        [hostile, intent("web", objectives=[OBJECTIVE])],
        [profile("p99", type="latency", query="p99")],
        {"p99": 0.05},
        folder=tmp_path,
    ) as env:
        await env.run_cycles(2)
        assert env.status("web")["objectives"][0]["verdict"] == "Met"
        assert env.conditions("hostile")["Ready"] == "False", "its own status is written again"

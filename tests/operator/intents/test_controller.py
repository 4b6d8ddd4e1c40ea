"""The loop of intents on the real API server, turn by turn."""

from __future__ import annotations

from trimtab.api.fields import format_time
from trimtab.operator.intents.status import objectives_met_since, plan_executed_at


def test_status_times_in_the_future_are_ignored() -> None:
    now = 1_800_000_000.0
    ahead = format_time(now + 86_400)
    status = {
        "plan": {"executedAt": ahead},
        "objectives": [{"name": "p99", "verdict": "Met", "since": ahead}],
    }
    assert plan_executed_at(status, now=now) is None
    assert objectives_met_since(status, now=now) == now

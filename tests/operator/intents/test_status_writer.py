"""Status and Events of an Intent: executed actions, not only planned ones."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from trimtab.api import Intent
from trimtab.api.crd import build_crd
from trimtab.api.intent import IntentSpec, ObjectiveSpec, TargetRef
from trimtab.intents.actuator import IntentAction
from trimtab.intents.objective import Goal
from trimtab.intents.planner import Plan, Purpose
from trimtab.intents.state import TargetState
from trimtab.kube.kinds.custom import IntentRecord
from trimtab.operator.intents.observer import IntentObservation
from trimtab.operator.intents.status import IntentOutcome, plan_executed_at
from trimtab.operator.intents.status_writer import IntentStatusWriter

SPEC = IntentSpec(
    target_ref=TargetRef(name="web"), objectives=(ObjectiveSpec(name="p99", value=1.0, measured_by="p99"),)
)
INTENT = IntentRecord("shop", "web", "uid", 1, 1, 0, SPEC, "", b"{}")
GOAL = Goal(intent="shop/web", objectives=())


async def test_status_writer_event_names_executed_actions_and_reason_for_the_rest() -> None:
    messages: list[str] = []

    class FakeRecorder:
        def record(self, about: object, *, message: str, **_: Any) -> None:
            messages.append(message)

    after = TargetState(objectives={})
    scaled, chosen = (
        IntentAction(actuator=name, parameters={"to": 3}, after=after) for name in ("scaleOut", "cacheClass")
    )
    plan = Plan(intent="shop/web", purpose=Purpose.REACH, actions=(scaled, chosen), why=("p99 is missed",))
    outcome = IntentOutcome(plan=plan, done=(scaled,), blocked_reason="cacheClass: the resize comes first")
    writer = IntentStatusWriter(None, FakeRecorder(), may_write=lambda: False)  # type: ignore[arg-type]
    observation = IntentObservation(INTENT, SPEC, GOAL, {}, None)
    await writer.write_observed(observation, outcome, now=0.0)
    (said,) = messages
    assert said == "scaleOut to 3; not done: cacheClass: the resize comes first; because p99 is missed"


def test_status_writer_reads_the_plan_of_a_status_of_the_first_version() -> None:
    """Otherwise an upgrade of the operator would end a cool-down early, and evaluate a plan twice."""
    old = {
        "plan": {
            "purpose": "Reach",
            "madeAt": "2026-01-01T00:00:00Z",
            "deeds": [{"actuator": "scaleOut", "what": "scaleOut replicas 3"}],
            "effects": [{"objective": "p99", "before": 2.0, "brought": 0.5}],
            "performedAt": "2026-01-01T00:00:10Z",
            "judgedAt": "2026-01-01T00:05:00Z",
            "withheld": "resizeCPU: wait",
            "why": ["p99 is missed"],
        },
        "objectives": [{"name": "p99", "wanted": 1.0, "verdict": "Met"}],
    }
    intent = IntentRecord("shop", "web", "uid", 1, 1, 0, SPEC, "", msgspec.json.encode(old))
    writer = IntentStatusWriter(None, None, may_write=lambda: True)  # type: ignore[arg-type]
    status = writer.last_status(intent)
    assert status["plan"] == {
        "purpose": "Reach",
        "madeAt": "2026-01-01T00:00:00Z",
        "actions": [{"actuator": "scaleOut", "description": "scaleOut replicas 3"}],
        "effects": [{"objective": "p99", "before": 2.0, "observed": 0.5}],
        "executedAt": "2026-01-01T00:00:10Z",
        "evaluatedAt": "2026-01-01T00:05:00Z",
        "blockedReason": "resizeCPU: wait",
        "reasons": ["p99 is missed"],
    }
    assert status["objectives"] == [{"name": "p99", "target": 1.0, "verdict": "Met"}]
    assert plan_executed_at(status, now=2e9) == datetime(2026, 1, 1, 0, 0, 10, tzinfo=UTC).timestamp()


def test_intent_crd_keeps_the_plan_fields_of_the_first_version() -> None:
    """The API server prunes what the schema does not have, before the operator could read it."""
    schema = build_crd(Intent)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    plan = schema["properties"]["plan"]["properties"]
    assert {"deeds", "why", "performedAt", "judgedAt", "withheld"} <= plan.keys()
    assert "what" in plan["deeds"]["items"]["properties"]
    assert "brought" in plan["effects"]["items"]["properties"]
    assert "wanted" in schema["properties"]["objectives"]["items"]["properties"]

"""What people are told of an intent: what was done, and not what was only planned."""

from __future__ import annotations

from typing import Any

from trimtab.api.intent import IntentSpec, ObjectiveSpec, TargetRef
from trimtab.intents.action import IntentAction
from trimtab.intents.objective import Goal
from trimtab.intents.plan import Plan, Purpose
from trimtab.intents.state import TargetState
from trimtab.kube.kinds.custom import IntentRecord
from trimtab.operator.intents.observer import IntentObservation
from trimtab.operator.intents.status import IntentOutcome
from trimtab.operator.intents.status_writer import IntentStatusWriter

SPEC = IntentSpec(
    target_ref=TargetRef(name="web"), objectives=(ObjectiveSpec(name="p99", value=1.0, measured_by="p99"),)
)
INTENT = IntentRecord("shop", "web", "uid", 1, 1, 0, SPEC, "", b"{}")
GOAL = Goal(intent="shop/web", objectives=())


async def test_an_event_of_a_plan_names_what_was_done_of_it_and_why_not_the_rest() -> None:
    heard: list[str] = []

    class Voice:
        def record(self, about: object, *, message: str, **_: Any) -> None:
            heard.append(message)

    after = TargetState(objectives={})
    scaled, chosen = (
        IntentAction(actuator=name, parameters={"to": 3}, after=after) for name in ("scaleOut", "cacheClass")
    )
    plan = Plan(intent="shop/web", purpose=Purpose.REACH, deeds=(scaled, chosen), why=("p99 is missed",))
    outcome = IntentOutcome(
        plan=plan, done=(scaled,), blocked_reason="cacheClass: the change of size comes first"
    )
    telling = IntentStatusWriter(None, Voice(), may_write=lambda: False)  # type: ignore[arg-type]
    observation = IntentObservation(INTENT, SPEC, GOAL, {}, None)
    await telling.write_observed(observation, outcome, now=0.0)
    (said,) = heard
    assert (
        said == "scaleOut to 3; not done: cacheClass: the change of size comes first; because p99 is missed"
    )

"""What people are told of an intent: what was done, and not what was only planned."""

from __future__ import annotations

from typing import Any

from trimtab.api.intent import IntentSpec, Objective, TargetRef
from trimtab.intents.action import Deed
from trimtab.intents.objective import Goal
from trimtab.intents.plan import Plan, Purpose
from trimtab.intents.state import State
from trimtab.kube.kinds.custom import Intent
from trimtab.operator.intents.observer import Observation
from trimtab.operator.intents.status import Outcome
from trimtab.operator.intents.status_writer import Telling

SPEC = IntentSpec(
    target_ref=TargetRef(name="web"), objectives=(Objective(name="p99", value=1.0, measured_by="p99"),)
)
INTENT = Intent("shop", "web", "uid", 1, 1, 0, SPEC, "", b"{}")
GOAL = Goal(intent="shop/web", objectives=())


async def test_an_event_of_a_plan_names_what_was_done_of_it_and_why_not_the_rest() -> None:
    heard: list[str] = []

    class Voice:
        def record(self, about: object, *, message: str, **_: Any) -> None:
            heard.append(message)

    after = State(objectives={})
    scaled, chosen = (
        Deed(actuator=name, parameters={"to": 3}, after=after) for name in ("scaleOut", "cacheClass")
    )
    plan = Plan(intent="shop/web", purpose=Purpose.REACH, deeds=(scaled, chosen), why=("p99 is missed",))
    outcome = Outcome(plan=plan, done=(scaled,), withheld="cacheClass: the change of size comes first")
    telling = Telling(None, Voice(), may_write=lambda: False)  # type: ignore[arg-type]
    observation = Observation(INTENT, SPEC, GOAL, {}, None)
    await telling.observed(observation, outcome, now=0.0)
    (said,) = heard
    assert (
        said == "scaleOut to 3; not done: cacheClass: the change of size comes first; because p99 is missed"
    )

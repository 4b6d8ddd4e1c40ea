"""Intents as the pages show them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgspec

from intents.services import service
from trimtab.api.intent import IntentSpec, ObjectiveSpec, TargetRef
from trimtab.intents.effects.samples import encode_state
from trimtab.intents.objective import Goal, Objective
from trimtab.kube.kinds.custom import IntentRecord
from trimtab.operator.views import IntentViews, PublishedIntent
from trimtab.store import PlannerEvent
from trimtab.store.errors import UnavailableError
from trimtab.web.views.intents import IntentViewCache

FAST = IntentRecord(
    namespace="shop",
    name="fast",
    uid="u",
    version=1,
    generation=1,
    created=0,
    spec=IntentSpec(
        target_ref=TargetRef(name="web"),
        objectives=(ObjectiveSpec(name="p99", value=0.1, measured_by="p99"),),
    ),
    problem="",
    status=b"{}",
)


class Events:
    """A store's, which counts how often it was asked."""

    asked = 0
    away = False

    async def find(self, *, cluster: str, name: str, limit: int) -> list[PlannerEvent]:
        assert cluster == "prod"
        self.asked += 1
        if self.away:
            raise UnavailableError("later")
        return [
            PlannerEvent(
                name=name, timestamp=1.0, desired_objectives={}, plan=None, **encode_state(service())
            )
        ]


async def test_objective_is_shown_with_the_unit_and_the_description_of_its_kpi() -> None:
    objective = Objective(name="p99", value=0.1, unit="s", description="Slowest of a hundred <requests>")
    goal = Goal(intent="shop/fast", target="Deployment/web u", objectives=(objective,))
    published = PublishedIntent(record=FAST, goal=goal)
    state: Any = SimpleNamespace(
        cluster_name="prod",
        store=SimpleNamespace(events=Events()),
        intents=SimpleNamespace(read=lambda: [published]),
    )
    (found,) = await IntentViewCache(fresh=60.0).get_all(state, now=100.0)
    (shown,) = found.objectives
    assert (shown.unit, shown.description) == ("s", "Slowest of a hundred <requests>")


async def test_intent_view_caches_history_and_always_reads_status() -> None:
    """To read it takes 40 ms an intent, and every page that is open asks for all of them whenever there is news."""
    events, index = Events(), [FAST]
    state: Any = SimpleNamespace(
        cluster_name="prod",
        store=SimpleNamespace(events=events),
        intents=IntentViews(index),
    )
    views = IntentViewCache(fresh=60.0)
    (before,) = await views.get_all(state, now=100.0)
    assert before.objectives[0].plot
    assert before.objectives[0].now is None
    said = {"objectives": [{"name": "p99", "current": 0.2, "verdict": "Missed"}]}
    index[:] = [msgspec.structs.replace(FAST, status=msgspec.json.encode(said))]
    (after,) = await views.get_all(state, now=159.0)
    assert after.objectives[0].now == 0.2
    assert after.objectives[0].plot == before.objectives[0].plot
    views.drop_stale(159.0)
    assert await views.get_all(state, now=159.0) == (after,)
    assert events.asked == 1
    views.drop_stale(160.0)
    assert await views.get_all(state, now=159.0) == (after,)
    assert events.asked == 2

    events.away = True
    for asked in (3, 4):
        (dark,) = await views.get_all(state, now=300.0)
        assert dark.objectives[0].plot is None
        assert events.asked == asked
    events.away = False
    index[:] = [msgspec.structs.replace(FAST, generation=2)]
    assert (await views.get_all(state, now=301.0))[0].objectives[0].plot
    index.clear()
    assert await views.get_all(state, now=302.0) == ()

"""The loop of intents: turn after turn it looks at all of them, plans where something is missed or can be spared, does
it, and says so.

It is level-triggered: a turn goes by what is so, the status of an intent included, and remembers nothing that a
restart must not lose. An intent that fails does not keep the others from their turn. Where intents compete for the
same room they are served by priority, and who has waited long moves up, so that nobody waits for ever.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Never

import structlog

from trimtab.api.intent import Verdict
from trimtab.intents.kpi.availability import Uptime
from trimtab.intents.limits import Limits
from trimtab.intents.plan import Plan, Purpose
from trimtab.intents.state import State
from trimtab.kube.intents import Intent, IntentKey
from trimtab.kube.workloads import Workload
from trimtab.operator.catalog import Catalog
from trimtab.operator.config import OperatorConfig
from trimtab.operator.intents.guarding import Others, limits_of
from trimtab.operator.intents.lessons import Lessons
from trimtab.operator.intents.observing import Observation, Observer
from trimtab.operator.intents.performing import Performer
from trimtab.operator.intents.planning import Planning
from trimtab.operator.intents.roll import Roll
from trimtab.operator.intents.room import Caps, Room
from trimtab.operator.intents.status import Document, Outcome, met_since, missed_since, performed_at
from trimtab.operator.intents.telling import Telling
from trimtab.operator.metrics import Metrics

log = structlog.get_logger(__name__)

MOVES_UP = 600.0
"""Seconds of waiting that double an intent's priority."""


class IntentLoop:
    """All intents of a cluster, a turn at a time."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        roll: Roll,
        observer: Observer,
        planning: Planning,
        performer: Performer,
        lessons: Lessons,
        telling: Telling,
        config: Callable[[], OperatorConfig],
        applied_by_vpa: Callable[[Workload], str],
        resizes_in_place: Callable[[], bool],
        metrics: Metrics,
    ) -> None:
        self._catalog = catalog
        self._roll = roll
        self._observer = observer
        self._planning = planning
        self._performer = performer
        self._lessons = lessons
        self._telling = telling
        self._config = config
        self._applied_by_vpa = applied_by_vpa
        self._resizes_in_place = resizes_in_place
        self._metrics = metrics
        self._last_turn: float | None = None

    async def run(self) -> Never:
        while True:
            started = time.monotonic()
            if self._config().intents.enabled:
                with self._metrics.intent_turn.time():
                    await self.turn(time.time())
            spent = time.monotonic() - started
            await asyncio.sleep(max(0.1, self._config().intents.interval.seconds - spent))

    async def turn(self, now: float) -> None:
        """Look at every intent once."""
        intents = list(self._roll.intents)
        for intent in intents:
            await self._recall(intent, now)
        self._lessons.forget_all_but({str(intent) for intent in intents})
        await self._telling.profiles(self._roll.profiles, self._config().intents.queries)
        for intent in intents:
            if intent.spec is None:
                await self._telling.invalid(intent, now=now)
        observations = await self._observer.look(intents, now=now)
        self._count(observations, now)
        if not observations:
            return
        room = Room(self._catalog.nodes, self._catalog.pods, self._catalog.quotas)
        caps = Caps(_by_namespace(observations))
        ranked = sorted(observations, key=lambda each: self._rank(each, now))
        for observation in ranked:
            await self._look_at(observation, room, caps, now)

    async def _look_at(self, observation: Observation, room: Room, caps: Caps, now: float) -> None:
        """One intent; whatever happens to it is its own."""
        try:
            outcome = await self._act(observation, room, caps, now)
            await self._telling.observed(observation, outcome, now=now)
        except Exception as error:
            self._metrics.intent_errors.labels(type(error).__name__).inc()
            log.exception("intent.failed", intent=str(observation.intent))

    async def _act(self, observation: Observation, room: Room, caps: Caps, now: float) -> Outcome:
        state, workload = observation.state, observation.workload
        if state is None or workload is None:
            return Outcome()
        goal = observation.goal
        owner = self._roll.owner(workload.key)
        if not observation.spec.active or owner is None:
            await self._lessons.record(goal, state, None, now=now)
            return Outcome()
        if owner.key != observation.intent.key:
            return Outcome(remarks=(f"Intent {owner} is about the same workload, and comes first",))
        await self._performer.tend(observation, now)
        await self._lessons.refit(goal, now=now)
        before = self._telling.before(observation.intent)
        rests_until = self._rests_until(before)
        others = self._others(workload)
        limits = limits_of(
            observation,
            config=self._config(),
            room=room,
            caps=caps,
            others=others,
            rests_until=rests_until,
        )
        effects = self._lessons.effects(goal, state)
        plan, planner = await self._planning.plan(state, goal, effects=effects, limits=limits, now=now)
        self._metrics.intent_plans.labels(goal.namespace, plan.purpose.value).inc()
        outcome = Outcome(plan=plan, planner=planner, rests=now < rests_until, remarks=tuple(others.said()))
        outcome = await self._perform(observation, outcome, plan, limits, before, now)
        if outcome.done:
            after = outcome.done[-1].after
            room.take(goal.namespace, state, after)
            caps.take(goal.namespace, state, after)
        await self._lessons.record(goal, state, plan if outcome.done else None, now=now)
        return outcome

    async def _perform(
        self,
        observation: Observation,
        outcome: Outcome,
        plan: Plan,
        limits: Limits,
        before: Document,
        now: float,
    ) -> Outcome:
        if not plan.deeds:
            return outcome
        if plan.purpose is Purpose.RELEASE and (wait := self._too_soon(before, now)):
            return replace(outcome, withheld=wait)
        plugins = self._planning.plugins()
        performed = await self._performer.perform(
            plan.deeds, observation, limits=limits, plugins=plugins, now=now
        )
        for deed in plan.deeds:
            result = "done" if deed in performed.done else "withheld"
            self._metrics.intent_deeds.labels(observation.goal.namespace, deed.actuator, result).inc()
        return replace(outcome, done=performed.done, withheld=performed.refused)

    def _too_soon(self, before: Document, now: float) -> str:
        """Why nothing is given back yet; empty when it may be."""
        wait = self._config().intents.release_after.seconds
        since = met_since(before)
        if since is not None and now - since >= wait:
            return ""
        return f"resources are given back once all objectives have been met for {wait:g} s"

    def _rests_until(self, before: Document) -> float:
        done = performed_at(before)
        return 0.0 if done is None else done + self._config().intents.cool_down.seconds

    def _others(self, workload: Workload) -> Others:
        return Others(
            workload,
            hpas=[hpa.name for hpa in self._catalog.hpas_of(workload)],
            vpa=self._applied_by_vpa(workload),
            resizes_in_place=self._resizes_in_place(),
        )

    async def _recall(self, intent: Intent, now: float) -> None:
        """Of an intent that is new here: what the store knows of it."""
        if intent.spec is None or intent.target is None or self._observer.knows(intent.target):
            return
        past = await self._lessons.recall(self._observer.goal(intent, intent.spec), now=now)
        self._observer.inherit(intent.target, past or Uptime())

    def _rank(self, observation: Observation, now: float) -> tuple[float, str]:
        since = missed_since(self._telling.before(observation.intent))
        waited = 0.0 if since is None else max(0.0, now - since)
        return -observation.goal.priority * (1 + waited / MOVES_UP), str(observation.intent)

    def _count(self, observations: Sequence[Observation], now: float) -> None:
        counts: dict[tuple[str, str], int] = {}
        passed = 0.0 if self._last_turn is None else max(0.0, now - self._last_turn)
        self._last_turn = now
        for each in observations:
            verdicts = [one.verdict(each.readings[one.name].value) for one in each.goal.objectives]
            for verdict in verdicts:
                place = each.goal.namespace, verdict.value
                counts[place] = counts.get(place, 0) + 1
            if Verdict.MISSED in verdicts:
                self._metrics.intent_violation.labels(each.goal.namespace).inc(passed)
        self._metrics.intent_objectives.clear()
        for (namespace, verdict_name), count in counts.items():
            self._metrics.intent_objectives.labels(namespace, verdict_name).set(count)

    def forget(self, key: IntentKey) -> None:
        self._telling.forget(key)


def _by_namespace(observations: Sequence[Observation]) -> dict[str, list[State]]:
    found: dict[str, list[State]] = {}
    for each in observations:
        if each.state is not None:
            found.setdefault(each.goal.namespace, []).append(each.state)
    return found

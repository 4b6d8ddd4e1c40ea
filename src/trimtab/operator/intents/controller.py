"""The loop of intents: turn after turn it looks at all of them, plans where something is missed or can be spared, does
it, and says so.

It is level-triggered: a turn goes by what is so, the status of an intent included, and remembers nothing that a
restart must not lose. An intent that fails does not keep the others from their turn.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Never

import msgspec
import structlog

from trimtab.actuation.decide.conflicts import falls
from trimtab.actuation.effective_size import live_pods
from trimtab.aio import side_by_side
from trimtab.api.intent import Verdict
from trimtab.intents.arbitration import Claim, Ruling
from trimtab.intents.constraints import Limits
from trimtab.intents.objective import Goal
from trimtab.intents.plan import Plan, Purpose
from trimtab.intents.plugins.client import RemoteActuator
from trimtab.intents.state import State
from trimtab.kube.errors import KubeError, describe
from trimtab.kube.kinds.custom import Intent, IntentKey
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.kube.rest.resources import VPAS
from trimtab.operator.cluster_state import Catalog
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.intents.capacity import room_of
from trimtab.operator.intents.effect_learner import Lessons
from trimtab.operator.intents.executor import Performer, runs_without
from trimtab.operator.intents.guardrails import Others, left_alone, limits_of, said_of_use, untouchable
from trimtab.operator.intents.intent_index import Roll
from trimtab.operator.intents.observer import Observation, Observer
from trimtab.operator.intents.planning import Planning
from trimtab.operator.intents.safe_sizes import SafeSizes
from trimtab.operator.intents.status import Document, Outcome, met_since, performed_at
from trimtab.operator.intents.status_writer import Telling
from trimtab.operator.metrics import Metrics

log = structlog.get_logger(__name__)

SHOWN_AT_ONCE = 4
"""To how many questions plugins may owe an answer while they are shown what is so: each of them keeps a thread, of which a
process with one CPU has five, and others need them too."""


CATCH = 0.5
"""Seconds between two looks at the cached pods of a target whose containers crash."""

SCRAPE = 30.0
"""Seconds until a sample of what is so now reaches a query, on top of the time that it averages over."""


class IntentLoop:
    """All intents of a cluster, a turn at a time."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        roll: Roll,
        observer: Observer,
        planning: Planning,
        safe_sizes: SafeSizes,
        performer: Performer,
        lessons: Lessons,
        telling: Telling,
        config: Callable[[], OperatorConfig],
        resizes_in_place: Callable[[], bool],
        metrics: Metrics,
    ) -> None:
        self._catalog = catalog
        self._roll = roll
        self._observer = observer
        self._planning = planning
        self._safe_sizes = safe_sizes
        self._performer = performer
        self._lessons = lessons
        self._telling = telling
        self._config = config
        self._resizes_in_place = resizes_in_place
        self._metrics = metrics
        self._last_turn: float | None = None
        self._waiting: dict[str, float | None] = {}
        """Since when intents have waited for room; to lose it costs them time."""
        self._performed_at: dict[WorkloadKey | None, float] = {}
        """When something was last done to each target."""
        self._killed: dict[IntentKey, str] = {}
        """What there is to say in this turn of OOM kills of an intent's target."""
        self._crashing: list[Observation] = []
        """The intents whose sizes have to wait until a crashed container runs again."""
        self._refused: dict[tuple[str, str], float] = {}
        """When what was planned was last not done, by intent and actuator; to lose it costs a try."""

    async def run(self) -> Never:
        while True:
            started = time.monotonic()
            if self._config().intents.enabled:
                with self._metrics.intent_turn.time(), self._gone_on():
                    await self.turn(time.time())
            spent = time.monotonic() - started
            await self._rest(max(0.1, self._config().intents.interval.seconds - spent))

    async def _rest(self, seconds: float) -> None:
        """Wait for the next turn; meanwhile give memory to containers that start again."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(left, CATCH) if self._crashing else left)
            await self.catch_restarted(time.time())

    async def catch_restarted(self, now: float) -> None:
        """Go on with changes that wait for crashed containers to run again.

        One that is killed seconds after its start would seldom run when its turn comes, and never get its memory.
        """
        for observation in self._crashing:
            with self._gone_on(intent=str(observation.intent)):
                workload = self._catalog.get(observation.intent.target) if observation.intent.target else None
                if workload is None or left_alone(workload, self._config()):
                    continue
                pods = live_pods(self._catalog.pods_of(workload))
                if runs_without(workload, pods):
                    await self._performer.tend(replace(observation, workload=workload, pods=pods), now)

    async def turn(self, now: float) -> None:
        """Look at every intent once."""
        intents = list(self._roll.intents)
        goals: list[Goal] = []
        for intent in intents:
            with self._gone_on(intent=str(intent)):
                if intent.spec is not None:
                    goals.append(self._observer.goal(intent, intent.spec))
                    await self._recall(intent, goals[-1], now)
        self._lessons.forget_all_but(goals)
        self._telling.forget_all_but({intent.key for intent in intents})
        await self._follow_up(intents, now)
        observations = await self._observer.look(
            intents, now=now, isolate=lambda intent: self._gone_on(intent=str(intent))
        )
        owned = {each.workload.key for each in observations if each.workload and self._has_the_say(each)}
        self._performer.forget_all_but(owned, self._catalog.get)
        self._count(observations, now)
        self._performed_at = self._last_performed(intents, now)
        await self._show(observations)
        claims = {}
        self._killed, self._crashing = {}, []
        for observation in observations:
            with self._gone_on(intent=str(observation.intent)):
                if claim := await self._claim(observation, now):
                    claims[observation.intent.key] = claim
        rulings = await self._rulings(claims.values(), observations, now) if claims else {}
        self._waiting = {name: ruling.waiting_since for name, ruling in rulings.items()}
        for observation in observations:
            with self._gone_on(intent=str(observation.intent)):
                claim = claims.get(observation.intent.key)
                outcome = (
                    await self._act(observation, claim, rulings, now) if claim else self._idle(observation)
                )
                await self._telling.observed(observation, outcome, now=now)

    async def _follow_up(self, intents: Iterable[Intent], now: float) -> None:
        """Report on profiles and on intents that are invalid, and finish rollouts of options that are under way."""
        for profile in list(self._roll.profiles):
            with self._gone_on(profile=f"{profile.namespace}/{profile.name}"):
                await self._telling.profile(profile, self._config().intents.usual_queries)
        for intent in intents:
            with self._gone_on(intent=str(intent)):
                if intent.spec is None:
                    await self._telling.invalid(intent, now=now)
        for workload in list(self._catalog.workloads()):
            with self._gone_on(workload=str(workload.key)):
                if not left_alone(workload, self._config()):
                    await self._performer.follow_up(workload, now)

    @contextmanager
    def _gone_on(self, **about: str) -> Iterator[None]:
        """What fails for one intent does not keep the others from their turn, nor a turn the next."""
        try:
            yield
        except KubeError as error:
            self._metrics.intent_errors.labels(type(error).__name__).inc()
            log.warning("intent.failed", error=describe(error), **about)
        except Exception as error:
            self._metrics.intent_errors.labels(type(error).__name__).inc()
            log.exception("intent.failed", **about)

    async def _show(self, observations: Iterable[Observation]) -> None:
        """Let plugins learn from what is so: one that takes its time is not waited for once an intent."""
        free = asyncio.Semaphore(SHOWN_AT_ONCE)

        async def show(plugin: RemoteActuator, observation: Observation) -> None:
            state, workload, goal = observation.state, observation.workload, observation.goal
            if state is None or workload is None:
                return
            with self._gone_on(intent=str(observation.intent), plugin=plugin.name):
                async with free:
                    await asyncio.to_thread(plugin.observe, state, goal=goal, target=workload.key)

        async with side_by_side() as group:
            for plugin in self._planning.plugins().values():
                for observation in filter(self._has_the_say, observations):
                    group.create_task(show(plugin, observation))

    def _has_the_say(self, observation: Observation) -> bool:
        workload = observation.workload
        owner = self._roll.owner(workload.key) if workload else None
        return owner is not None and owner.key == observation.intent.key

    async def _claim(self, observation: Observation, now: float) -> Claim | None:
        """What is to be planned for an intent; None where nothing is."""
        state, workload, goal = observation.state, observation.workload, observation.goal
        if state is None or workload is None:
            return None
        if not self._has_the_say(observation):
            await self._lessons.record(goal, state, None, now=now)
            return None
        others = self._others(workload)
        if not untouchable(workload, self._config()) and not others.forbids_sizes:
            await self._performer.tend(observation, now)
            if any(map(falls, observation.pods)):
                self._crashing.append(observation)
        safe = await self._safe_sizes.of(workload, observation.pods, observation.main, now=now)
        kept = left_alone(workload, self._config()) or (others.forbids_sizes and "; ".join(others.said()))
        self._killed[observation.intent.key] = (
            f"{safe.killed}; not done: {kept}" if safe.relief and kept else safe.killed
        )
        if safe.relief and not kept:
            # Before any objective, and for any container: one that is killed again and again serves nobody.
            await self._performer.relieve(observation, safe.relief, now)
        await self._lessons.refit(goal, now=now)
        limits = limits_of(
            observation,
            config=self._config(),
            others=others,
            safe=safe,
            rests_until=self._rests_until(observation),
        )
        return Claim(
            goal=goal,
            state=state,
            effects=self._lessons.effects(goal, state),
            limits=msgspec.structs.replace(limits, refused=self._refusing(goal.intent, now)),
            waiting_since=self._waiting.get(goal.intent),
        )

    def _idle(self, observation: Observation) -> Outcome:
        """Of an intent that only reports."""
        workload = observation.workload
        owner = self._roll.owner(workload.key) if workload else None
        if owner is None or owner.key == observation.intent.key or not observation.spec.active:
            return Outcome(killed=self._killed.get(observation.intent.key, ""))
        return Outcome(remarks=(f"Intent {owner} is about the same workload, and comes first",))

    async def _act(
        self, observation: Observation, claim: Claim, rulings: Mapping[str, Ruling], now: float
    ) -> Outcome:
        goal, workload = observation.goal, observation.workload
        assert workload is not None
        plan = rulings[goal.intent].plan
        before = self._telling.before(observation.intent)
        self._metrics.intent_plans.labels(goal.namespace, plan.purpose.value).inc()
        outcome = Outcome(
            plan=plan,
            planner=self._planning.name_of(goal.namespace),
            rests=now < self._rests_until(observation),
            remarks=(*self._others(workload).said(), *said_of_use(claim.state, goal)),
            killed=self._killed.get(observation.intent.key, ""),
        )
        outcome = await self._perform(observation, outcome, plan, claim.limits, before, now)
        await self._lessons.record(goal, claim.state, plan if outcome.done else None, now=now)
        return outcome

    async def _rulings(
        self, claims: Iterable[Claim], observations: Sequence[Observation], now: float
    ) -> dict[str, Ruling]:
        """A plan for each, within the room that all share."""
        catalog = self._catalog
        room = room_of(
            nodes=catalog.nodes,
            pods=catalog.pods,
            quotas=catalog.quotas,
            targets=_by_namespace(filter(self._has_the_say, observations)),
            settings=self._config().intents,
        )
        return await self._planning.plans(list(claims), room=room, now=now)

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
        # Written down first: a process that ends before the status is written must not do it a second time.
        await self._telling.begun(observation, outcome, now=now)
        plugins = self._planning.plugins()
        performed = await self._performer.perform(plan, observation, limits=limits, plugins=plugins, now=now)
        if performed.refused and not performed.passes:
            # Or the best plan would be the one that is refused, turn after turn.
            self._refused[observation.goal.intent, plan.deeds[len(performed.done)].actuator] = now
        for deed in plan.deeds:
            result = "done" if deed in performed.done else "withheld"
            self._metrics.intent_deeds.labels(observation.goal.namespace, deed.actuator, result).inc()
        return replace(outcome, done=performed.done, withheld=performed.refused)

    def _too_soon(self, before: Document, now: float) -> str:
        """Why nothing is given back yet; empty when it may be."""
        wait = self._config().intents.release_after.seconds
        since = met_since(before, now=now)
        if since is not None and now - since >= wait:
            return ""
        return f"resources are given back once all objectives have been met for {wait:g} s"

    def _rests_until(self, observation: Observation) -> float:
        """Return until when nothing more is done to a target: its KPIs must show what was done last, by any Intent.

        A KPI that averages over longer than the cool-down still shows what was before it, and would be answered twice.
        """
        done = self._performed_at.get(observation.intent.target)
        rest = max(self._config().intents.cool_down.seconds, observation.window + SCRAPE)
        return 0.0 if done is None else done + rest

    def _last_performed(self, intents: Iterable[Intent], now: float) -> dict[WorkloadKey | None, float]:
        """Return when something was last done to each target, by whichever Intent."""
        found: dict[WorkloadKey | None, float] = {}
        for intent in intents:
            if (at := performed_at(self._telling.before(intent), now=now)) is not None:
                found[intent.target] = max(found.get(intent.target, at), at)
        return found

    def _refusing(self, intent: str, now: float) -> dict[str, float]:
        """Until when deeds rest that could not be done: meanwhile others may, and nobody waits for them."""
        rest = self._config().intents.cool_down.seconds
        self._refused = {key: at for key, at in self._refused.items() if 0 <= now - at < rest}
        return {actuator: at + rest for (whose, actuator), at in self._refused.items() if whose == intent}

    def _others(self, workload: Workload) -> Others:
        return Others(
            workload,
            hpas=self._catalog.hpas_of(workload),
            vpa=self._catalog.applied_by(workload.key),
            unread_vpas=self._catalog.unread(VPAS),
            resizes_in_place=self._resizes_in_place(),
        )

    async def _recall(self, intent: Intent, goal: Goal, now: float) -> None:
        """Take up what the store knows of an intent that is new here."""
        past = await self._lessons.recall(goal, now=now)
        if past is not None and intent.target is not None:
            self._observer.inherit(intent.target, past)

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


def _by_namespace(observations: Iterable[Observation]) -> dict[str, list[State]]:
    """Return the states of targets by namespace; each workload has one intent that controls it, and counts once."""
    found: dict[str, list[State]] = {}
    for each in observations:
        if each.state is not None:
            found.setdefault(each.goal.namespace, []).append(each.state)
    return found

"""What intents have taught: events and effects, kept in the store and learned from anew every now and then.

The store is a memory, not a crutch: when it is away, plans go by what is known in this process and by first guesses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Never

import msgspec
import structlog
from msgspec.structs import replace

from trimtab.intents.effects.fit import TARGET, complete, learn, recalled, remembered
from trimtab.intents.effects.model import Effects
from trimtab.intents.effects.samples import observed, recorded, settled
from trimtab.intents.kpi.availability import Uptime
from trimtab.intents.objective import Goal
from trimtab.intents.plan import Plan
from trimtab.intents.state import PodState, State
from trimtab.operator.config.intents import IntentSettings
from trimtab.store import PlannerEvent, Store, StoreError
from trimtab.store.effects import Effect
from trimtab.store.write_queue import WriteQueue

log = structlog.get_logger(__name__)

MOST_EVENTS = 500
"""States that one intent is learned from."""
FIRST_SPAN = 3600.0
EVENTS_PER_SPAN = 60
"""Events that are read of the last hour, of the two hours before it, of the four before those, and so on: 660 of a month."""
RECORD_EVERY = 60.0
"""Seconds after which a state is recorded though nothing has changed."""
RECALL_TIMEOUT = 5.0
"""Seconds that a turn waits for the store to tell what it knows of an intent."""
MOST_WAITING = 1000
"""Records that wait for a store that is away, the newest."""
ASK_AGAIN = 60.0
"""Seconds after which a store that was away is asked again what it knows."""


@dataclass(slots=True)
class _Pupil:
    """What is known of one intent."""

    effects: Effects = field(default_factory=Effects)
    recalled: bool = False
    """Whether the store has told what it knows of it. Until then nothing is saved over that."""
    learned_at: float = 0.0
    recorded_at: float = 0.0
    recorded: object = None
    """What was last recorded, apart from numbers that move all the time."""
    recent: list[tuple[float, State]] = field(default_factory=list)
    """Its last states that teach anything, oldest first, without what they do not teach by: of hundreds of intents, to hold
    every pod of every minute would be most of what a process may have."""
    pods: dict[str, PodState] = field(default_factory=dict)
    """Each pod that was seen lately, as it was seen last."""

    def saw(self, at: float, state: State) -> None:
        for pod in state.pods:
            self.pods.pop(pod.name, None)
            self.pods[pod.name] = pod
        self.pods = dict(islice(self.pods.items(), max(0, len(self.pods) - MOST_EVENTS), None))
        if settled(state):
            sizes = self.recent[-1][1].sizes if self.recent else ()
            lean = replace(
                state,
                pods=(),
                sizes=sizes if sizes == state.sizes else state.sizes,
                closed=frozenset(),
                annotations={},
                data={},
            )
            self.recent.append((at, lean))
            if len(self.recent) > MOST_EVENTS:
                self.recent = thinned(self.recent)

    def history(self, now: float) -> list[tuple[float, State]]:
        """What is learned from: also by how available pods were."""
        return [*self.recent, (now, State(objectives={}, pods=tuple(self.pods.values())))]


def thinned(states: Sequence[tuple[float, State]]) -> list[tuple[float, State]]:
    """Drop every second of the older three quarters: the past stays represented, the more thinly the older it is."""
    kept = len(states) // 4
    return [*states[:-kept][::2], *states[-kept:]]


class Lessons:
    """All intents' lessons."""

    def __init__(self, store: Store, *, cluster: str, settings: Callable[[], IntentSettings]) -> None:
        """`cluster` is what the cluster is known by in the store."""
        self._store = store
        self._cluster = cluster
        self._settings = settings
        self._pupils: dict[tuple[str, str], _Pupil] = {}
        """By intent and target."""
        self._away_at = float("-inf")
        self._events_queue = WriteQueue[PlannerEvent]("planner events", store.events, most=MOST_WAITING)
        self._effects_queue = WriteQueue[Effect]("effects", store.effects, most=MOST_WAITING)

    async def run(self) -> Never:
        """Write to the store what waits for it, until cancelled: no turn waits for that."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._events_queue.run())
            await self._effects_queue.run()
        raise AssertionError("unreachable")

    async def flush(self) -> None:
        """Write to the store what waits for it."""
        await self._events_queue.flush()
        await self._effects_queue.flush()

    def forget_all_but(self, goals: Iterable[Goal]) -> None:
        kept = {(goal.intent, goal.target) for goal in goals}
        self._pupils = {key: pupil for key, pupil in self._pupils.items() if key in kept}

    def effects(self, goal: Goal, state: State) -> Effects:
        """What is known of deeds' effects, with guesses where nothing is."""
        return complete(self._pupil(goal).effects, goal, state)

    async def recall(self, goal: Goal, *, now: float) -> Uptime | None:
        """Take up what the store knows of an intent that is new here, as soon as it tells; how its pods fared before."""
        pupil = self._pupil(goal)
        if pupil.recalled or 0 <= now - self._away_at < ASK_AGAIN:
            return None
        try:
            async with asyncio.timeout(RECALL_TIMEOUT):
                kept = await self._store.effects.find(cluster=self._cluster, name=goal.intent)
                since = now - self._settings().look_back.seconds
                events = await self._events(goal, since=since, now=now)
        except (StoreError, TimeoutError) as error:
            self._away_at = now
            log.warning(
                "intent.not_recalled", intent=goal.intent, error=str(error) or "the store does not answer"
            )
            return None
        pupil.recalled = True
        effects, troubles = recalled(goal, kept)
        for trouble in troubles:
            log.warning("intent.effect_unread", trouble=trouble)
        pupil.effects = effects
        before = _Pupil()
        for at, state in _states(events):
            before.saw(at, state)
        pupil.recent = sorted({**dict(before.recent), **dict(pupil.recent)}.items())
        pupil.pods = before.pods | pupil.pods
        past = events[0].data.get("history", {}) if events else {}
        return Uptime(up=float(past.get("up", 0.0)), down=float(past.get("down", 0.0)))

    async def record(self, goal: Goal, state: State, plan: Plan | None, *, now: float) -> None:
        """Write down what is so and what was planned, when that is news."""
        pupil = self._pupil(goal)
        gist = (state.replicas, state.sizes, len(state.pods), plan.deeds if plan and plan.deeds else None)
        if gist == pupil.recorded and 0 <= now - pupil.recorded_at < RECORD_EVERY:
            return
        pupil.recorded, pupil.recorded_at = gist, now
        pupil.saw(now, state)
        deeds = (
            [{"name": deed.actuator, "properties": dict(deed.parameters)} for deed in plan.deeds]
            if plan
            else []
        )
        event = PlannerEvent(
            cluster=self._cluster,
            name=goal.intent,
            timestamp=now,
            desired_objectives={each.name: each.value for each in goal.objectives},
            plan=deeds or None,
            **recorded(msgspec.structs.replace(state, data={**state.data, TARGET: goal.target})),
        )
        self._events_queue.put([event])

    async def refit(self, goal: Goal, *, now: float) -> bool:
        """Learn anew from what was recorded, when it is time; whether it was."""
        pupil = self._pupil(goal)
        settings = self._settings()
        if 0 <= now - pupil.learned_at < settings.learn_every.seconds or not (pupil.recent or pupil.pods):
            return False
        pupil.learned_at = now
        try:
            learned = await asyncio.to_thread(learn, goal, pupil.history(now), now=now)
        except (ArithmeticError, ValueError) as error:
            log.warning("intent.not_learned", intent=goal.intent, error=str(error))
            return False
        pupil.effects = Effects(learned=learned.learned, given=pupil.effects.given)
        if not pupil.recalled:
            return True
        self._effects_queue.put(remembered(goal, learned, cluster=self._cluster, now=now))
        return True

    def _pupil(self, goal: Goal) -> _Pupil:
        return self._pupils.setdefault((goal.intent, goal.target), _Pupil())

    async def _events(self, goal: Goal, *, since: float, now: float) -> list[PlannerEvent]:
        """Read the events of a goal's target, newest first; where they are too many, as many of each span, spread over it,
        and each span twice as long as the next newer one.

        The newest alone would be those of one night, and what was learned by day would be forgotten.
        """
        found = await self._store.events.find(
            cluster=self._cluster, name=goal.intent, since=since, limit=MOST_EVENTS
        )
        is_all = len(found) < MOST_EVENTS
        found = found if is_all else []
        until, span = now, FIRST_SPAN
        while until > since and not is_all:
            begin = max(since, until - span)
            found += await self._store.events.find(
                cluster=self._cluster,
                name=goal.intent,
                since=begin,
                until=until,
                spacing=(until - begin) / EVENTS_PER_SPAN,
                limit=2 * EVENTS_PER_SPAN,
            )
            until, span = begin, 2 * span
        return [event for event in found if event.data.get(TARGET, "") == goal.target]


def _states(events: Sequence[PlannerEvent]) -> list[tuple[float, State]]:
    """Oldest first; what cannot be read says nothing."""
    found = []
    for event in reversed(events):
        try:
            found.append((event.timestamp, observed(event)))
        except (TypeError, ValueError, msgspec.ValidationError):
            continue
    return found

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

from trimtab.intents.effects.fit import TARGET_KEY, add_priors, decode_effects, encode_effects, learn_effects
from trimtab.intents.effects.model import EffectModels
from trimtab.intents.effects.samples import decode_state, encode_state, is_settled
from trimtab.intents.kpi.availability import Uptime
from trimtab.intents.objective import Goal
from trimtab.intents.plan import Plan
from trimtab.intents.state import PodState, TargetState
from trimtab.operator.config.intents import IntentSettings
from trimtab.store import PlannerEvent, Store, StoreError
from trimtab.store.effects import Effect
from trimtab.store.write_queue import WriteQueue

log = structlog.get_logger(__name__)

MAX_EVENTS = 500
"""States that one intent is learned from."""
FIRST_SPAN = 3600.0
EVENTS_PER_SPAN = 60
"""Events that are read of the last hour, of the two hours before it, of the four before those, and so on: 660 of a month."""
RECORD_INTERVAL = 60.0
"""Seconds after which a state is recorded though nothing has changed."""
RESTORE_TIMEOUT = 5.0
"""Seconds that a turn waits for the store to tell what it knows of an intent."""
MAX_PENDING = 1000
"""Records that wait for a store that is away, the newest."""
RESTORE_RETRY = 60.0
"""Seconds after which a store that was away is asked again what it knows."""


@dataclass(slots=True)
class _IntentRecord:
    """What is known of one intent."""

    effects: EffectModels = field(default_factory=EffectModels)
    is_restored: bool = False
    """Whether the store has told what it knows of it. Until then nothing is saved over that."""
    fitted_at: float = 0.0
    recorded_at: float = 0.0
    last_recorded: object = None
    """What was last recorded, apart from numbers that move all the time."""
    recent: list[tuple[float, TargetState]] = field(default_factory=list)
    """Its last states that teach anything, oldest first, without what they do not teach by: of hundreds of intents, to hold
    every pod of every minute would be most of what a process may have."""
    pods: dict[str, PodState] = field(default_factory=dict)
    """Each pod that was seen lately, as it was seen last."""

    def add_state(self, at: float, state: TargetState) -> None:
        for pod in state.pods:
            self.pods.pop(pod.name, None)
            self.pods[pod.name] = pod
        self.pods = dict(islice(self.pods.items(), max(0, len(self.pods) - MAX_EVENTS), None))
        if is_settled(state):
            sizes = self.recent[-1][1].sizes if self.recent else ()
            lean = replace(
                state,
                pods=(),
                sizes=sizes if sizes == state.sizes else state.sizes,
                excluded_nodes=frozenset(),
                annotations={},
                data={},
            )
            self.recent.append((at, lean))
            if len(self.recent) > MAX_EVENTS:
                self.recent = thin_out(self.recent)

    def history(self, now: float) -> list[tuple[float, TargetState]]:
        """What is learned from: also by how available pods were."""
        return [*self.recent, (now, TargetState(objectives={}, pods=tuple(self.pods.values())))]


def thin_out(states: Sequence[tuple[float, TargetState]]) -> list[tuple[float, TargetState]]:
    """Drop every second of the older three quarters: the past stays represented, the more thinly the older it is."""
    kept = len(states) // 4
    return [*states[:-kept][::2], *states[-kept:]]


class EffectLearner:
    """All intents' lessons."""

    def __init__(self, store: Store, *, cluster: str, settings: Callable[[], IntentSettings]) -> None:
        """`cluster` is what the cluster is known by in the store."""
        self._store = store
        self._cluster = cluster
        self._settings = settings
        self._records: dict[tuple[str, str], _IntentRecord] = {}
        """By intent and target."""
        self._store_failed_at = float("-inf")
        self._events_queue = WriteQueue[PlannerEvent]("planner events", store.events, max_waiting=MAX_PENDING)
        self._effects_queue = WriteQueue[Effect]("effects", store.effects, max_waiting=MAX_PENDING)

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
        self._records = {key: pupil for key, pupil in self._records.items() if key in kept}

    def get_effects(self, goal: Goal, state: TargetState) -> EffectModels:
        """What is known of deeds' effects, with guesses where nothing is."""
        return add_priors(self._get_record(goal).effects, goal, state)

    async def restore(self, goal: Goal, *, now: float) -> Uptime | None:
        """Take up what the store knows of an intent that is new here, as soon as it tells; how its pods fared before."""
        pupil = self._get_record(goal)
        if pupil.is_restored or 0 <= now - self._store_failed_at < RESTORE_RETRY:
            return None
        try:
            async with asyncio.timeout(RESTORE_TIMEOUT):
                kept = await self._store.effects.find(cluster=self._cluster, name=goal.intent)
                since = now - self._settings().look_back.seconds
                events = await self._load_events(goal, since=since, now=now)
        except (StoreError, TimeoutError) as error:
            self._store_failed_at = now
            log.warning(
                "intent.not_recalled", intent=goal.intent, error=str(error) or "the store does not answer"
            )
            return None
        pupil.is_restored = True
        effects, troubles = decode_effects(goal, kept)
        for trouble in troubles:
            log.warning("intent.effect_unread", trouble=trouble)
        pupil.effects = effects
        before = _IntentRecord()
        for at, state in _decode_states(events):
            before.add_state(at, state)
        pupil.recent = sorted({**dict(before.recent), **dict(pupil.recent)}.items())
        pupil.pods = before.pods | pupil.pods
        past = events[0].data.get("history", {}) if events else {}
        return Uptime(up=float(past.get("up", 0.0)), down=float(past.get("down", 0.0)))

    async def record(self, goal: Goal, state: TargetState, plan: Plan | None, *, now: float) -> None:
        """Write down what is so and what was planned, when that is news."""
        pupil = self._get_record(goal)
        gist = (state.replicas, state.sizes, len(state.pods), plan.actions if plan and plan.actions else None)
        if gist == pupil.last_recorded and 0 <= now - pupil.recorded_at < RECORD_INTERVAL:
            return
        pupil.last_recorded, pupil.recorded_at = gist, now
        pupil.add_state(now, state)
        deeds = (
            [{"name": deed.actuator, "properties": dict(deed.parameters)} for deed in plan.actions]
            if plan
            else []
        )
        event = PlannerEvent(
            cluster=self._cluster,
            name=goal.intent,
            timestamp=now,
            desired_objectives={each.name: each.value for each in goal.objectives},
            plan=deeds or None,
            **encode_state(msgspec.structs.replace(state, data={**state.data, TARGET_KEY: goal.target})),
        )
        self._events_queue.put([event])

    async def refit(self, goal: Goal, *, now: float) -> bool:
        """Learn anew from what was recorded, when it is time; whether it was."""
        pupil = self._get_record(goal)
        settings = self._settings()
        if 0 <= now - pupil.fitted_at < settings.learn_every.seconds or not (pupil.recent or pupil.pods):
            return False
        pupil.fitted_at = now
        try:
            learned = await asyncio.to_thread(learn_effects, goal, pupil.history(now), now=now)
        except (ArithmeticError, ValueError) as error:
            log.warning("intent.not_learned", intent=goal.intent, error=str(error))
            return False
        pupil.effects = EffectModels(
            learned_models=learned.learned_models, user_models=pupil.effects.user_models
        )
        if not pupil.is_restored:
            return True
        self._effects_queue.put(encode_effects(goal, learned, cluster=self._cluster, now=now))
        return True

    def _get_record(self, goal: Goal) -> _IntentRecord:
        return self._records.setdefault((goal.intent, goal.target), _IntentRecord())

    async def _load_events(self, goal: Goal, *, since: float, now: float) -> list[PlannerEvent]:
        """Read the events of a goal's target, newest first; where they are too many, as many of each span, spread over it,
        and each span twice as long as the next newer one.

        The newest alone would be those of one night, and what was learned by day would be forgotten.
        """
        found = await self._store.events.find(
            cluster=self._cluster, name=goal.intent, since=since, limit=MAX_EVENTS
        )
        is_all = len(found) < MAX_EVENTS
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
        return [event for event in found if event.data.get(TARGET_KEY, "") == goal.target]


def _decode_states(events: Sequence[PlannerEvent]) -> list[tuple[float, TargetState]]:
    """Oldest first; what cannot be read says nothing."""
    found = []
    for event in reversed(events):
        try:
            found.append((event.timestamp, decode_state(event)))
        except (TypeError, ValueError, msgspec.ValidationError):
            continue
    return found

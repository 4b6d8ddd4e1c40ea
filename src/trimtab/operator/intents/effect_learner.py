"""Learning of effects from Intents: events and effects in the store, and regular refits.

The store is optional: without it, plans use the knowledge of this process and priors.
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
from trimtab.intents.planner import Plan
from trimtab.intents.state import PodState, TargetState
from trimtab.operator.config.intents import IntentSettings
from trimtab.store import PlannerEvent, Store, StoreError
from trimtab.store.planner_records import Effect
from trimtab.store.write_queue import WriteQueue
from trimtab.timing import Interval, is_recent

log = structlog.get_logger(__name__)

MAX_EVENTS = 500
"""The most states that one Intent is learned from."""
FIRST_SPAN = 3600.0
EVENTS_PER_SPAN = 60
"""The most events that are read for each span: the last hour, the two hours before, the four before those, and so
on."""
RECORD_INTERVAL = 60.0
"""The seconds after which a state is recorded even if nothing has changed."""
RESTORE_TIMEOUT = 5.0
"""The seconds that a cycle waits for the store to restore an Intent."""
MAX_PENDING = 1000
"""The most records that wait for an unavailable store; the newest are kept."""
RESTORE_RETRY = 60.0
"""The seconds after which an unavailable store is tried again."""


@dataclass(slots=True)
class _IntentKnowledge:
    """The knowledge about one Intent."""

    effects: EffectModels = field(default_factory=EffectModels)
    is_restored: bool = False
    """True if the stored knowledge was restored. Nothing is saved before, so that nothing is overwritten."""
    fitted_at: float = float("-inf")
    recording: Interval = field(default_factory=lambda: Interval(RECORD_INTERVAL))
    last_recorded: object = None
    """The last recorded state, without values that change all the time."""
    recent: list[tuple[float, TargetState]] = field(default_factory=list)
    """The last informative states, oldest first, without data that is not learned from. Keeping every pod of every
    minute for hundreds of Intents would need most of the process's memory."""
    pods: dict[str, PodState] = field(default_factory=dict)
    """The last observation of each recent pod."""

    def add_state(self, at: float, state: TargetState) -> None:
        for pod in state.pods:
            # Put back at the end, so that the pods that were seen longest ago are dropped first.
            self.pods.pop(pod.name, None)
            self.pods[pod.name] = pod
        self.pods = dict(islice(self.pods.items(), max(0, len(self.pods) - MAX_EVENTS), None))
        if is_settled(state):
            # Equal sizes share one object, because every Intent keeps hundreds of states.
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
        """Return the states to learn from, including the availability of pods."""
        return [*self.recent, (now, TargetState(objectives={}, pods=tuple(self.pods.values())))]


def thin_out(states: Sequence[tuple[float, TargetState]]) -> list[tuple[float, TargetState]]:
    """Drop every second of the older three quarters: the past stays represented, the more thinly the older it is."""
    kept = len(states) // 4
    return [*states[:-kept][::2], *states[-kept:]]


class EffectLearner:
    """The learned effects of all Intents."""

    def __init__(self, store: Store, *, cluster: str, settings: Callable[[], IntentSettings]) -> None:
        """Create a learner; `cluster` is the name of the cluster in the store."""
        self._store = store
        self._cluster = cluster
        self._settings = settings
        self._records: dict[tuple[str, str], _IntentKnowledge] = {}
        """The knowledge by Intent and target."""
        self._store_retry = Interval(RESTORE_RETRY)
        self._events_queue = WriteQueue[PlannerEvent]("planner events", store.events, max_waiting=MAX_PENDING)
        self._effects_queue = WriteQueue[Effect]("effects", store.effects, max_waiting=MAX_PENDING)

    async def run(self) -> Never:
        """Write pending records to the store until cancelled, so that no cycle waits for it."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._events_queue.run())
            await self._effects_queue.run()
        raise AssertionError("unreachable")

    async def flush(self) -> None:
        """Write pending records to the store."""
        await self._events_queue.flush()
        await self._effects_queue.flush()

    def forget_all_but(self, goals: Iterable[Goal]) -> None:
        kept = {(goal.intent, goal.target) for goal in goals}
        self._records = {key: record for key, record in self._records.items() if key in kept}

    def get_effects(self, goal: Goal, state: TargetState) -> EffectModels:
        """Return the effects for a goal, with priors where nothing was learned."""
        return add_priors(self.learned_effects(goal), goal, state)

    def learned_effects(self, goal: Goal) -> EffectModels:
        """Return what was learned for a goal, without priors."""
        return self._get_record(goal).effects

    def is_restored(self, goal: Goal) -> bool:
        return self._get_record(goal).is_restored

    async def restore(self, goal: Goal, *, now: float) -> Uptime | None:
        """Restore an Intent from the store once it is available; return the uptime of its past pods."""
        record = self._get_record(goal)
        if record.is_restored or not self._store_retry.due(now):
            return None
        try:
            async with asyncio.timeout(RESTORE_TIMEOUT):
                kept = await self._store.effects.find(cluster=self._cluster, name=goal.intent)
                since = now - self._settings().learning_period.seconds
                events = await self._load_events(goal, since=since, now=now)
        except (StoreError, TimeoutError) as error:
            self._store_retry.restart(now)
            log.warning(
                "intent.restore_failed", intent=goal.intent, error=str(error) or "the store does not answer"
            )
            return None
        record.is_restored = True
        effects, problems = decode_effects(goal, kept)
        for problem in problems:
            log.warning("intent.effect_unreadable", error=problem)
        record.effects = effects
        before = _IntentKnowledge()
        for at, state in _decode_states(events):
            before.add_state(at, state)
        record.recent = sorted({**dict(before.recent), **dict(record.recent)}.items())
        record.pods = before.pods | record.pods
        past = events[0].data.get("history", {}) if events else {}
        return Uptime(up=float(past.get("up", 0.0)), down=float(past.get("down", 0.0)))

    async def record(self, goal: Goal, state: TargetState, plan: Plan | None, *, now: float) -> None:
        """Record the state and the plan if they are new."""
        record = self._get_record(goal)
        summary = (
            state.replicas,
            state.sizes,
            len(state.pods),
            plan.actions if plan and plan.actions else None,
        )
        if summary == record.last_recorded and not record.recording.due(now):
            return
        record.last_recorded = summary
        record.recording.restart(now)
        record.add_state(now, state)
        actions = (
            [{"name": action.actuator, "properties": dict(action.parameters)} for action in plan.actions]
            if plan
            else []
        )
        event = PlannerEvent(
            cluster=self._cluster,
            name=goal.intent,
            timestamp=now,
            desired_objectives={each.name: each.value for each in goal.objectives},
            plan=actions or None,
            **encode_state(msgspec.structs.replace(state, data={**state.data, TARGET_KEY: goal.target})),
        )
        self._events_queue.put([event])

    async def refit(self, goal: Goal, *, now: float) -> bool:
        """Refit the effects if it is time; return whether they were refitted."""
        record = self._get_record(goal)
        is_fitted = is_recent(record.fitted_at, now, within=self._settings().learning_interval.seconds)
        if is_fitted or not (record.recent or record.pods):
            return False
        # Set first: samples that cannot be fitted would otherwise be tried again in every cycle.
        record.fitted_at = now
        try:
            learned = await asyncio.to_thread(learn_effects, goal, record.history(now), now=now)
        except (ArithmeticError, ValueError) as error:
            log.warning("intent.fit_failed", intent=goal.intent, error=str(error))
            return False
        record.effects = EffectModels(
            learned_models=learned.learned_models, user_models=record.effects.user_models
        )
        if not record.is_restored:
            return True
        self._effects_queue.put(encode_effects(goal, learned, cluster=self._cluster, now=now))
        return True

    def _get_record(self, goal: Goal) -> _IntentKnowledge:
        return self._records.setdefault((goal.intent, goal.target), _IntentKnowledge())

    async def _load_events(self, goal: Goal, *, since: float, now: float) -> list[PlannerEvent]:
        """Read the events of a goal's target, newest first; if there are too many, a sample of each span, where each
        span is twice as long as the next newer one.

        The newest events alone could be those of one night, and knowledge from the day would be lost.
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
    """Decode the states, oldest first; skip unreadable ones."""
    found = []
    for event in reversed(events):
        try:
            found.append((event.timestamp, decode_state(event)))
        except (TypeError, ValueError, msgspec.ValidationError):
            continue
    return found

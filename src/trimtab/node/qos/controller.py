"""A whole round of keeping quality of service: ask every strategy, settle between them, write, evict, and count.

A strategy that fails keeps what it last asked for, so that an error in one of them neither stops the others nor lets
go of what it held.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import structlog

from trimtab.api.nodeqospolicy import BlockIO, NodeQoSPolicySpec
from trimtab.node.arbiter import Conflict, Refusal, Spot, Value, Wish, admit, consolidate
from trimtab.node.executor.devices import numbers
from trimtab.node.executor.executor import Done, Executor
from trimtab.node.model import NodeView, Windows
from trimtab.node.qos.evictor import Departures, Evict
from trimtab.node.qos.metrics import Tally
from trimtab.node.strategies import NOTHING, STRATEGIES, Eviction, NodeStrategy, Plan, Scene

log = structlog.get_logger(__name__)

OFF = NodeQoSPolicySpec()
LOOK_SECONDS = 10.0
"""For so long, while the pods are the same, what nobody wishes for is taken to be as it was, and the same wishes for
settled."""


@dataclass(frozen=True)
class Round:
    """What one round came to."""

    decided: Mapping[Spot, Value]
    conflicts: tuple[Conflict, ...]
    refusals: tuple[Refusal, ...]
    evictions: tuple[Eviction, ...]
    done: Done
    lacking: tuple[str, ...] = ()
    """What strategies asked for and the node has not."""


def installed() -> dict[str, NodeStrategy]:
    """Every strategy that there is, new."""
    return {name: STRATEGIES.type_of(name)() for name in STRATEGIES.names()}


class Enforcer:
    """Joins strategies, arbiter and executor."""

    def __init__(
        self,
        executor: Executor,
        strategies: Mapping[str, NodeStrategy],
        *,
        evict: Evict,
        tally: Tally,
        devices: Callable[[BlockIO], tuple[str, ...]] = numbers,
    ) -> None:
        self._executor = executor
        self._strategies = strategies
        self._tally = tally
        self._devices = devices
        self._departures = Departures(evict, tally)
        self._last: dict[str, Plan] = {}
        self._failing: dict[str, str] = {}
        self._told: set[object] = set()
        self._world = executor.world()
        self._view: NodeView | None = None
        self._looked = float("-inf")
        self._asked: tuple[Wish, ...] | None = None
        self._settled = Round({}, (), (), (), Done())

    async def round(
        self, view: NodeView, windows: Windows, policy: NodeQoSPolicySpec | None, *, now: float
    ) -> Round:
        """One second's work. Without a policy every strategy is off, and everything is as before us."""
        scene = Scene(
            view=view,
            windows=windows,
            policy=policy or OFF,
            now=now,
            held=self._executor.held,
            devices=self._devices,
            staying=self._departures.staying(now),
        )
        plans = [self._plan(name, strategy, scene) for name, strategy in self._strategies.items()]
        evictions = tuple(each for plan in plans for each in plan.evictions)
        self._departures.begin(evictions, now=now)  # first: a file that cannot be written keeps nobody
        asked = tuple(wish for plan in plans for wish in plan.wishes)
        if view is not self._view or now - self._looked >= LOOK_SECONDS or self._settled.done.refused:
            self._world, self._view, self._looked = self._executor.world(), view, now
            self._asked = None
        if asked != self._asked:
            told = {spot: value for plan in plans for spot, value in plan.told.items()}
            self._settled, self._asked = self._settle(asked, told, now), asked
            found = self._settled
        else:
            found = replace(self._settled, done=Done())
        for plan in plans:
            self._executor.enlist(plan.members)
        lacking = [
            f"{name}: {line}"
            for name, plan in zip(self._strategies, plans, strict=True)
            for line in plan.lacking
        ]
        found = replace(found, evictions=evictions, lacking=(*found.lacking, *lacking))
        self._account(found)
        return found

    def _settle(self, asked: tuple[Wish, ...], told: Mapping[Spot, Value], now: float) -> Round:
        self._executor.adopt()
        world = self._world
        known = [wish for wish in asked if wish.spot.knob.file(world.version) is not None]
        decided, conflicts = consolidate(known, world.value)
        admitted, refusals = admit(decided, world)
        done = self._executor.apply(admitted, now=now, told=told)
        strange = {(wish.strategy, wish.spot.knob.name) for wish in asked} - {
            (wish.strategy, wish.spot.knob.name) for wish in known
        }
        lacking = [f"{name}: cgroup v{world.version.value} has no {knob}" for name, knob in sorted(strange)]
        return Round(admitted, tuple(conflicts), tuple(refusals), (), done, tuple(lacking))

    def holding(self) -> list[Wish]:
        """For each knob that is held, the wish that it is held by."""
        found: dict[Spot, Wish] = {}
        for wish in self._asked or ():
            if self._settled.decided.get(wish.spot) == wish.value:
                found.setdefault(wish.spot, wish)
        return list(found.values())

    def release(self, *, now: float) -> Done:
        """Leave the node as it was."""
        done = self._executor.release(now=now)
        self._count(done)
        return done

    async def settled(self) -> None:
        """Once no eviction is under way."""
        await self._departures.over()

    def _plan(self, name: str, strategy: NodeStrategy, scene: Scene) -> Plan:
        try:
            plan = strategy.plan(scene)
        except Exception as error:
            if self._failing.get(name) != repr(error):
                log.exception("node.strategy_failed", strategy=name)
            self._failing[name] = repr(error)
            self._tally.failures.labels(name).inc()
            return Plan(self._last.get(name, NOTHING).wishes)
        self._failing.pop(name, None)
        self._last[name] = plan
        return plan

    def _account(self, found: Round) -> None:
        """Count all; tell each trouble once, whatever its numbers come to meanwhile, and again when it has come back."""
        for conflict in found.conflicts:
            for wish in conflict.overruled:
                self._tally.overruled.labels(wish.strategy).inc()
        for refusal in found.refusals:
            self._tally.refused.labels(refusal.spot.knob.name).inc()
        self._count(found.done)
        trouble: dict[object, str] = {("settled", each.spot): str(each) for each in found.conflicts}
        trouble |= {("no good", each.spot): str(each) for each in found.refusals}
        trouble |= {spot: f"{spot}: {why}" for spot, why in found.done.refused.items()}
        trouble |= {line: line for line in found.lacking}
        for what in sorted(text for key, text in trouble.items() if key not in self._told):
            log.warning("node.trouble", what=what)
        self._told = {*trouble}

    def _count(self, done: Done) -> None:
        for spot, _ in done.written:
            self._tally.written.labels(spot.knob.name).inc()
        for spot in done.restored:
            self._tally.restored.labels(spot.knob.name).inc()
        for spot in done.refused:
            self._tally.refused.labels(spot.knob.name).inc()

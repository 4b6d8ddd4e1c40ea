"""A whole round of keeping quality of service: ask every strategy, settle between them, write, evict, and count.

A strategy that fails keeps what it last asked for, so that an error in one of them neither stops the others nor lets
go of what it held.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import structlog

from trimtab.api.nodeqospolicy import BlockDeviceSpec, NodeQoSPolicySpec
from trimtab.node.arbiter import (
    KnobConflict,
    KnobRef,
    KnobRequest,
    RejectedValue,
    Value,
    resolve_requests,
    validate_values,
)
from trimtab.node.executor.devices import find_device_numbers
from trimtab.node.executor.executor import Executor, WriteResult
from trimtab.node.model import MetricWindows, NodeView
from trimtab.node.qos.evictor import Evictor, EvictPod
from trimtab.node.qos.metrics import QosMetrics
from trimtab.node.strategies import (
    NO_OUTPUT,
    STRATEGIES,
    Eviction,
    NodeStrategy,
    StrategyInput,
    StrategyOutput,
)

log = structlog.get_logger(__name__)

DISABLED_POLICY = NodeQoSPolicySpec()
REFRESH_SECONDS = 10.0
"""For so long, while the pods are the same, what nobody wishes for is taken to be as it was, and the same wishes for
settled."""


@dataclass(frozen=True)
class RoundResult:
    """What one round came to."""

    decided: Mapping[KnobRef, Value]
    conflicts: tuple[KnobConflict, ...]
    rejected: tuple[RejectedValue, ...]
    evictions: tuple[Eviction, ...]
    write_result: WriteResult
    unsupported: tuple[str, ...] = ()
    """What strategies asked for and the node has not."""


def load_strategies() -> dict[str, NodeStrategy]:
    """Every strategy that there is, new."""
    return {name: STRATEGIES.load_type(name)() for name in STRATEGIES.names()}


class QosController:
    """Joins strategies, arbiter and executor."""

    def __init__(
        self,
        executor: Executor,
        strategies: Mapping[str, NodeStrategy],
        *,
        evict: EvictPod,
        metrics: QosMetrics,
        devices: Callable[[BlockDeviceSpec], tuple[str, ...]] = find_device_numbers,
    ) -> None:
        self._executor = executor
        self._strategies = strategies
        self._metrics = metrics
        self._devices = devices
        self._evictor = Evictor(evict, metrics)
        self._last_outputs: dict[str, StrategyOutput] = {}
        self._failing: dict[str, str] = {}
        self._reported: set[object] = set()
        self._baseline = executor.build_baseline()
        self._view: NodeView | None = None
        self._refreshed_at = float("-inf")
        self._requests: tuple[KnobRequest, ...] | None = None
        self._last_result = RoundResult({}, (), (), (), WriteResult())

    async def run_round(
        self, view: NodeView, windows: MetricWindows, policy: NodeQoSPolicySpec | None, *, now: float
    ) -> RoundResult:
        """One second's work. Without a policy every strategy is off, and everything is as before us."""
        scene = StrategyInput(
            view=view,
            windows=windows,
            policy=policy or DISABLED_POLICY,
            now=now,
            read_knob=self._executor.read_knob,
            find_devices=self._devices,
            eviction_blocked=self._evictor.eviction_blocked(now),
        )
        plans = [self._run_strategy(name, strategy, scene) for name, strategy in self._strategies.items()]
        evictions = tuple(each for plan in plans for each in plan.evictions)
        self._evictor.start(evictions, now=now)  # first: a file that cannot be written keeps nobody
        asked = tuple(wish for plan in plans for wish in plan.requests)
        if (
            view is not self._view
            or now - self._refreshed_at >= REFRESH_SECONDS
            or self._last_result.write_result.rejected
        ):
            self._baseline, self._view, self._refreshed_at = self._executor.build_baseline(), view, now
            self._requests = None
        if asked != self._requests:
            told = {spot: value for plan in plans for spot, value in plan.external_values.items()}
            self._last_result, self._requests = self._resolve(asked, told, now), asked
            found = self._last_result
        else:
            found = replace(self._last_result, write_result=WriteResult())
        for plan in plans:
            self._executor.assign_tasks(plan.resctrl_tasks)
        lacking = [
            f"{name}: {line}"
            for name, plan in zip(self._strategies, plans, strict=True)
            for line in plan.unsupported
        ]
        found = replace(found, evictions=evictions, unsupported=(*found.unsupported, *lacking))
        self._report(found)
        return found

    def _resolve(
        self, asked: tuple[KnobRequest, ...], external_values: Mapping[KnobRef, Value], now: float
    ) -> RoundResult:
        self._executor.adopt()
        world = self._baseline
        known = [wish for wish in asked if wish.ref.knob.file(world.version) is not None]
        decided, conflicts = resolve_requests(known, world.value)
        admitted, refusals = validate_values(decided, world)
        done = self._executor.apply(admitted, now=now, external_values=external_values)
        strange = {(wish.strategy, wish.ref.knob.name) for wish in asked} - {
            (wish.strategy, wish.ref.knob.name) for wish in known
        }
        lacking = [f"{name}: cgroup v{world.version.value} has no {knob}" for name, knob in sorted(strange)]
        return RoundResult(admitted, tuple(conflicts), tuple(refusals), (), done, tuple(lacking))

    def active_requests(self) -> list[KnobRequest]:
        """For each knob that is held, the wish that it is held by."""
        found: dict[KnobRef, KnobRequest] = {}
        for wish in self._requests or ():
            if self._last_result.decided.get(wish.ref) == wish.value:
                found.setdefault(wish.ref, wish)
        return list(found.values())

    def release(self, *, now: float) -> WriteResult:
        """Leave the node as it was."""
        done = self._executor.release(now=now)
        self._count_writes(done)
        return done

    async def wait_evictions(self) -> None:
        """Once no eviction is under way."""
        await self._evictor.wait_idle()

    def _run_strategy(self, name: str, strategy: NodeStrategy, inputs: StrategyInput) -> StrategyOutput:
        try:
            plan = strategy.plan(inputs)
        except Exception as error:
            if self._failing.get(name) != repr(error):
                log.exception("node.strategy_failed", strategy=name)
            self._failing[name] = repr(error)
            self._metrics.failures.labels(name).inc()
            return StrategyOutput(self._last_outputs.get(name, NO_OUTPUT).requests)
        self._failing.pop(name, None)
        self._last_outputs[name] = plan
        return plan

    def _report(self, found: RoundResult) -> None:
        """Count all; tell each trouble once, whatever its numbers come to meanwhile, and again when it has come back."""
        for conflict in found.conflicts:
            for wish in conflict.overruled:
                self._metrics.overruled.labels(wish.strategy).inc()
        for refusal in found.rejected:
            self._metrics.rejected.labels(refusal.ref.knob.name).inc()
        self._count_writes(found.write_result)
        trouble: dict[object, str] = {("settled", each.ref): str(each) for each in found.conflicts}
        trouble |= {("no good", each.ref): str(each) for each in found.rejected}
        trouble |= {spot: f"{spot}: {why}" for spot, why in found.write_result.rejected.items()}
        trouble |= {line: line for line in found.unsupported}
        for what in sorted(text for key, text in trouble.items() if key not in self._reported):
            log.warning("node.trouble", what=what)
        self._reported = {*trouble}

    def _count_writes(self, done: WriteResult) -> None:
        for spot, _ in done.written:
            self._metrics.written.labels(spot.knob.name).inc()
        for spot in done.restored:
            self._metrics.restored.labels(spot.knob.name).inc()
        for spot in done.rejected:
            self._metrics.rejected.labels(spot.knob.name).inc()

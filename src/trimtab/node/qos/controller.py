"""A QoS round: run every strategy, resolve their requests, write, evict and count.

A strategy that fails keeps its last requests, so that its error neither stops the others nor releases its
knobs.
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
from trimtab.node.metrics import QosMetrics
from trimtab.node.model import MetricWindows, NodeView
from trimtab.node.qos.evictor import Evictor, EvictPod
from trimtab.node.strategies import (
    NO_OUTPUT,
    STRATEGIES,
    Eviction,
    NodeStrategy,
    StrategyInput,
    StrategyOutput,
)
from trimtab.timing import Interval, LogOnce

log = structlog.get_logger(__name__)

DISABLED_POLICY = NodeQoSPolicySpec()
REFRESH_SECONDS = 10.0
"""The seconds for which, with unchanged pods, other knobs and resolved requests are reused."""


@dataclass(frozen=True)
class RoundResult:
    """The result of one round."""

    decided: Mapping[KnobRef, Value]
    conflicts: tuple[KnobConflict, ...]
    rejected: tuple[RejectedValue, ...]
    evictions: tuple[Eviction, ...]
    write_result: WriteResult
    unsupported: tuple[str, ...] = ()
    """The requested features that the node does not support."""


def load_strategies() -> dict[str, NodeStrategy]:
    """Create every registered strategy."""
    return {name: STRATEGIES.load_type(name)() for name in STRATEGIES.names()}


class QosController:
    """Connects strategies, arbiter and executor."""

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
        self._strategy_errors, self._problems = LogOnce(), LogOnce()
        self._baseline = executor.build_baseline()
        self._view: NodeView | None = None
        self._refresh = Interval(REFRESH_SECONDS)
        self._requests: tuple[KnobRequest, ...] | None = None
        self._last_result = RoundResult({}, (), (), (), WriteResult())

    async def run_round(
        self, view: NodeView, windows: MetricWindows, policy: NodeQoSPolicySpec | None, *, now: float
    ) -> RoundResult:
        """Run one round. Without a policy every strategy is off and everything is restored."""
        inputs = StrategyInput(
            view=view,
            windows=windows,
            policy=policy or DISABLED_POLICY,
            now=now,
            read_knob=self._executor.read_knob,
            find_devices=self._devices,
            eviction_blocked=self._evictor.eviction_blocked(now),
        )
        outputs = [self._run_strategy(name, strategy, inputs) for name, strategy in self._strategies.items()]
        evictions = tuple(each for output in outputs for each in output.evictions)
        self._evictor.start(evictions, now=now)  # first: a failing write must not prevent evictions
        requests = tuple(request for output in outputs for request in output.requests)
        # The baseline caches the values that it read. They change with the pods, with writes of others, and
        # after a rejected write.
        if view is not self._view or self._refresh.due(now) or self._last_result.write_result.rejected:
            self._baseline, self._view, self._requests = self._executor.build_baseline(), view, None
            self._refresh.restart(now)
        # The same requests give the same values: resolving and comparing them each second would cost more than
        # all strategies.
        if requests != self._requests:
            external_values = {
                ref: value for output in outputs for ref, value in output.external_values.items()
            }
            self._last_result, self._requests = self._resolve(requests, external_values, now), requests
            found = self._last_result
        else:
            found = replace(self._last_result, write_result=WriteResult())
        for output in outputs:
            self._executor.assign_tasks(output.resctrl_tasks)
        unsupported = [
            f"{name}: {line}"
            for name, output in zip(self._strategies, outputs, strict=True)
            for line in output.unsupported
        ]
        found = replace(found, evictions=evictions, unsupported=(*found.unsupported, *unsupported))
        self._report(found)
        return found

    def _resolve(
        self, requests: tuple[KnobRequest, ...], external_values: Mapping[KnobRef, Value], now: float
    ) -> RoundResult:
        # Before the baseline is used: a child that was created under a reduced parent has a wrong original.
        self._executor.adopt()
        baseline = self._baseline
        # Policies are the same for nodes with cgroup v1 and v2, so a missing knob is reported, not rejected.
        known = [request for request in requests if request.ref.knob.file(baseline.version) is not None]
        decided, conflicts = resolve_requests(known, baseline.value)
        accepted, rejected = validate_values(decided, baseline)
        written = self._executor.apply(accepted, now=now, external_values=external_values)
        missing = {(request.strategy, request.ref.knob.name) for request in requests} - {
            (request.strategy, request.ref.knob.name) for request in known
        }
        unsupported = [
            f"{name}: cgroup v{baseline.version.value} has no {knob}" for name, knob in sorted(missing)
        ]
        return RoundResult(accepted, tuple(conflicts), tuple(rejected), (), written, tuple(unsupported))

    def active_requests(self) -> list[KnobRequest]:
        """Return the request that decided each held knob."""
        found: dict[KnobRef, KnobRequest] = {}
        for request in self._requests or ():
            if self._last_result.decided.get(request.ref) == request.value:
                found.setdefault(request.ref, request)
        return list(found.values())

    def release(self, *, now: float) -> WriteResult:
        """Restore the node."""
        done = self._executor.release(now=now)
        self._count_writes(done)
        return done

    async def wait_evictions(self) -> None:
        """Wait until no eviction is in flight."""
        await self._evictor.wait_idle()

    def _run_strategy(self, name: str, strategy: NodeStrategy, inputs: StrategyInput) -> StrategyOutput:
        try:
            output = strategy.plan(inputs)
        except Exception as error:
            if self._strategy_errors.is_new(repr(error), about=name):
                log.exception("qos.strategy_failed", strategy=name)
            self._metrics.failures.labels(name).inc()
            # With its last requests. Without any, a strategy that fails for one round would restore its knobs
            # and take them again in the next.
            return StrategyOutput(self._last_outputs.get(name, NO_OUTPUT).requests)
        self._strategy_errors.clear(name)
        self._last_outputs[name] = output
        return output

    def _report(self, found: RoundResult) -> None:
        """Count everything; log each problem once, regardless of its numbers, and again when it returns."""
        for conflict in found.conflicts:
            for request in conflict.overruled:
                self._metrics.overruled.labels(request.strategy).inc()
        for rejected in found.rejected:
            self._metrics.rejected.labels(rejected.ref.knob.name).inc()
        self._count_writes(found.write_result)
        problems: dict[object, str] = {("conflict", each.ref): str(each) for each in found.conflicts}
        problems |= {("invalid", each.ref): str(each) for each in found.rejected}
        problems |= {ref: f"{ref}: {reason}" for ref, reason in found.write_result.rejected.items()}
        problems |= {line: line for line in found.unsupported}
        # The text has numbers that change every round, so only its subject tells whether a problem is new.
        for problem in sorted(text for key, text in problems.items() if self._problems.is_new("", about=key)):
            log.warning("qos.problem", problem=problem)
        self._problems.clear_all_but(problems)

    def _count_writes(self, done: WriteResult) -> None:
        for ref, _ in done.written:
            self._metrics.written.labels(ref.knob.name).inc()
        for ref in done.restored:
            self._metrics.restored.labels(ref.knob.name).inc()
        for ref in done.rejected:
            self._metrics.rejected.labels(ref.knob.name).inc()

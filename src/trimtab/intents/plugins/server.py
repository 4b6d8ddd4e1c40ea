"""The other side: serves an actuator or a planner that is written in Python as a plugin, and keeps it registered.

with serving(ActuatorService(mine, perform=do_it), name="mine", register_at="127.0.0.1:9444") as plugin:
    plugin.wait()
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from trimtab.intents.actuator import Actuator, IntentAction, actuator
from trimtab.intents.effects.fit import LEARNED_GROUP, decode_effects
from trimtab.intents.effects.model import EffectModels
from trimtab.intents.objective import Goal
from trimtab.intents.planner import Planner, SearchBudget
from trimtab.intents.plugins.codec import (
    action_from_message,
    action_to_message,
    constraints_from_message,
    goal_from_message,
    plan_to_message,
    state_from_message,
    struct_to_dict,
    target_from_message,
)
from trimtab.intents.plugins.messages import plugin_pb2 as pb
from trimtab.intents.plugins.protocol import (
    CANDIDATES,
    INFO,
    OBSERVE,
    PERFORM,
    PLAN,
    REGISTER,
    VERSION,
    PluginTls,
    StreamCall,
    UnaryCall,
    describe_rpc_error,
    dial,
    listen,
)
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.lazy import LazyModule
from trimtab.store import Effect

if TYPE_CHECKING:
    import grpc
else:  # only plugins need it, and it takes 9 MiB
    grpc = LazyModule("grpc")

log = structlog.get_logger(__name__)

RETRY_INTERVAL = 2.0

CallHandlers = Sequence[tuple[UnaryCall[Any, Any] | StreamCall[Any, Any], Callable[[Any], Any]]]


class PluginService(Protocol):
    """The calls that a plugin serves."""

    @property
    def type(self) -> pb.PluginType: ...

    @property
    def group(self) -> str: ...

    def call_handlers(self) -> CallHandlers: ...


@dataclass(frozen=True)
class ActuatorService:
    """An actuator, and the function that executes its actions: it returns the reason if it does not."""

    actuator: Actuator
    execute: Callable[[IntentAction, WorkloadKey], str]
    type: pb.PluginType = pb.PLUGIN_TYPE_ACTUATOR

    @property
    def group(self) -> str:
        return self.actuator.group

    def call_handlers(self) -> CallHandlers:
        return (
            (CANDIDATES, self._candidates),
            (PERFORM, self._execute),
            (OBSERVE, lambda _: pb.ObserveResponse()),
        )

    def _candidates(self, request: pb.CandidatesRequest) -> Sequence[pb.Action]:
        found = self.actuator.candidates(
            state_from_message(request.state),
            goal=goal_from_message(request.goal),
            effects=EffectModels(),
            limits=constraints_from_message(request.constraints),
        )
        return [action_to_message(action) for action in found]

    def _execute(self, request: pb.PerformRequest) -> pb.PerformResponse:
        before = state_from_message(request.state)
        return pb.PerformResponse(
            blocked_reason=self.execute(
                action_from_message(request.action, before=before), target_from_message(request.target)
            )
        )


@dataclass(frozen=True)
class PlannerService:
    """A planner as a plugin."""

    planner: Planner
    type: pb.PluginType = pb.PLUGIN_TYPE_PLANNER
    group: str = ""
    _actuators: dict[bytes, Actuator] = field(default_factory=dict)

    def call_handlers(self) -> CallHandlers:
        return ((PLAN, self._plan),)

    def _plan(self, request: pb.PlanRequest) -> pb.PlanResponse:
        goal = goal_from_message(request.goal)
        plan = self.planner.plan(
            state_from_message(request.state),
            goal,
            actuators=[self._actuator(each) for each in request.actuators],
            effects=_decode_plan_effects(goal, request.effects),
            limits=constraints_from_message(request.constraints),
            now=request.now,
            budget=SearchBudget(max_states=request.max_states or SearchBudget().max_states),
        )
        return plan_to_message(plan)

    def _actuator(self, request: pb.ActuatorSettings) -> Actuator:
        key = request.SerializeToString(deterministic=True)
        if key not in self._actuators:
            self._actuators[key] = actuator(request.name, **struct_to_dict(request.settings))
        return self._actuators[key]


@dataclass(frozen=True)
class PluginServer:
    """A listening plugin."""

    endpoint: str
    registered: threading.Event
    """The event that is set once an operator has accepted the registration."""
    _server: grpc.Server

    def wait(self) -> None:
        self._server.wait_for_termination()


@contextmanager
def serve_plugin(
    service: PluginService,
    *,
    name: str,
    address: str = "127.0.0.1:0",
    endpoint: str | None = None,
    register_at: str | None = None,
    tls: PluginTls | None = None,
) -> Iterator[PluginServer]:
    """Listen, and stay registered with an operator; `endpoint` is the address that the operator connects to."""
    info = pb.PluginInfo(type=service.type, name=name, versions=[VERSION], group=service.group)
    server, port = listen(address, tls, [(INFO, lambda _: info), *service.call_handlers()])
    info.endpoint = endpoint or f"{address.rpartition(':')[0]}:{port}"
    served = PluginServer(info.endpoint, threading.Event(), server)
    ended = threading.Event()
    registering = threading.Thread(
        target=_keep_registered, args=(info, register_at, tls, served.registered, ended), daemon=True
    )
    if register_at is not None:
        registering.start()
    try:
        yield served
    finally:
        ended.set()
        server.stop(grace=0.2).wait()
        if register_at is not None:
            registering.join()


def _keep_registered(
    info: pb.PluginInfo,
    register_at: str,
    tls: PluginTls | None,
    registered: threading.Event,
    ended: threading.Event,
) -> None:
    """Register repeatedly, because the leader may change; with a new channel, because certificates may be renewed."""
    while not ended.is_set():
        try:
            with dial(register_at, tls) as channel:
                again = REGISTER.invoke(channel, info, timeout=5.0).register_again_seconds
            registered.set()
        except (grpc.RpcError, OSError) as error:
            log.warning("plugin.registration_failed", error=describe_rpc_error(error))
            again = RETRY_INTERVAL
        ended.wait(max(RETRY_INTERVAL, again))


def _decode_plan_effects(goal: Goal, message: Sequence[pb.Effect]) -> EffectModels:
    profiles = {each.name: each.measured_by or each.name for each in goal.objectives}
    kept = [
        Effect(
            name=goal.intent,
            group=each.group or LEARNED_GROUP,
            profile_name=profiles[each.objective],
            data=struct_to_dict(each.data),
            timestamp=0.0,
        )
        for each in message
        if each.objective in profiles
    ]
    effects, errors = decode_effects(goal, kept)
    for error in errors:
        log.warning("plugin.effect_unreadable", error=error)
    return effects

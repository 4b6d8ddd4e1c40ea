from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class PluginType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PLUGIN_TYPE_UNSPECIFIED: _ClassVar[PluginType]
    PLUGIN_TYPE_ACTUATOR: _ClassVar[PluginType]
    PLUGIN_TYPE_PLANNER: _ClassVar[PluginType]
PLUGIN_TYPE_UNSPECIFIED: PluginType
PLUGIN_TYPE_ACTUATOR: PluginType
PLUGIN_TYPE_PLANNER: PluginType

class PluginInfo(_message.Message):
    __slots__ = ("type", "name", "endpoint", "versions", "group")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    VERSIONS_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    type: PluginType
    name: str
    endpoint: str
    versions: _containers.RepeatedScalarFieldContainer[str]
    group: str
    def __init__(self, type: _Optional[_Union[PluginType, str]] = ..., name: _Optional[str] = ..., endpoint: _Optional[str] = ..., versions: _Optional[_Iterable[str]] = ..., group: _Optional[str] = ...) -> None: ...

class RegisterResponse(_message.Message):
    __slots__ = ("version", "register_again_seconds")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REGISTER_AGAIN_SECONDS_FIELD_NUMBER: _ClassVar[int]
    version: str
    register_again_seconds: float
    def __init__(self, version: _Optional[str] = ..., register_again_seconds: _Optional[float] = ...) -> None: ...

class InfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class State(_message.Message):
    __slots__ = ("objectives", "pods", "replicas", "sizes", "main", "load", "cpu_used", "memory_used", "cache_class", "power_profile", "annotations", "data", "log_spread", "unknown", "unplaced")
    class ObjectivesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class AnnotationsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class LogSpreadEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    OBJECTIVES_FIELD_NUMBER: _ClassVar[int]
    PODS_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    MAIN_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    CPU_USED_FIELD_NUMBER: _ClassVar[int]
    MEMORY_USED_FIELD_NUMBER: _ClassVar[int]
    CACHE_CLASS_FIELD_NUMBER: _ClassVar[int]
    POWER_PROFILE_FIELD_NUMBER: _ClassVar[int]
    ANNOTATIONS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    LOG_SPREAD_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    UNPLACED_FIELD_NUMBER: _ClassVar[int]
    objectives: _containers.ScalarMap[str, float]
    pods: _containers.RepeatedCompositeFieldContainer[PodState]
    replicas: int
    sizes: _containers.RepeatedCompositeFieldContainer[Size]
    main: int
    load: float
    cpu_used: float
    memory_used: float
    cache_class: str
    power_profile: str
    annotations: _containers.ScalarMap[str, str]
    data: _struct_pb2.Struct
    log_spread: _containers.ScalarMap[str, float]
    unknown: _containers.RepeatedScalarFieldContainer[str]
    unplaced: int
    def __init__(self, objectives: _Optional[_Mapping[str, float]] = ..., pods: _Optional[_Iterable[_Union[PodState, _Mapping]]] = ..., replicas: _Optional[int] = ..., sizes: _Optional[_Iterable[_Union[Size, _Mapping]]] = ..., main: _Optional[int] = ..., load: _Optional[float] = ..., cpu_used: _Optional[float] = ..., memory_used: _Optional[float] = ..., cache_class: _Optional[str] = ..., power_profile: _Optional[str] = ..., annotations: _Optional[_Mapping[str, str]] = ..., data: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., log_spread: _Optional[_Mapping[str, float]] = ..., unknown: _Optional[_Iterable[str]] = ..., unplaced: _Optional[int] = ...) -> None: ...

class PodState(_message.Message):
    __slots__ = ("name", "node", "state", "qos", "availability")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    QOS_FIELD_NUMBER: _ClassVar[int]
    AVAILABILITY_FIELD_NUMBER: _ClassVar[int]
    name: str
    node: str
    state: str
    qos: str
    availability: float
    def __init__(self, name: _Optional[str] = ..., node: _Optional[str] = ..., state: _Optional[str] = ..., qos: _Optional[str] = ..., availability: _Optional[float] = ...) -> None: ...

class Size(_message.Message):
    __slots__ = ("container", "cpu_request", "cpu_limit", "memory_request", "memory_limit")
    CONTAINER_FIELD_NUMBER: _ClassVar[int]
    CPU_REQUEST_FIELD_NUMBER: _ClassVar[int]
    CPU_LIMIT_FIELD_NUMBER: _ClassVar[int]
    MEMORY_REQUEST_FIELD_NUMBER: _ClassVar[int]
    MEMORY_LIMIT_FIELD_NUMBER: _ClassVar[int]
    container: str
    cpu_request: float
    cpu_limit: float
    memory_request: float
    memory_limit: float
    def __init__(self, container: _Optional[str] = ..., cpu_request: _Optional[float] = ..., cpu_limit: _Optional[float] = ..., memory_request: _Optional[float] = ..., memory_limit: _Optional[float] = ...) -> None: ...

class Objective(_message.Message):
    __slots__ = ("name", "value", "kind", "less_is_better", "tolerance", "weight", "measured_by")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    LESS_IS_BETTER_FIELD_NUMBER: _ClassVar[int]
    TOLERANCE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    MEASURED_BY_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: float
    kind: str
    less_is_better: bool
    tolerance: float
    weight: float
    measured_by: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[float] = ..., kind: _Optional[str] = ..., less_is_better: bool = ..., tolerance: _Optional[float] = ..., weight: _Optional[float] = ..., measured_by: _Optional[str] = ...) -> None: ...

class Goal(_message.Message):
    __slots__ = ("intent", "objectives", "priority", "z_score", "is_release")
    INTENT_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVES_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    Z_SCORE_FIELD_NUMBER: _ClassVar[int]
    IS_RELEASE_FIELD_NUMBER: _ClassVar[int]
    intent: str
    objectives: _containers.RepeatedCompositeFieldContainer[Objective]
    priority: float
    z_score: float
    is_release: bool
    def __init__(self, intent: _Optional[str] = ..., objectives: _Optional[_Iterable[_Union[Objective, _Mapping]]] = ..., priority: _Optional[float] = ..., z_score: _Optional[float] = ..., is_release: bool = ...) -> None: ...

class Constraints(_message.Message):
    __slots__ = ("min_replicas", "max_replicas", "min_cpu", "max_cpu", "min_memory", "max_memory", "extra_pods", "extra_cpu", "extra_memory", "extra_cpu_in_place", "extra_memory_in_place", "forbidden", "freeze", "cooldown_until", "explore", "min_total_cpu")
    class CooldownUntilEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    MIN_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    MAX_REPLICAS_FIELD_NUMBER: _ClassVar[int]
    MIN_CPU_FIELD_NUMBER: _ClassVar[int]
    MAX_CPU_FIELD_NUMBER: _ClassVar[int]
    MIN_MEMORY_FIELD_NUMBER: _ClassVar[int]
    MAX_MEMORY_FIELD_NUMBER: _ClassVar[int]
    EXTRA_PODS_FIELD_NUMBER: _ClassVar[int]
    EXTRA_CPU_FIELD_NUMBER: _ClassVar[int]
    EXTRA_MEMORY_FIELD_NUMBER: _ClassVar[int]
    EXTRA_CPU_IN_PLACE_FIELD_NUMBER: _ClassVar[int]
    EXTRA_MEMORY_IN_PLACE_FIELD_NUMBER: _ClassVar[int]
    FORBIDDEN_FIELD_NUMBER: _ClassVar[int]
    FREEZE_FIELD_NUMBER: _ClassVar[int]
    COOLDOWN_UNTIL_FIELD_NUMBER: _ClassVar[int]
    EXPLORE_FIELD_NUMBER: _ClassVar[int]
    MIN_TOTAL_CPU_FIELD_NUMBER: _ClassVar[int]
    min_replicas: int
    max_replicas: int
    min_cpu: float
    max_cpu: float
    min_memory: float
    max_memory: float
    extra_pods: float
    extra_cpu: float
    extra_memory: float
    extra_cpu_in_place: float
    extra_memory_in_place: float
    forbidden: _containers.RepeatedScalarFieldContainer[str]
    freeze: str
    cooldown_until: _containers.ScalarMap[str, float]
    explore: bool
    min_total_cpu: float
    def __init__(self, min_replicas: _Optional[int] = ..., max_replicas: _Optional[int] = ..., min_cpu: _Optional[float] = ..., max_cpu: _Optional[float] = ..., min_memory: _Optional[float] = ..., max_memory: _Optional[float] = ..., extra_pods: _Optional[float] = ..., extra_cpu: _Optional[float] = ..., extra_memory: _Optional[float] = ..., extra_cpu_in_place: _Optional[float] = ..., extra_memory_in_place: _Optional[float] = ..., forbidden: _Optional[_Iterable[str]] = ..., freeze: _Optional[str] = ..., cooldown_until: _Optional[_Mapping[str, float]] = ..., explore: bool = ..., min_total_cpu: _Optional[float] = ...) -> None: ...

class Action(_message.Message):
    __slots__ = ("actuator", "parameters", "after", "disruption")
    ACTUATOR_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    DISRUPTION_FIELD_NUMBER: _ClassVar[int]
    actuator: str
    parameters: _struct_pb2.Struct
    after: State
    disruption: float
    def __init__(self, actuator: _Optional[str] = ..., parameters: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., after: _Optional[_Union[State, _Mapping]] = ..., disruption: _Optional[float] = ...) -> None: ...

class CandidatesRequest(_message.Message):
    __slots__ = ("state", "goal", "constraints")
    STATE_FIELD_NUMBER: _ClassVar[int]
    GOAL_FIELD_NUMBER: _ClassVar[int]
    CONSTRAINTS_FIELD_NUMBER: _ClassVar[int]
    state: State
    goal: Goal
    constraints: Constraints
    def __init__(self, state: _Optional[_Union[State, _Mapping]] = ..., goal: _Optional[_Union[Goal, _Mapping]] = ..., constraints: _Optional[_Union[Constraints, _Mapping]] = ...) -> None: ...

class Target(_message.Message):
    __slots__ = ("kind", "namespace", "name")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    kind: str
    namespace: str
    name: str
    def __init__(self, kind: _Optional[str] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class PerformRequest(_message.Message):
    __slots__ = ("action", "target", "state")
    ACTION_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    action: Action
    target: Target
    state: State
    def __init__(self, action: _Optional[_Union[Action, _Mapping]] = ..., target: _Optional[_Union[Target, _Mapping]] = ..., state: _Optional[_Union[State, _Mapping]] = ...) -> None: ...

class PerformResponse(_message.Message):
    __slots__ = ("blocked_reason",)
    BLOCKED_REASON_FIELD_NUMBER: _ClassVar[int]
    blocked_reason: str
    def __init__(self, blocked_reason: _Optional[str] = ...) -> None: ...

class ObserveRequest(_message.Message):
    __slots__ = ("state", "goal", "target")
    STATE_FIELD_NUMBER: _ClassVar[int]
    GOAL_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    state: State
    goal: Goal
    target: Target
    def __init__(self, state: _Optional[_Union[State, _Mapping]] = ..., goal: _Optional[_Union[Goal, _Mapping]] = ..., target: _Optional[_Union[Target, _Mapping]] = ...) -> None: ...

class ObserveResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Effect(_message.Message):
    __slots__ = ("objective", "group", "data")
    OBJECTIVE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    objective: str
    group: str
    data: _struct_pb2.Struct
    def __init__(self, objective: _Optional[str] = ..., group: _Optional[str] = ..., data: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class PlanRequest(_message.Message):
    __slots__ = ("state", "goal", "constraints", "effects", "actuators", "now", "max_states")
    STATE_FIELD_NUMBER: _ClassVar[int]
    GOAL_FIELD_NUMBER: _ClassVar[int]
    CONSTRAINTS_FIELD_NUMBER: _ClassVar[int]
    EFFECTS_FIELD_NUMBER: _ClassVar[int]
    ACTUATORS_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    MAX_STATES_FIELD_NUMBER: _ClassVar[int]
    state: State
    goal: Goal
    constraints: Constraints
    effects: _containers.RepeatedCompositeFieldContainer[Effect]
    actuators: _containers.RepeatedCompositeFieldContainer[ActuatorSettings]
    now: float
    max_states: int
    def __init__(self, state: _Optional[_Union[State, _Mapping]] = ..., goal: _Optional[_Union[Goal, _Mapping]] = ..., constraints: _Optional[_Union[Constraints, _Mapping]] = ..., effects: _Optional[_Iterable[_Union[Effect, _Mapping]]] = ..., actuators: _Optional[_Iterable[_Union[ActuatorSettings, _Mapping]]] = ..., now: _Optional[float] = ..., max_states: _Optional[int] = ...) -> None: ...

class ActuatorSettings(_message.Message):
    __slots__ = ("name", "settings")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    settings: _struct_pb2.Struct
    def __init__(self, name: _Optional[str] = ..., settings: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ...) -> None: ...

class PlanResponse(_message.Message):
    __slots__ = ("purpose", "actions", "why", "outcomes", "cost", "saved", "utility", "is_optimal", "expanded_states")
    PURPOSE_FIELD_NUMBER: _ClassVar[int]
    ACTIONS_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    UTILITY_FIELD_NUMBER: _ClassVar[int]
    IS_OPTIMAL_FIELD_NUMBER: _ClassVar[int]
    EXPANDED_STATES_FIELD_NUMBER: _ClassVar[int]
    purpose: str
    actions: _containers.RepeatedCompositeFieldContainer[Action]
    why: _containers.RepeatedScalarFieldContainer[str]
    outcomes: _containers.RepeatedCompositeFieldContainer[Outcome]
    cost: float
    saved: float
    utility: float
    is_optimal: bool
    expanded_states: int
    def __init__(self, purpose: _Optional[str] = ..., actions: _Optional[_Iterable[_Union[Action, _Mapping]]] = ..., why: _Optional[_Iterable[str]] = ..., outcomes: _Optional[_Iterable[_Union[Outcome, _Mapping]]] = ..., cost: _Optional[float] = ..., saved: _Optional[float] = ..., utility: _Optional[float] = ..., is_optimal: bool = ..., expanded_states: _Optional[int] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("objective", "now", "expected", "low", "high", "wanted", "verdict")
    OBJECTIVE_FIELD_NUMBER: _ClassVar[int]
    NOW_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    LOW_FIELD_NUMBER: _ClassVar[int]
    HIGH_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    objective: str
    now: float
    expected: float
    low: float
    high: float
    wanted: float
    verdict: str
    def __init__(self, objective: _Optional[str] = ..., now: _Optional[float] = ..., expected: _Optional[float] = ..., low: _Optional[float] = ..., high: _Optional[float] = ..., wanted: _Optional[float] = ..., verdict: _Optional[str] = ...) -> None: ...

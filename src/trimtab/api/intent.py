"""Intent: what a service owner wants of a workload, as objectives instead of resources.

What an objective is measured by is a KPIProfile, so that one query serves many intents. How objectives are met
is the planner's business and is not said here.
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from trimtab.api.fields import Bool, Count, KindName, Name, Number, Text, TextPattern, Time, UniqueItems
from trimtab.api.kind import AGE_COLUMN, READY_COLUMN, Kind, KindNames, PrinterColumn
from trimtab.api.meta import Condition
from trimtab.api.model import ApiModel, StatusModel

ObjectiveName = Annotated[
    str, TextPattern("^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$", "one word, such as p99-latency", 63)
]
ProfileName = Annotated[
    str,
    TextPattern(
        "^([a-z0-9]([-a-z0-9]*[a-z0-9])?/)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
        "the name of a KPIProfile, such as p99latency, or monitoring/p99latency in another namespace",
        317,
    ),
]

Message = Annotated[str, Field(max_length=4096)]


class TargetRef(ApiModel):
    """The workload that an intent is about, in the intent's own namespace."""

    api_version: Annotated[
        str, TextPattern("^([-a-z0-9.]+/)?v[a-z0-9]+$", "an API version, such as apps/v1", 253)
    ] = "apps/v1"
    """The API version of the workload."""

    kind: KindName = "Deployment"
    """The kind of the workload: Deployment, StatefulSet, ReplicaSet, or any kind with a scale subresource."""

    name: Name
    """The name of the workload."""


class ObjectiveSpec(ApiModel):
    """One thing that is wanted of the workload."""

    name: ObjectiveName
    """What the objective is called in plans and in the status, such as p99-latency."""

    value: Number
    """The value to reach, in the unit of its KPIProfile."""

    measured_by: ProfileName
    """The KPIProfile that measures it, and says whether less is better."""

    tolerance: Annotated[Number, Field(ge=0, le=1)] = 0.0
    """How far past the value still counts as met, as a fraction of it: 0.1 of 10 ms is 11 ms."""


class IntentSpec(ApiModel):
    """What is wanted."""

    target_ref: TargetRef
    """The workload that the intent is about."""

    priority: Annotated[Number, Field(ge=0.01, le=1)] = 0.01
    """Who goes first where intents compete, from 0.01 to 1."""

    active: Bool = True
    """Whether the planner acts on it; when false it only reports."""

    objectives: Annotated[
        tuple[ObjectiveSpec, ...], Field(min_length=1, max_length=5), UniqueItems(("name",))
    ]
    """What is wanted, one to five objectives."""


class ObjectiveVerdict(StrEnum):
    """The verdict on an objective; an objective that cannot be measured is Unknown, never Met."""

    MET = "Met"
    MISSED = "Missed"
    UNKNOWN = "Unknown"


class ObjectiveStatus(StatusModel):
    """The status of one objective."""

    name: ObjectiveName
    """The name of the objective."""

    current: Number | None = None
    """The last measured value; omitted while it is unknown."""

    wanted: Number | None = None
    """The value to reach."""

    verdict: ObjectiveVerdict = ObjectiveVerdict.UNKNOWN
    """The verdict: Met, Missed or Unknown."""

    since: Time | None = None
    """The time since which the verdict is unchanged."""

    reason: Message | None = None
    """The reason why the value is unknown."""


class PlanPurpose(StrEnum):
    """The purpose of a plan."""

    REACH = "Reach"
    """The plan meets objectives that are missed."""
    RELEASE = "Release"
    """The plan releases resources that are not needed."""
    COMPROMISE = "Compromise"
    """The plan comes as close to the objectives as possible, because not all can be met."""
    YIELD = "Yield"
    """The plan gives resources to an Intent with a higher priority."""
    KEEP = "Keep"
    """The plan changes nothing."""


class ActionStatus(StatusModel):
    """One action of a plan."""

    actuator: Text
    """The actuator that executes the action, such as scaleOut or resizeCPU."""

    what: Message | None = None
    """A description of the action."""


class EffectStatus(StatusModel):
    """The effect of a plan on one objective."""

    objective: ObjectiveName
    """The name of the objective."""

    before: Number | None = None
    """The value when the plan was made."""

    expected: Number | None = None
    """The value that is expected after the plan."""

    low: Number | None = None
    """The lower end of the range in which the value is expected."""

    high: Number | None = None
    """The upper end of the range in which the value is expected."""

    observed: Number | None = None
    """The value that was measured after the actions, at evaluatedAt."""

    brought: Number | None = None
    """Deprecated: the name of observed in the first version."""


class PlanStatus(StatusModel):
    """The last plan, its reasons and its result."""

    purpose: PlanPurpose
    """The purpose of the plan: Reach, Release, Compromise, Yield or Keep."""

    made_at: Time
    """The time at which the plan was made."""

    planner: Text | None = None
    """The planner that made the plan."""

    actions: Annotated[tuple[ActionStatus, ...], Field(max_length=16)] = ()
    """The actions of the plan, in order."""

    why: Annotated[tuple[Message, ...], Field(max_length=16)] = ()
    """The reasons for the plan, each with its values."""

    effects: Annotated[tuple[EffectStatus, ...], Field(max_length=5), UniqueItems(("objective",))] = ()
    """The expected and observed effects on the objectives."""

    executed_at: Time | None = None
    """The time at which the actions were executed; omitted until then."""

    evaluated_at: Time | None = None
    """The time at which the effects of the actions were measured."""

    blocked_reason: Message | None = None
    """The reason why the actions, or some of them, were not executed."""

    # The API server prunes fields that the schema does not have. The operator reads the status back, so the names of
    # the first version stay in the schema until they have been rewritten.

    deeds: Annotated[tuple[ActionStatus, ...], Field(max_length=16)] = ()
    """Deprecated: the name of actions in the first version."""

    performed_at: Time | None = None
    """Deprecated: the name of executedAt in the first version."""

    judged_at: Time | None = None
    """Deprecated: the name of evaluatedAt in the first version."""

    withheld: Message | None = None
    """Deprecated: the name of blockedReason in the first version."""


class IntentStatus(StatusModel):
    """The observed status of an Intent."""

    observed_generation: Count | None = None
    """The generation of the spec that this status describes."""

    conditions: Annotated[tuple[Condition, ...], Field(max_length=16), UniqueItems(("type",))] = ()
    """The conditions Ready, Met and Acting, each with its reason."""

    objectives: Annotated[tuple[ObjectiveStatus, ...], Field(max_length=5), UniqueItems(("name",))] = ()
    """The status of each objective."""

    plan: PlanStatus | None = None
    """The last plan that had actions."""


class Intent(Kind):
    """What a service owner wants of a workload, as objectives instead of resources."""

    names = KindNames(
        plural="intents",
        short=("it",),
        namespaced=True,
        columns=(
            PrinterColumn("Kind", ".spec.targetRef.kind", priority=1),
            PrinterColumn("Target", ".spec.targetRef.name"),
            PrinterColumn("Priority", ".spec.priority", "number"),
            PrinterColumn("Active", ".spec.active", "boolean"),
            READY_COLUMN,
            PrinterColumn("Met", '.status.conditions[?(@.type=="Met")].status'),
            PrinterColumn("Plan", ".status.plan.purpose", priority=1),
            AGE_COLUMN,
        ),
    )

    kind: Literal["Intent"] = "Intent"
    spec: IntentSpec
    status: IntentStatus = IntentStatus()

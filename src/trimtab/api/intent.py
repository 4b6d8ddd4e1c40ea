"""Intent: objectives for a workload, instead of resources.

A KPIProfile measures an objective, so that one query serves many Intents. The planner decides how objectives are met.
"""

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

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
    """The target workload, in the namespace of the Intent."""

    api_version: Annotated[
        str, TextPattern("^([-a-z0-9.]+/)?v[a-z0-9]+$", "an API version, such as apps/v1", 253)
    ] = "apps/v1"
    """The API version of the workload."""

    kind: KindName = "Deployment"
    """The kind of the workload: Deployment, StatefulSet, ReplicaSet, or any kind with a scale subresource."""

    name: Name
    """The name of the workload."""


class ObjectiveSpec(ApiModel):
    """An objective for the workload."""

    name: ObjectiveName
    """The name of the objective in plans and in the status, such as p99-latency."""

    value: Number
    """The value to reach, in the unit of its KPIProfile."""

    measured_by: ProfileName
    """The KPIProfile that measures the objective and says whether less is better."""

    tolerance: Annotated[Number, Field(ge=0, le=1)] = 0.0
    """The deviation that still counts as met, as a fraction of the value: 0.1 of 10 ms allows 11 ms."""


class IntentSpec(ApiModel):
    """The objectives for a workload, and their priority."""

    target_ref: TargetRef
    """The target workload."""

    priority: Annotated[Number, Field(ge=0.01, le=1)] = 0.01
    """The priority among Intents that compete for capacity, from 0.01 to 1; the highest goes first."""

    active: Bool = True
    """Act on the Intent; if false, the objectives are only measured and reported."""

    objectives: Annotated[
        tuple[ObjectiveSpec, ...], Field(min_length=1, max_length=5), UniqueItems(("name",))
    ]
    """One to five objectives."""


class ObjectiveVerdict(StrEnum):
    """The verdict on an objective; an objective that cannot be measured is Unknown, never Met."""

    MET = "Met"
    MISSED = "Missed"
    UNKNOWN = "Unknown"


class ObjectiveStatus(StatusModel):
    """The status of one objective."""

    renamed: ClassVar = {"wanted": "target"}

    name: ObjectiveName
    """The name of the objective."""

    current: Number | None = None
    """The last measured value; omitted while it is unknown."""

    target: Number | None = None
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

    renamed: ClassVar = {"what": "description"}

    actuator: Text
    """The actuator that executes the action, such as scaleOut or resizeCPU."""

    description: Message | None = None
    """A description of the action."""


class EffectStatus(StatusModel):
    """The effect of a plan on one objective."""

    renamed: ClassVar = {"brought": "observed"}

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


class PlanStatus(StatusModel):
    """The last plan, its reasons and its result."""

    renamed: ClassVar = {
        "deeds": "actions",
        "why": "reasons",
        "performedAt": "executedAt",
        "judgedAt": "evaluatedAt",
        "withheld": "blockedReason",
    }

    purpose: PlanPurpose
    """The purpose of the plan: Reach, Release, Compromise, Yield or Keep."""

    made_at: Time
    """The time at which the plan was made."""

    planner: Text | None = None
    """The planner that made the plan."""

    actions: Annotated[tuple[ActionStatus, ...], Field(max_length=16)] = ()
    """The actions of the plan, in order."""

    reasons: Annotated[tuple[Message, ...], Field(max_length=16)] = ()
    """The reasons for the plan, each with its values."""

    effects: Annotated[tuple[EffectStatus, ...], Field(max_length=5), UniqueItems(("objective",))] = ()
    """The expected and observed effects on the objectives."""

    executed_at: Time | None = None
    """The time at which the actions were executed; omitted until then."""

    evaluated_at: Time | None = None
    """The time at which the effects of the actions were measured."""

    blocked_reason: Message | None = None
    """The reason why the actions, or some of them, were not executed."""


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
    """Objectives of a service owner for a workload, instead of resources."""

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

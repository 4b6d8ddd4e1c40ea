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
    """Whether an objective is met; what cannot be measured is Unknown, never Met."""

    MET = "Met"
    MISSED = "Missed"
    UNKNOWN = "Unknown"


class ObjectiveStatus(StatusModel):
    """Where one objective stands."""

    name: ObjectiveName
    """Which objective."""

    current: Number | None = None
    """What was last measured; left out when it is unknown."""

    wanted: Number | None = None
    """What is wanted."""

    verdict: ObjectiveVerdict = ObjectiveVerdict.UNKNOWN
    """Met, Missed or Unknown."""

    since: Time | None = None
    """Since when the verdict stands."""

    reason: Message | None = None
    """Why it is unknown."""


class PlanPurpose(StrEnum):
    """What a plan is for."""

    REACH = "Reach"
    """To meet what is missed."""
    RELEASE = "Release"
    """To give back what is not needed."""
    COMPROMISE = "Compromise"
    """To come as near as can be: not everything can be met."""
    YIELD = "Yield"
    """To give way to one that matters more."""
    KEEP = "Keep"
    """To leave all as it is."""


class ActionStatus(StatusModel):
    """One step of a plan."""

    actuator: Text
    """What is turned, such as scale or resize-cpu."""

    what: Message | None = None
    """What it does, in words."""


class EffectStatus(StatusModel):
    """What a plan means for one objective."""

    objective: ObjectiveName
    """Which objective."""

    before: Number | None = None
    """What it was when the plan was made."""

    expected: Number | None = None
    """What it is expected to become,"""

    low: Number | None = None
    """somewhere between this"""

    high: Number | None = None
    """and this."""

    brought: Number | None = None
    """What it was when the deeds were judged."""


class PlanStatus(StatusModel):
    """What was last planned, why, and what came of it."""

    purpose: PlanPurpose
    """Reach, Release, Compromise, Yield or Keep."""

    made_at: Time
    """When it was made."""

    planner: Text | None = None
    """Which planner made it."""

    deeds: Annotated[tuple[ActionStatus, ...], Field(max_length=16)] = ()
    """What is to be done, in order."""

    why: Annotated[tuple[Message, ...], Field(max_length=16)] = ()
    """The reasons, each with its values."""

    effects: Annotated[tuple[EffectStatus, ...], Field(max_length=5), UniqueItems(("objective",))] = ()
    """What it is expected to bring, and what it brought."""

    performed_at: Time | None = None
    """When its deeds were done; left out while they are not."""

    judged_at: Time | None = None
    """When it was seen what they brought."""

    withheld: Message | None = None
    """Why they are not done."""


class IntentStatus(StatusModel):
    """What was observed."""

    observed_generation: Count | None = None
    """The generation of the spec that this status is about."""

    conditions: Annotated[tuple[Condition, ...], Field(max_length=16), UniqueItems(("type",))] = ()
    """Ready, Met and others, each with its reason."""

    objectives: Annotated[tuple[ObjectiveStatus, ...], Field(max_length=5), UniqueItems(("name",))] = ()
    """Where each objective stands."""

    plan: PlanStatus | None = None
    """What was last planned."""


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

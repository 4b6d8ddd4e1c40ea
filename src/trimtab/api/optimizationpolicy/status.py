"""The status of a policy and its workloads."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from trimtab.api.fields import MAX_CONTAINERS, Count, KindName, Number, Text, Time, UniqueItems
from trimtab.api.meta import Condition
from trimtab.api.model import StatusModel
from trimtab.api.quantity import Quantity

MAX_LISTED_WORKLOADS = 500
"""The maximum number of workloads in a status."""


class NextStep(StatusModel):
    """The requests of one container after the next change."""

    cpu: Quantity | None = None
    """The CPU request."""

    memory: Quantity | None = None
    """The memory request."""


class ContainerRecommendation(StatusModel):
    """The recommended requests of one container."""

    container: Text
    """The name of the container."""

    cpu: Quantity | None = None
    """The recommended CPU request."""

    memory: Quantity | None = None
    """The recommended memory request."""

    next_step: NextStep | None = None
    """The requests that Auto would apply first if spec.changes limits one change; absent if one change is enough."""

    explanation: Annotated[str, Field(max_length=4096)] | None = None
    """The explanation of the recommendation."""


class WorkloadState(StrEnum):
    """The state of a workload."""

    PENDING = "Pending"
    RECOMMENDED = "Recommended"
    APPLYING = "Applying"
    APPLIED = "Applied"
    SKIPPED = "Skipped"
    REVERTED = "Reverted"
    FAILED = "Failed"


class WorkloadStatus(StatusModel):
    """The state and the recommendations of one workload."""

    kind: KindName
    """The kind of the workload."""

    namespace: Text
    """The namespace of the workload."""

    name: Text
    """The name of the workload."""

    status: WorkloadState
    """Pending, Recommended, Applying, Applied, Skipped, Reverted or Failed."""

    reason: Annotated[str, Field(max_length=4096)] | None = None
    """The reason why it was skipped, reverted, or failed, and the remedy; or how much history is still to be observed."""

    last_recommendation: Time | None = None
    """The time of the last recommendation; written when an amount changes, else once per reconciliationInterval."""

    last_applied: Time | None = None
    """The time when a recommendation was last applied."""

    recommendations: Annotated[
        tuple[ContainerRecommendation, ...], Field(max_length=MAX_CONTAINERS), UniqueItems(("container",))
    ] = ()
    """The recommendation for each container; only the first 64 are listed."""


class WorkloadCounts(StatusModel):
    """The numbers of workloads, including those that are not listed."""

    monitored: Count = 0
    """The number of workloads that the policy selects and no policy with a higher weight covers."""

    updated: Count = 0
    """The number of workloads that run with their recommendation."""

    skipped: Count = 0
    """The number of workloads that were skipped for a reason."""


class MonthlyCost(StatusModel):
    """The monthly cost of all workloads of a policy, to three digits, by the prices of the operator."""

    requested: Number | None = None
    """The cost of what the workloads request."""

    recommended: Number | None = None
    """The cost if all recommendations were applied."""

    saved: Number | None = None
    """The cost that applied changes took away; negative if they added some, absent if there are none."""

    currency: Text | None = None
    """The currency of all."""


class OptimizationPolicyStatus(StatusModel):
    """The observed state."""

    observed_generation: Count | None = None
    """The generation of the spec that this status is about."""

    strategy: Text | None = None
    """The name of the strategy that applies."""

    conditions: Annotated[tuple[Condition, ...], Field(max_length=16), UniqueItems(("type",))] = ()
    """Ready, MetricsAvailable and others, each with its reason."""

    counts: WorkloadCounts | None = None
    """The numbers of workloads that are monitored, updated and skipped."""

    monthly_cost: MonthlyCost | None = None
    """The cost of what the workloads request, and of what is recommended."""

    workloads: Annotated[
        tuple[WorkloadStatus, ...],
        Field(max_length=MAX_LISTED_WORKLOADS),
        UniqueItems(("kind", "namespace", "name")),
    ] = ()
    """The workloads, those that need attention first; counts has the totals."""

"""What a policy tells of its workloads."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from trimtab.api.fields import MAX_CONTAINERS, Count, KindName, Text, Time, UniqueItems
from trimtab.api.meta import Condition
from trimtab.api.model import StatusModel
from trimtab.api.quantity import Quantity

MAX_LISTED_WORKLOADS = 500
"""Workloads in a status."""


class NextStep(StatusModel):
    """The requests of one container after the next change."""

    cpu: Quantity | None = None
    """The CPU request."""

    memory: Quantity | None = None
    """The memory request."""


class ContainerRecommendation(StatusModel):
    """What one container should ask for."""

    container: Text
    """The name of the container."""

    cpu: Quantity | None = None
    """The CPU request that it should end up with."""

    memory: Quantity | None = None
    """The memory request that it should end up with."""

    next_step: NextStep | None = None
    """What Auto would apply first, where spec.changes limits how far one change may go; absent where one change gets there."""

    explanation: Annotated[str, Field(max_length=4096)] | None = None
    """How these numbers came about."""


class WorkloadState(StrEnum):
    """How far a workload has come."""

    PENDING = "Pending"
    RECOMMENDED = "Recommended"
    APPLYING = "Applying"
    APPLIED = "Applied"
    SKIPPED = "Skipped"
    REVERTED = "Reverted"
    FAILED = "Failed"


class WorkloadStatus(StatusModel):
    """What was found and done for one workload."""

    kind: KindName
    """The kind of the workload."""

    namespace: Text
    """The namespace of the workload."""

    name: Text
    """The name of the workload."""

    status: WorkloadState
    """Pending, Recommended, Applying, Applied, Skipped, Reverted or Failed."""

    reason: Annotated[str, Field(max_length=4096)] | None = None
    """Why it was skipped, reverted, or failed, and what to do about it."""

    last_recommendation: Time | None = None
    """When the recommendation was last made."""

    last_applied: Time | None = None
    """When a recommendation was last put into effect."""

    recommendations: Annotated[
        tuple[ContainerRecommendation, ...], Field(max_length=MAX_CONTAINERS), UniqueItems(("container",))
    ] = ()
    """The recommendation for each container, or for the first of very many."""


class WorkloadCounts(StatusModel):
    """How many workloads, also those that are too many to be listed."""

    monitored: Count = 0
    """Workloads that the policy selects and no heavier policy takes."""

    updated: Count = 0
    """Workloads that run with their recommendation."""

    skipped: Count = 0
    """Workloads that were left alone for a reason."""


class OptimizationPolicyStatus(StatusModel):
    """What was observed."""

    observed_generation: Count | None = None
    """The generation of the spec that this status is about."""

    conditions: Annotated[tuple[Condition, ...], Field(max_length=16), UniqueItems(("type",))] = ()
    """Ready, MetricsAvailable and others, each with its reason."""

    counts: WorkloadCounts | None = None
    """How many workloads are monitored, updated and skipped."""

    workloads: Annotated[
        tuple[WorkloadStatus, ...],
        Field(max_length=MAX_LISTED_WORKLOADS),
        UniqueItems(("kind", "namespace", "name")),
    ] = ()
    """The workloads, those that need attention first; counts tells how many there are in all."""

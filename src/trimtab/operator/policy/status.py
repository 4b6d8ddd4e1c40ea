"""What a policy's status says: pure, from what became of each of its workloads.

A status is bounded however many workloads and containers there are, for one that the API server refuses tells of none:
the counts are of all, the list holds those that need attention first, and the explanations are in it while there are
few; those of the others are on the workloads themselves and in the store. Times move only when what they are about
does, so that an unchanged status is not written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from trimtab.api.fields import MAX_CONTAINERS, format_time
from trimtab.api.optimizationpolicy import MAX_LISTED_WORKLOADS, PolicyMode, WorkloadState
from trimtab.api.quantity import Quantity
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.kinds.policies import Policy
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.operator.policy.matching import OverlapStats
from trimtab.plural import pluralize
from trimtab.sizing.recommendation import Recommendation

MAX_EXPLAINED_CONTAINERS = 64
"""With more containers than these in all, the explanations are left out."""
MAX_LIST_BYTES = 500_000
"""Bytes of the list. What etcd takes is three times that, and to note who set which field takes as much again."""
_MAX_REASON_LENGTH = 4096
_MAX_LISTED = 5
"""Policies that are named in a message."""

_INVALID, _UNKNOWN, _MISSING = "PolicyInvalid", "UsageUnknown", "SamplesMissing"
_PROBLEM_REASONS = {_INVALID, _UNKNOWN, _MISSING}

_ATTENTION_ORDER = {
    state: place
    for place, state in enumerate(
        (
            WorkloadState.FAILED,
            WorkloadState.REVERTED,
            WorkloadState.APPLYING,
            WorkloadState.SKIPPED,
            WorkloadState.PENDING,
            WorkloadState.RECOMMENDED,
            WorkloadState.APPLIED,
        )
    )
}

Document = dict[str, Any]


class SkipReason(StrEnum):
    """Why a workload is left alone, in a word; the reason says it in many."""

    POLICY_INVALID = "PolicyInvalid"
    DISABLED = "Disabled"
    NO_RECOMMENDATION = "NoRecommendation"
    CANNOT_APPLY = "CannotApply"


@dataclass(frozen=True, slots=True)
class WorkloadOutcome:
    """What became of one workload at the last look."""

    state: WorkloadState
    reason: str = ""
    recommendations: tuple[Recommendation, ...] = ()
    recommended_at: float | None = None
    """When these numbers were first recommended."""
    applied_at: float | None = None
    skip_reason: SkipReason = SkipReason.CANNOT_APPLY
    """Where that is its state."""


def have_same_targets(some: Sequence[Recommendation], others: Sequence[Recommendation]) -> bool:
    """Whether they say the same, apart from why."""

    def what(found: Sequence[Recommendation]) -> list[object]:
        return [(each.container, each.resources, each.target, each.no_change_reason) for each in found]

    return what(some) == what(others)


@dataclass(frozen=True, slots=True)
class StatusContext:
    """What holds for all policies at a time."""

    now: float
    usage_error: str = ""
    source: str = ""
    first_sample_at: float | None = None
    """The time of the first sample that was learned from; None where there is none yet."""
    unsampled: tuple[str, ...] = ()
    """The policy's containers that run, but have no samples."""
    dry_run: bool = False
    config_problem: str = ""
    """Why the operator's configuration file was refused; empty where it holds."""


def build_policy_status(
    policy: Policy,
    outcomes: Mapping[WorkloadKey, WorkloadOutcome],
    *,
    overlap: OverlapStats,
    problem: str,
    context: StatusContext,
    before: Document,
) -> Document:
    """The status of a policy; `before` is the one that it has, for the times in it."""
    states = [outcome.state for outcome in outcomes.values()]
    listed = sorted(outcomes.items(), key=lambda item: (_ATTENTION_ORDER[item[1].state], item[0]))[
        :MAX_LISTED_WORKLOADS
    ]
    explained = sum(len(outcome.recommendations) for outcome in outcomes.values()) <= MAX_EXPLAINED_CONTAINERS
    conditions = _build_conditions(policy, outcomes, overlap=overlap, problem=problem, context=context)
    known = {_workload_key(entry): entry for entry in before.get("workloads") or ()}
    return {
        "observedGeneration": policy.generation,
        "conditions": _set_transition_times(conditions, before.get("conditions") or (), policy, context.now),
        "counts": {
            "monitored": len(outcomes),
            "updated": states.count(WorkloadState.APPLIED),
            "skipped": states.count(WorkloadState.SKIPPED),
        },
        "workloads": _truncate_to_size(
            _keep_history(known.get(key), _build_workload(key, outcome, explained=explained), outcome)
            for key, outcome in listed
        ),
    }


def _truncate_to_size(entries: Iterable[Document]) -> list[Document]:
    """As many of the first as there is room for."""
    found, size = [], 0
    for entry in entries:
        size += len(msgspec.json.encode(entry))
        if size > MAX_LIST_BYTES:
            break
        found.append(entry)
    return found


def find_new_problems(before: Document, now: Document) -> list[Document]:
    """The conditions that tell of a trouble, and did not before."""

    def troubles(status: Document) -> dict[tuple[str, str], Document]:
        found = {(each["type"], each["reason"]): each for each in status.get("conditions") or ()}
        return {name: each for name, each in found.items() if each["reason"] in _PROBLEM_REASONS}

    known = troubles(before)
    return [each for name, each in troubles(now).items() if name not in known]


def _build_conditions(
    policy: Policy,
    outcomes: Mapping[WorkloadKey, WorkloadOutcome],
    *,
    overlap: OverlapStats,
    problem: str,
    context: StatusContext,
) -> list[Document]:
    problem = policy.problem or problem
    if problem:
        ready = _condition("Ready", holds=False, reason=_INVALID, message=problem)
    elif policy.spec.mode is PolicyMode.DISABLED:
        ready = _condition("Ready", holds=False, reason="Disabled", message="The mode is Disabled.")
    else:
        ready = _condition(
            "Ready", holds=True, reason="PolicyValid", message=f"Workloads looked after: {len(outcomes)}."
        )
    found = [ready, _metrics_condition(context)]
    if overlap.won_against or overlap.lost_to:
        found.append(
            _condition("Overlaps", holds=True, reason="OtherPolicies", message=_format_overlaps(overlap))
        )
    if context.dry_run:
        message = "The operator runs with dryRun: nothing is changed, whatever the mode."
        found.append(_condition("DryRun", holds=True, reason="Configured", message=message))
    if context.config_problem:
        message = (
            f"The operator's configuration was refused, and the last good one holds: {context.config_problem}"
        )
        found.append(_condition("ConfigurationRefused", holds=True, reason="Invalid", message=message))
    return found


def _metrics_condition(context: StatusContext) -> Document:
    """Whether usage can be read, since when it is known, and which containers it lacks."""
    if context.usage_error:
        return _condition("MetricsAvailable", holds=False, reason=_UNKNOWN, message=context.usage_error)
    since = (
        f", known since {format_time(context.first_sample_at)}" if context.first_sample_at is not None else ""
    )
    message, reason = f"Usage is read from {context.source}{since}.", "UsageRead"
    if context.unsampled:
        named = ", ".join(context.unsampled[:_MAX_LISTED])
        more = len(context.unsampled) - _MAX_LISTED
        message += (
            f" {pluralize(len(context.unsampled), 'container')} that run have no samples of the last 15 minutes and are not"
            f" sized: {named}{f' and {more} more' if more > 0 else ''}. See that their nodes are scraped."
        )
        reason = _MISSING
    return _condition("MetricsAvailable", holds=True, reason=reason, message=message)


def _condition(type_: str, *, holds: bool, reason: str, message: str) -> Document:
    said = message[:_MAX_REASON_LENGTH]
    return {"type": type_, "status": "True" if holds else "False", "reason": reason, "message": said}


def _format_overlaps(overlap: OverlapStats) -> str:
    parts = [
        f"{count} workloads that it selects go to {policy}" for policy, count in _top_counts(overlap.lost_to)
    ]
    parts += [
        f"{count} of its workloads are selected by {policy} too"
        for policy, count in _top_counts(overlap.won_against)
    ]
    return "; ".join(parts) + ". The heaviest weight wins, of equals the first by name."


def _top_counts(counts: Mapping[Policy, int]) -> list[tuple[Policy, int]]:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))
    return ordered[:_MAX_LISTED]


def _set_transition_times(
    conditions: Sequence[Document], before: Iterable[Document], policy: Policy, now: float
) -> list[Document]:
    """With the time at which each last changed."""
    known = {each["type"]: each for each in before}
    found = []
    for condition in conditions:
        old = known.get(condition["type"])
        same = old is not None and old["status"] == condition["status"]
        since = old["lastTransitionTime"] if old and same else format_time(now)
        found.append({**condition, "lastTransitionTime": since, "observedGeneration": policy.generation})
    return found


def _build_workload(key: WorkloadKey, outcome: WorkloadOutcome, *, explained: bool) -> Document:
    found: Document = {
        "kind": key.kind,
        "namespace": key.namespace,
        "name": key.name,
        "status": outcome.state.value,
        "recommendations": [
            _build_recommendation(each, explained=explained)
            for each in outcome.recommendations[:MAX_CONTAINERS]
        ],
    }
    if outcome.reason:
        found["reason"] = outcome.reason[:_MAX_REASON_LENGTH]
    if outcome.recommended_at is not None:
        found["lastRecommendation"] = format_time(outcome.recommended_at)
    if outcome.applied_at is not None:
        found["lastApplied"] = format_time(outcome.applied_at)
    return found


def _workload_key(entry: Document) -> WorkloadKey:
    return WorkloadKey(entry["kind"], entry["namespace"], entry["name"])


def _keep_history(old: Document | None, new: Document, outcome: WorkloadOutcome) -> Document:
    """With what a restart must not lose: the history of a workload that is looked at no more, and since when what is
    still recommended was.
    """
    if old is None:
        return new
    if outcome.skip_reason is SkipReason.DISABLED and not outcome.recommendations:
        return {**old, **{field: new[field] for field in ("status", "reason")}}
    if "lastRecommendation" in new and _recommended_amounts(old) == _recommended_amounts(new):
        return {**new, "lastRecommendation": old.get("lastRecommendation", new["lastRecommendation"])}
    return new


def _recommended_amounts(entry: Document) -> list[tuple[Any, ...]]:
    """What is recommended, apart from why."""
    return [
        (each["container"], each.get("cpu"), each.get("memory"), each.get("nextStep"))
        for each in entry.get("recommendations") or ()
    ]


def _build_recommendation(recommendation: Recommendation, *, explained: bool) -> Document:
    found: Document = {"container": recommendation.container, **_format_requests(recommendation.target)}
    if recommendation.target != recommendation.resources:
        found["nextStep"] = _format_requests(recommendation.resources)
    if explained and recommendation.text:
        found["explanation"] = recommendation.text
    return found


def _format_requests(resources: Resources) -> Document:
    found: Document = {}
    if resources.cpu_request is not None:
        found["cpu"] = str(Quantity.from_millicores(resources.cpu_request))
    if resources.memory_request is not None:
        found["memory"] = str(Quantity.from_bytes(resources.memory_request))
    return found

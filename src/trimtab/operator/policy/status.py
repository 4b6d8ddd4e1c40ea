"""Build a policy's status from the outcomes of its workloads. Pure.

The size of a status is bounded for any number of workloads, because the API server would reject a larger one as a whole:
the counts cover all workloads, the list starts with those that need attention, and explanations are included while there
are few; the others are on the workloads themselves and in the store. Timestamps of conditions change only together with
what they describe, and those of recommendations once per `refresh_interval`, so that an unchanged status is not written.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from trimtab.actuation.resources import to_manifest
from trimtab.api.fields import MAX_CONTAINERS, format_time
from trimtab.api.meta import Document, build_condition, set_conditions
from trimtab.api.optimizationpolicy import MAX_LISTED_WORKLOADS, PolicyMode, WorkloadState
from trimtab.kube.cache.informer_set import GRANT_GET, GRANT_RIGHTS
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.kinds.policies import Policy
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.operator.policy.resolver import EffectivePolicy
from trimtab.operator.policy.validation import describe_ignored_fields
from trimtab.operator.policy_matching import OverlapStats
from trimtab.plural import pluralize
from trimtab.sizing.evidence import NO_SHIFTS, UsageShift
from trimtab.sizing.recommendation import Recommendation

MAX_EXPLAINED_CONTAINERS = 64
"""The total number of containers above which explanations are left out."""
MAX_LIST_BYTES = 500_000
"""The maximum size of the list in bytes: a third of etcd's limit, since managed fields take as much again."""
_MAX_REASON_LENGTH = 4096
_MAX_LISTED = 5
"""The maximum number of policies named in a message."""

_INVALID, _UNKNOWN, _MISSING, _FORBIDDEN = "PolicyInvalid", "UsageUnknown", "SamplesMissing", "ReadForbidden"
_PROBLEM_REASONS = {_INVALID, _UNKNOWN, _MISSING, _FORBIDDEN}

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


class SkipReason(StrEnum):
    """The category of the reason why a workload is skipped; `WorkloadOutcome.reason` has the details."""

    POLICY_INVALID = "PolicyInvalid"
    DISABLED = "Disabled"
    NO_RECOMMENDATION = "NoRecommendation"
    CANNOT_APPLY = "CannotApply"


@dataclass(frozen=True, slots=True)
class WorkloadOutcome:
    """The outcome of a workload's last reconcile."""

    state: WorkloadState
    reason: str = ""
    recommendations: tuple[Recommendation, ...] = ()
    recommended_at: float | None = None
    """The time of the last recommendation."""
    applied_at: float | None = None
    skip_reason: SkipReason = SkipReason.CANNOT_APPLY
    """The category of the reason, if the state is Skipped."""
    usage_shifts: Mapping[str, UsageShift] = field(default_factory=lambda: NO_SHIFTS)
    """The sudden changes of usage patterns in effect, by container."""
    explained_under: EffectivePolicy | None = None
    """The policy under which the recommendations were explained."""


@dataclass(frozen=True, slots=True)
class StatusContext:
    """The circumstances that the status of a policy reports."""

    now: float
    usage_error: str = ""
    source: str = ""
    first_sample_at: float | None = None
    """The time of the first ingested sample; None if there is none yet."""
    unsampled: tuple[str, ...] = ()
    """The policy's running containers that have no samples."""
    forbidden: tuple[str, ...] = ()
    """The kinds that the operator may not read, each with the server's message."""
    dry_run: bool = False
    stop_reason: str = ""
    """The description of the emergency stop in effect; empty if there is none."""
    stop_problem: str = ""
    """The reason why the ConfigMap of an emergency stop cannot be read; empty if there is none."""
    refresh_interval: float = math.inf
    """Seconds after which times of unchanged recommendations are brought up to date; more often, each reconcile would
    write the whole status."""
    config_problem: str = ""
    """The reason why the operator's configuration file was rejected; empty if it was not."""
    monthly_cost: Document | None = None
    """The cost of the policy's workloads; None while it is unknown."""


def build_policy_status(
    policy: Policy,
    outcomes: Mapping[WorkloadKey, WorkloadOutcome],
    *,
    overlap: OverlapStats,
    problem: str,
    context: StatusContext,
    before: Document,
) -> Document:
    """Return the status of a policy; `before` is the present one, whose timestamps are kept."""
    states = [outcome.state for outcome in outcomes.values()]
    listed = sorted(outcomes.items(), key=lambda item: (_ATTENTION_ORDER[item[1].state], item[0]))[
        :MAX_LISTED_WORKLOADS
    ]
    explained = sum(len(outcome.recommendations) for outcome in outcomes.values()) <= MAX_EXPLAINED_CONTAINERS
    conditions = _build_conditions(policy, outcomes, overlap=overlap, problem=problem, context=context)
    known = {_workload_key(entry): entry for entry in before.get("workloads") or ()}
    is_refresh_due = any(
        outcome.recommended_at is not None
        and key in known
        and outcome.recommended_at - _recommended_at(known[key]) >= context.refresh_interval
        for key, outcome in listed
    )
    return {
        "observedGeneration": policy.generation,
        "strategy": policy.spec.strategy_name,
        "conditions": set_conditions(
            conditions, before.get("conditions") or (), now=context.now, generation=policy.generation
        ),
        "counts": {
            "monitored": len(outcomes),
            "updated": states.count(WorkloadState.APPLIED),
            "skipped": states.count(WorkloadState.SKIPPED),
        },
        **({"monthlyCost": context.monthly_cost} if context.monthly_cost else {}),
        "workloads": _truncate_to_size(
            _keep_history(
                known.get(key),
                _build_workload(key, outcome, explained=explained),
                outcome,
                keeps_time=not is_refresh_due,
            )
            for key, outcome in listed
        ),
    }


def _truncate_to_size(entries: Iterable[Document]) -> list[Document]:
    """Return the first entries that fit into the size limit."""
    found, size = [], 0
    for entry in entries:
        size += len(msgspec.json.encode(entry))
        if size > MAX_LIST_BYTES:
            break
        found.append(entry)
    return found


def list_forbidden(errors_by_resource: Mapping[str, str]) -> tuple[str, ...]:
    """List the resources that the operator may not read, each with the server's message."""
    return tuple(
        f"{resource}: {why}"
        for resource, why in sorted(errors_by_resource.items())
        if GRANT_RIGHTS in why or GRANT_GET in why
    )


def find_new_problems(before: Document, now: Document) -> list[Document]:
    """Return the conditions that report a problem and did not before."""

    def problems(status: Document) -> dict[tuple[str, str], Document]:
        found = {(each["type"], each["reason"]): each for each in status.get("conditions") or ()}
        return {name: each for name, each in found.items() if each["reason"] in _PROBLEM_REASONS}

    known = problems(before)
    return [each for name, each in problems(now).items() if name not in known]


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
        ready = build_condition("Ready", holds=False, reason=_INVALID, message=problem)
    elif policy.spec.mode is PolicyMode.DISABLED:
        ready = build_condition("Ready", holds=False, reason="Disabled", message="The mode is Disabled.")
    else:
        ready = build_condition(
            "Ready",
            holds=True,
            reason="PolicyValid",
            message=f"The policy sizes {pluralize(len(outcomes), 'workload')}.",
        )
    found = [ready, _metrics_condition(context)]
    if overlap.won_against or overlap.lost_to:
        found.append(
            build_condition("Overlaps", holds=True, reason="OtherPolicies", message=_format_overlaps(overlap))
        )
    if context.forbidden:
        message = f"Workloads may be missing here, because the operator may not read: {'; '.join(context.forbidden)}."
        found.append(build_condition("PermissionsMissing", holds=True, reason=_FORBIDDEN, message=message))
    if policy.deprecated:
        message = "; ".join(policy.deprecated)
        found.append(
            build_condition("DeprecatedFields", holds=True, reason="FieldsRenamed", message=f"{message}.")
        )
    if ignored := tuple(describe_ignored_fields(policy.spec)):
        found.append(
            build_condition("FieldsIgnored", holds=True, reason="StrategyIgnores", message="; ".join(ignored))
        )
    found.extend(_list_restrictions(context))
    return found


def _list_restrictions(context: StatusContext) -> Iterator[Document]:
    """List the conditions about what keeps the operator from changes, or its configuration from taking effect."""
    if context.stop_reason:
        message = f"{context.stop_reason}. Until then nothing is changed, whatever the mode."
        yield build_condition("Stopped", holds=True, reason="EmergencyStop", message=message)
    if context.stop_problem:
        message = (
            f"{context.stop_problem}. Until then, what was read last holds, and a new leader changes nothing."
        )
        yield build_condition("EmergencyStopUnreadable", holds=True, reason=_FORBIDDEN, message=message)
    if context.dry_run:
        message = "The operator runs with dryRun: nothing is changed, whatever the mode."
        yield build_condition("DryRun", holds=True, reason="Configured", message=message)
    if context.config_problem:
        message = f"The operator rejected its configuration file and keeps the last valid one: {context.config_problem}"
        yield build_condition("ConfigurationRejected", holds=True, reason="Invalid", message=message)


def _metrics_condition(context: StatusContext) -> Document:
    """Build the MetricsAvailable condition: the source, the first sample, and the containers without samples."""
    if context.usage_error:
        return build_condition("MetricsAvailable", holds=False, reason=_UNKNOWN, message=context.usage_error)
    since = (
        f", known since {format_time(context.first_sample_at)}" if context.first_sample_at is not None else ""
    )
    message, reason = f"Usage is read from {context.source}{since}.", "UsageRead"
    if context.unsampled:
        named = ", ".join(context.unsampled[:_MAX_LISTED])
        more = len(context.unsampled) - _MAX_LISTED
        message += (
            f" {pluralize(len(context.unsampled), 'container')} without samples in the last 15 minutes, not sized:"
            f" {named}{f' and {more} more' if more > 0 else ''}. Check that their nodes are scraped."
        )
        reason = _MISSING
    return build_condition("MetricsAvailable", holds=True, reason=reason, message=message)


def _format_overlaps(overlap: OverlapStats) -> str:
    parts = [
        f"{pluralize(count, 'workload')} selected by this policy: sized by {policy}"
        for policy, count in _top_counts(overlap.lost_to)
    ]
    parts += [
        f"{count} of its workloads are selected by {policy} too"
        for policy, count in _top_counts(overlap.won_against)
    ]
    return (
        "; ".join(parts)
        + ". The highest weight wins; among equals, one in the operator's namespace, then the first by name."
    )


def _top_counts(counts: Mapping[Policy, int]) -> list[tuple[Policy, int]]:
    ordered = sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))
    return ordered[:_MAX_LISTED]


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


def _recommended_at(entry: Document) -> float:
    """Return the time of the recommendation in a status; infinity if it has none, which is never outdated."""
    found = entry.get("lastRecommendation")
    return datetime.fromisoformat(found).timestamp() if found else math.inf


def _keep_history(
    old: Document | None, new: Document, outcome: WorkloadOutcome, *, keeps_time: bool
) -> Document:
    """Keep the history of a workload that is no longer reconciled, and until the next refresh the time of an unchanged
    recommendation.
    """
    if old is None:
        return new
    if outcome.skip_reason is SkipReason.DISABLED and not outcome.recommendations:
        return {**old, **{field: new[field] for field in ("status", "reason")}}
    if keeps_time and "lastRecommendation" in new and _recommended_amounts(old) == _recommended_amounts(new):
        return {**new, "lastRecommendation": old.get("lastRecommendation", new["lastRecommendation"])}
    return new


def _recommended_amounts(entry: Document) -> list[tuple[Any, ...]]:
    """Return the recommended amounts, without explanations."""
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
    requests: Document = to_manifest(resources).get("requests", {})
    return requests

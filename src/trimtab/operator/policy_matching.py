"""Match policies to workloads. Pure, from policies, namespaces and labels.

A policy in the operator's own namespace, such as `trimtab-system`, may select workloads in every namespace. A policy in
any other namespace selects workloads of its own namespace only, so that permission to write policies in a namespace
covers that namespace and no other. Its namespace selector and its allow and deny lists can restrict that, never extend
it.

Of all policies that select a workload the one with the highest weight wins; among equals, one in the operator's own
namespace, then the first by namespace and name. The mode is ignored: a policy with mode Disabled keeps its workloads
from all policies of lower weight. From `reserved_weight` on, weights are kept for policies in the operator's own
namespace: others count as just below it, or a tenant could overrule the administrator. A policy that cannot be read
selects nothing.

Each policy is indexed by its rarest requirement, a namespace or a label, so that a workload is compared with the few
policies that might select it instead of thousands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from trimtab.api.meta import LabelSelector, LabelSelectorOperator
from trimtab.kube.cache.projection import Labels
from trimtab.kube.kinds.policies import Policy
from trimtab.kube.kinds.workloads import Workload, qualify_kind

Label = tuple[str, str]
_IndexField = Literal["namespace", "namespace_label", "workload_label"]
_IndexTerms = list[tuple[_IndexField, str | Label]]
"""Alternatives of which a workload or its namespace must have one. It has at most one, as label keys are unique."""

MatchingPolicies = tuple[Policy, ...]
"""The policies that select a workload, the winning one first; empty if none does."""


@dataclass(slots=True)
class OverlapStats:
    """The overlaps of one policy with others, for its status."""

    won: int = 0
    """The number of workloads that the policy wins."""
    won_against: Counter[Policy] = field(default_factory=Counter)
    """The number of these that each other policy selects as well."""
    lost_to: Counter[Policy] = field(default_factory=Counter)
    """The number of workloads that the policy selects but loses to each other policy."""


class PolicyMatcher:
    """Matches all policies against all namespaces; replaced whenever one of them changes."""

    def __init__(
        self,
        policies: Iterable[Policy],
        *,
        namespaces: Mapping[str, Labels],
        operator_namespace: str,
        reserved_weight: int | None = None,
    ) -> None:
        self.reserved_weight = reserved_weight

        def precedence(policy: Policy) -> tuple[int, bool, str, str]:
            weight, is_foreign = policy.spec.weight, policy.namespace != operator_namespace
            # A stored policy of a tenant could otherwise overrule the administrator's: admission checks only what is
            # written now.
            if is_foreign and reserved_weight is not None:
                weight = min(weight, reserved_weight - 1)
            return -weight, is_foreign, policy.namespace, policy.name

        ranked = sorted((policy for policy in policies if not policy.problem), key=precedence)
        self._ranks = {policy: place for place, policy in enumerate(ranked)}
        self.reads_namespace_labels = any(
            policy.spec.selector.namespace_selector is not None for policy in ranked
        )
        """True if some policy selects by the labels of namespaces."""
        self._namespaces = namespaces
        self._operator_namespace = operator_namespace
        self._index = _PolicyIndex((policy, _index_terms(policy, operator_namespace)) for policy in ranked)
        self._groups: dict[tuple[str, str], _WorkloadGroup] = {}

    def match(self, workload: Workload) -> MatchingPolicies:
        """Return the policies that select a workload, the winning one first."""
        kind, namespace = qualify_kind(workload.resource.kind, workload.resource.group), workload.namespace
        group = self._groups.get((namespace, kind))
        if group is None:
            group = self._groups[namespace, kind] = self._build_group(namespace, kind)
        labels = dict(workload.labels)
        candidates = list(group.conditional)
        for label in workload.labels:
            candidates += filter(group.admits, self._index.workload_label.get(label, ()))
        found = [policy for policy in candidates if _matches(policy.spec.selector.workload_selector, labels)]
        # The shared tuple: most workloads of a group match the same policies, and overlaps are counted once for each
        # tuple.
        if not found:
            return group.unconditional
        return tuple(sorted([*group.unconditional, *found], key=self._ranks.__getitem__))

    def _build_group(self, namespace: str, kind: str) -> _WorkloadGroup:
        labels = self._namespaces.get(namespace, ())
        group = _WorkloadGroup(
            namespace, kind, dict(labels), reached_from=(namespace, self._operator_namespace)
        )
        index = self._index
        candidates = [*index.unrestricted, *index.namespace.get(namespace, ())]
        for label in labels:
            candidates += index.namespace_label.get(label, ())
        admitted = sorted(filter(group.admits, candidates), key=self._ranks.__getitem__)
        group.unconditional = tuple(
            policy for policy in admitted if policy.spec.selector.workload_selector is None
        )
        group.conditional = tuple(
            policy for policy in admitted if policy.spec.selector.workload_selector is not None
        )
        return group


def count_overlaps(matcher: PolicyMatcher, workloads: Iterable[Workload]) -> dict[Policy, OverlapStats]:
    """Return the overlaps of each policy that selects any workload."""
    counted: Counter[MatchingPolicies] = Counter(matcher.match(workload) for workload in workloads)
    found: dict[Policy, OverlapStats] = {}
    for matching, count in counted.items():
        for policy in matching:
            found.setdefault(policy, OverlapStats())
        if matching:
            winner, *losers = matching
            found[winner].won += count
            for loser in losers:
                found[winner].won_against[loser] += count
                found[loser].lost_to[winner] += count
    return found


@dataclass(slots=True)
class _WorkloadGroup:
    """The workloads of one kind in one namespace."""

    namespace: str
    kind: str
    labels: dict[str, str]
    reached_from: tuple[str, str]
    unconditional: MatchingPolicies = ()
    """The policies that select every workload of the group."""
    conditional: MatchingPolicies = ()
    """The policies that may select a workload of the group by its labels."""

    def admits(self, policy: Policy) -> bool:
        """Return True if a policy can select workloads of this group."""
        selector = policy.spec.selector
        return (
            policy.namespace in self.reached_from
            and selector.namespaces.matches(self.namespace)
            and selector.workload_types.matches(self.kind)
            and _matches(selector.namespace_selector, self.labels)
        )


class _PolicyIndex:
    """Policies, indexed by their rarest requirement."""

    def __init__(self, policies: Iterable[tuple[Policy, list[_IndexTerms]]]) -> None:
        self.unrestricted: list[Policy] = []
        self.namespace: dict[str, list[Policy]] = {}
        self.namespace_label: dict[Label, list[Policy]] = {}
        self.workload_label: dict[Label, list[Policy]] = {}
        every = list(policies)
        popularity = Counter(one for _, terms in every for each in terms for one in each)
        for policy, terms in every:
            if not terms:
                self.unrestricted.append(policy)
                continue
            # Under its rarest requirement a policy is looked at for the fewest workloads; under a label that all
            # have, for each.
            for index_field, value in min(terms, key=lambda each: sum(popularity[one] for one in each)):
                getattr(self, index_field).setdefault(value, []).append(policy)


def _matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    return selector is None or selector.matches(labels)


def _index_terms(policy: Policy, operator_namespace: str) -> list[_IndexTerms]:
    """Return the requirements of a policy for the workloads that it selects."""
    selector = policy.spec.selector
    terms = _label_terms("namespace_label", selector.namespace_selector)
    terms += _label_terms("workload_label", selector.workload_selector)
    if selector.namespaces.allow:
        terms.append([("namespace", namespace) for namespace in selector.namespaces.allow])
    if policy.namespace != operator_namespace:
        terms.append([("namespace", policy.namespace)])
    return terms


def _label_terms(index_field: _IndexField, selector: LabelSelector | None) -> list[_IndexTerms]:
    if selector is None:
        return []
    terms: list[_IndexTerms] = [[(index_field, label)] for label in selector.match_labels.items()]
    terms += [
        [(index_field, (requirement.key, value)) for value in dict.fromkeys(requirement.values)]
        for requirement in selector.match_expressions
        if requirement.operator is LabelSelectorOperator.IN
    ]
    return terms

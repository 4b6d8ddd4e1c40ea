"""Which policy sizes which workload: a pure function of policies, namespaces and labels.

A policy in the operator's own namespace (its home, as `trimtab-system`) may select in every namespace: there lives
the policy for the whole cluster. One that lives anywhere else selects in its own namespace only, so that whoever may
write policies in a namespace decides about that namespace and no other: there live the defaults of a namespace. Its
namespace selector and its allow and deny lists can narrow that down, never widen it.

Of all policies that select a workload the heaviest wins, of equals the first by namespace and name. Mode plays no
part: a heavy policy with mode Disabled keeps its workloads from all lighter ones. A policy that cannot be read selects
nothing.

Each policy is filed under the rarest thing that it demands, a namespace or a label, so that a workload is held
against the few policies that might select it and not against thousands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from trimtab.api.meta import LabelSelector, Operator
from trimtab.kube.cache.projection import Labels
from trimtab.kube.kinds.policies import Policy
from trimtab.kube.kinds.workloads import Workload

Label = tuple[str, str]
_Drawer = Literal["namespace", "namespace_label", "workload_label"]
_Demand = list[tuple[_Drawer, str | Label]]
"""Things of which a workload or its namespace must have one; as a label's key is there once, it has at most one."""

Verdict = tuple[Policy, ...]
"""The policies that select a workload, the one that wins first; empty when none does."""


@dataclass(slots=True)
class Standing:
    """How one policy fares among the others, for its status."""

    taken: int = 0
    """Workloads that it wins."""
    over: Counter[Policy] = field(default_factory=Counter)
    """Of these, how many other policies select as well,"""
    lost: Counter[Policy] = field(default_factory=Counter)
    """and how many workloads that it selects go to others."""


class Selection:
    """All policies against all namespaces; ask it `of` a workload. Made anew whenever one of them changes."""

    def __init__(self, policies: Iterable[Policy], *, namespaces: Mapping[str, Labels], home: str) -> None:
        ranked = sorted((policy for policy in policies if not policy.problem), key=_rank)
        self._places = {policy: place for place, policy in enumerate(ranked)}
        self._namespaces = namespaces
        self._home = home
        self._files = _Files((policy, _demands(policy, home)) for policy in ranked)
        self._quarters: dict[tuple[str, str], _Quarter] = {}

    def of(self, workload: Workload) -> Verdict:
        kind, namespace, _ = workload.key
        quarter = self._quarters.get((namespace, kind))
        if quarter is None:
            quarter = self._quarters[namespace, kind] = self._quarter(namespace, kind)
        labels = dict(workload.labels)
        near = list(quarter.some)
        for label in workload.labels:
            near += filter(quarter.admits, self._files.workload_label.get(label, ()))
        found = [policy for policy in near if _matches(policy.spec.selector.workload_selector, labels)]
        if not found:
            return quarter.all
        return tuple(sorted([*quarter.all, *found], key=self._places.__getitem__))

    def _quarter(self, namespace: str, kind: str) -> _Quarter:
        labels = self._namespaces.get(namespace, ())
        quarter = _Quarter(namespace, kind, dict(labels), reached_from=(namespace, self._home))
        files = self._files
        near = [*files.anywhere, *files.namespace.get(namespace, ())]
        for label in labels:
            near += files.namespace_label.get(label, ())
        admitted = sorted(filter(quarter.admits, near), key=self._places.__getitem__)
        quarter.all = tuple(policy for policy in admitted if policy.spec.selector.workload_selector is None)
        quarter.some = tuple(
            policy for policy in admitted if policy.spec.selector.workload_selector is not None
        )
        return quarter


def standings(selection: Selection, workloads: Iterable[Workload]) -> dict[Policy, Standing]:
    """How each policy that selects anything fares; those that tie or lose are told by whom."""
    counted: Counter[Verdict] = Counter(selection.of(workload) for workload in workloads)
    found: dict[Policy, Standing] = {}
    for verdict, count in counted.items():
        for policy in verdict:
            found.setdefault(policy, Standing())
        if verdict:
            winner, *losers = verdict
            found[winner].taken += count
            for loser in losers:
                found[winner].over[loser] += count
                found[loser].lost[winner] += count
    return found


@dataclass(slots=True)
class _Quarter:
    """The workloads of one kind in one namespace."""

    namespace: str
    kind: str
    labels: dict[str, str]
    reached_from: tuple[str, str]
    all: Verdict = ()
    """The policies that select every one of them,"""
    some: Verdict = ()
    """and those that may select any of them by its labels."""

    def admits(self, policy: Policy) -> bool:
        selector = policy.spec.selector
        return (
            policy.namespace in self.reached_from
            and selector.namespaces.admits(self.namespace)
            and selector.workload_types.admits(self.kind)
            and _matches(selector.namespace_selector, self.labels)
        )


class _Files:
    """Policies by the rarest thing that they demand."""

    def __init__(self, demanding: Iterable[tuple[Policy, list[_Demand]]]) -> None:
        self.anywhere: list[Policy] = []
        self.namespace: dict[str, list[Policy]] = {}
        self.namespace_label: dict[Label, list[Policy]] = {}
        self.workload_label: dict[Label, list[Policy]] = {}
        every = list(demanding)
        popularity = Counter(one for _, demands in every for demand in demands for one in demand)
        for policy, demands in every:
            if not demands:
                self.anywhere.append(policy)
                continue
            for drawer, value in min(demands, key=lambda demand: sum(popularity[one] for one in demand)):
                getattr(self, drawer).setdefault(value, []).append(policy)


def _rank(policy: Policy) -> tuple[int, str, str]:
    return -policy.spec.weight, policy.namespace, policy.name


def _matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    return selector is None or selector.matches(labels)


def _demands(policy: Policy, home: str) -> list[_Demand]:
    """What a policy demands of each workload that it selects."""
    selector = policy.spec.selector
    demands = _label_demands("namespace_label", selector.namespace_selector)
    demands += _label_demands("workload_label", selector.workload_selector)
    if selector.namespaces.allow:
        demands.append([("namespace", namespace) for namespace in selector.namespaces.allow])
    if policy.namespace != home:
        demands.append([("namespace", policy.namespace)])
    return demands


def _label_demands(drawer: _Drawer, selector: LabelSelector | None) -> list[_Demand]:
    if selector is None:
        return []
    demands: list[_Demand] = [[(drawer, label)] for label in selector.match_labels.items()]
    demands += [
        [(drawer, (requirement.key, value)) for value in dict.fromkeys(requirement.values)]
        for requirement in selector.match_expressions
        if requirement.operator is Operator.IN
    ]
    return demands

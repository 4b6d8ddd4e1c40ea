"""Decide from their selectors alone whether two policies could select the same workload.

Existing workloads do not matter: a workload that both select may be created later. The answer is exact, except that a
namespace's own-name label is treated like any other label. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trimtab.api.meta import LabelSelector, LabelSelectorOperator, LabelSelectorRequirement
from trimtab.api.optimizationpolicy import PolicySelector


def can_overlap(one: PolicySelector, other: PolicySelector, *, within: Iterable[str] = ()) -> bool:
    """Return True if a workload could exist that both select; `within` are namespaces that one of them cannot leave."""
    return (
        _can_share_name(
            allowed=(one.namespaces.allow, other.namespaces.allow, *((name,) for name in within)),
            refused=(*one.namespaces.deny, *other.namespaces.deny),
        )
        and _can_share_name(
            allowed=(one.workload_types.include, other.workload_types.include),
            refused=(*one.workload_types.exclude, *other.workload_types.exclude),
        )
        and _are_satisfiable((one.namespace_selector, other.namespace_selector))
        and _are_satisfiable((one.workload_selector, other.workload_selector))
    )


def _can_share_name(*, allowed: Sequence[Sequence[str]], refused: Iterable[str]) -> bool:
    """Return True if a name is in all allow lists, where an empty list allows every name, and not refused."""
    stated = [set(names) for names in allowed if names]
    return not stated or bool(set.intersection(*stated) - set(refused))


def _are_satisfiable(selectors: Iterable[LabelSelector | None]) -> bool:
    """Return True if some labels satisfy all of these selectors."""
    demands: dict[str, list[LabelSelectorRequirement]] = {}
    for selector in selectors:
        for demand in _requirements(selector) if selector else ():
            demands.setdefault(demand.key, []).append(demand)
    return all(map(_is_satisfiable, demands.values()))


def _requirements(selector: LabelSelector) -> Iterable[LabelSelectorRequirement]:
    equal = (
        LabelSelectorRequirement.model_construct(key=key, operator=LabelSelectorOperator.IN, values=(value,))
        for key, value in selector.match_labels.items()
    )
    return (*equal, *selector.match_expressions)


def _is_satisfiable(demands: Sequence[LabelSelectorRequirement]) -> bool:
    """Return True if one label can satisfy all of these; one unnamed value represents all values not mentioned."""
    values = {value for demand in demands for value in demand.values}
    key = demands[0].key
    unnamed = "\0"
    candidates: list[dict[str, str]] = [{}, *({key: value} for value in (*values, unnamed))]
    return any(all(demand.matches(labels) for demand in demands) for labels in candidates)

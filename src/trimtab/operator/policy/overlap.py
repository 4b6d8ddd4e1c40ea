"""Whether two policies could both select one workload, judged by their selectors alone.

No workload is looked at: one that both would select may come tomorrow. The answer is exact for what a selector can
say, except that the label a namespace has with its own name is taken for any other. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trimtab.api.meta import LabelSelector, LabelSelectorOperator, LabelSelectorRequirement
from trimtab.api.optimizationpolicy import PolicySelector


def can_overlap(one: PolicySelector, other: PolicySelector, *, within: Iterable[str] = ()) -> bool:
    """Whether some workload can be imagined that both select; `within` are namespaces that one of them cannot leave."""
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
    """An empty list allows every name there is, and no list of refusals holds them all."""
    stated = [set(names) for names in allowed if names]
    return not stated or bool(set.intersection(*stated) - set(refused))


def _are_satisfiable(selectors: Iterable[LabelSelector | None]) -> bool:
    """Whether some labels satisfy all of these."""
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
    """Whether one label can satisfy all of these; of the values that none of them names, one stands for all."""
    values = {value for demand in demands for value in demand.values}
    key = demands[0].key
    unnamed = "\0"
    candidates: list[dict[str, str]] = [{}, *({key: value} for value in (*values, unnamed))]
    return any(all(demand.matches(labels) for demand in demands) for labels in candidates)

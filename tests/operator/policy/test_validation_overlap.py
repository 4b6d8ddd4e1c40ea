"""Overlap of two selectors: reported wherever both select a workload."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.api.meta import LabelSelector, LabelSelectorOperator, LabelSelectorRequirement
from trimtab.api.optimizationpolicy import NamespaceFilter, PolicySelector, WorkloadTypeFilter
from trimtab.operator.policy.validation import can_overlap

NAMES = st.sampled_from(["a", "b", "c"])
KINDS = st.sampled_from(["Deployment", "Job", "CronJob"])
KEYS = st.sampled_from(["app", "tier"])


def _some(names: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(names, max_size=2, unique=True).map(tuple)


requirements = st.one_of(
    st.builds(
        LabelSelectorRequirement,
        key=KEYS,
        operator=st.sampled_from([LabelSelectorOperator.IN, LabelSelectorOperator.NOT_IN]),
        values=st.lists(NAMES, min_size=1, max_size=2, unique=True).map(tuple),
    ),
    st.builds(
        LabelSelectorRequirement,
        key=KEYS,
        operator=st.sampled_from([LabelSelectorOperator.EXISTS, LabelSelectorOperator.DOES_NOT_EXIST]),
    ),
)
label_selectors = st.none() | st.builds(
    LabelSelector,
    match_labels=st.dictionaries(KEYS, NAMES, max_size=2),
    match_expressions=st.lists(requirements, max_size=2).map(tuple),
)
types = st.tuples(_some(KINDS), _some(KINDS)).map(
    lambda both: WorkloadTypeFilter(
        include=both[0], exclude=tuple(kind for kind in both[1] if kind not in both[0])
    )
)
selectors = st.builds(
    PolicySelector,
    namespace_selector=label_selectors,
    workload_selector=label_selectors,
    namespaces=st.builds(NamespaceFilter, allow=_some(NAMES), deny=_some(NAMES)),
    workload_types=types,
)
labels = st.dictionaries(KEYS, st.sampled_from(["a", "b", "c", "d"]), max_size=2)


@settings(max_examples=100)
@given(
    one=selectors,
    other=selectors,
    kind=KINDS | st.just("Rollout"),
    namespace=NAMES | st.just("elsewhere"),
    of_workload=labels,
    of_namespace=labels,
)
def test_overlap_exists_where_two_policies_select_a_workload(
    one: PolicySelector,
    other: PolicySelector,
    kind: str,
    namespace: str,
    of_workload: dict[str, str],
    of_namespace: dict[str, str],
) -> None:
    both = all(
        selector.matches(kind=kind, namespace=namespace, labels=of_workload, namespace_labels=of_namespace)
        for selector in (one, other)
    )
    assert can_overlap(one, other) == can_overlap(other, one)
    assert can_overlap(one, other) or not both


def _label(key: str, operator: LabelSelectorOperator, *values: str) -> PolicySelector:
    return PolicySelector(
        workload_selector=LabelSelector(
            match_expressions=(LabelSelectorRequirement(key=key, operator=operator, values=values),)
        )
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            PolicySelector(namespaces=NamespaceFilter(allow=("a",))),
            PolicySelector(namespaces=NamespaceFilter(allow=("b",))),
        ),
        (
            PolicySelector(namespaces=NamespaceFilter(allow=("a",))),
            PolicySelector(namespaces=NamespaceFilter(deny=("a",))),
        ),
        (
            PolicySelector(workload_types=WorkloadTypeFilter(include=("Job",))),
            PolicySelector(workload_types=WorkloadTypeFilter(exclude=("Job",))),
        ),
        (_label("app", LabelSelectorOperator.IN, "a", "b"), _label("app", LabelSelectorOperator.IN, "c")),
        (_label("app", LabelSelectorOperator.IN, "a"), _label("app", LabelSelectorOperator.NOT_IN, "a")),
        (_label("app", LabelSelectorOperator.EXISTS), _label("app", LabelSelectorOperator.DOES_NOT_EXIST)),
        (_label("app", LabelSelectorOperator.IN, "a"), _label("app", LabelSelectorOperator.DOES_NOT_EXIST)),
    ],
)
def test_overlap_is_absent_where_policies_exclude_each_other(
    one: PolicySelector, other: PolicySelector
) -> None:
    assert not can_overlap(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (PolicySelector(), PolicySelector()),
        (
            _label("app", LabelSelectorOperator.NOT_IN, "a", "b", "c"),
            _label("app", LabelSelectorOperator.EXISTS),
        ),
        (_label("app", LabelSelectorOperator.IN, "a"), _label("tier", LabelSelectorOperator.IN, "a")),
        (
            _label("app", LabelSelectorOperator.DOES_NOT_EXIST),
            _label("app", LabelSelectorOperator.NOT_IN, "a"),
        ),
    ],
)
def test_overlap_exists_where_a_workload_could_satisfy_both(
    one: PolicySelector, other: PolicySelector
) -> None:
    assert can_overlap(one, other)

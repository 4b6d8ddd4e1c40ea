"""Whether two selectors can meet: never denied where they do."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.api.meta import LabelSelector, Operator, Requirement
from trimtab.api.optimizationpolicy import Namespaces, Selector, WorkloadTypes
from trimtab.operator.policy.overlap import overlap

NAMES = st.sampled_from(["a", "b", "c"])
KINDS = st.sampled_from(["Deployment", "Job", "CronJob"])
KEYS = st.sampled_from(["app", "tier"])


def _some(names: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(names, max_size=2, unique=True).map(tuple)


requirements = st.one_of(
    st.builds(
        Requirement,
        key=KEYS,
        operator=st.sampled_from([Operator.IN, Operator.NOT_IN]),
        values=st.lists(NAMES, min_size=1, max_size=2, unique=True).map(tuple),
    ),
    st.builds(Requirement, key=KEYS, operator=st.sampled_from([Operator.EXISTS, Operator.DOES_NOT_EXIST])),
)
label_selectors = st.none() | st.builds(
    LabelSelector,
    match_labels=st.dictionaries(KEYS, NAMES, max_size=2),
    match_expressions=st.lists(requirements, max_size=2).map(tuple),
)
types = st.tuples(_some(KINDS), _some(KINDS)).map(
    lambda both: WorkloadTypes(
        include=both[0], exclude=tuple(kind for kind in both[1] if kind not in both[0])
    )
)
selectors = st.builds(
    Selector,
    namespace_selector=label_selectors,
    workload_selector=label_selectors,
    namespaces=st.builds(Namespaces, allow=_some(NAMES), deny=_some(NAMES)),
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
def test_two_that_select_the_same_workload_overlap(
    one: Selector,
    other: Selector,
    kind: str,
    namespace: str,
    of_workload: dict[str, str],
    of_namespace: dict[str, str],
) -> None:
    both = all(
        selector.selects(kind=kind, namespace=namespace, labels=of_workload, namespace_labels=of_namespace)
        for selector in (one, other)
    )
    assert overlap(one, other) == overlap(other, one)
    assert overlap(one, other) or not both


def _label(key: str, operator: Operator, *values: str) -> Selector:
    return Selector(
        workload_selector=LabelSelector(
            match_expressions=(Requirement(key=key, operator=operator, values=values),)
        )
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Selector(namespaces=Namespaces(allow=("a",))), Selector(namespaces=Namespaces(allow=("b",)))),
        (Selector(namespaces=Namespaces(allow=("a",))), Selector(namespaces=Namespaces(deny=("a",)))),
        (
            Selector(workload_types=WorkloadTypes(include=("Job",))),
            Selector(workload_types=WorkloadTypes(exclude=("Job",))),
        ),
        (_label("app", Operator.IN, "a", "b"), _label("app", Operator.IN, "c")),
        (_label("app", Operator.IN, "a"), _label("app", Operator.NOT_IN, "a")),
        (_label("app", Operator.EXISTS), _label("app", Operator.DOES_NOT_EXIST)),
        (_label("app", Operator.IN, "a"), _label("app", Operator.DOES_NOT_EXIST)),
    ],
)
def test_two_that_exclude_each_other_do_not(one: Selector, other: Selector) -> None:
    assert not overlap(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Selector(), Selector()),
        (_label("app", Operator.NOT_IN, "a", "b", "c"), _label("app", Operator.EXISTS)),
        (_label("app", Operator.IN, "a"), _label("tier", Operator.IN, "a")),
        (_label("app", Operator.DOES_NOT_EXIST), _label("app", Operator.NOT_IN, "a")),
    ],
)
def test_two_that_some_workload_could_satisfy_do(one: Selector, other: Selector) -> None:
    assert overlap(one, other)

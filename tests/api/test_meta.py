"""Label selectors select what the API server selects."""

from hypothesis import given
from hypothesis import strategies as st

from trimtab.api import LabelSelector
from trimtab.api.meta import LabelSelectorOperator, LabelSelectorRequirement

KEYS = ["app", "tier", "example.com/team"]
VALUES = ["", "web", "db", "a.b_c-d"]

comparisons = st.builds(
    LabelSelectorRequirement,
    key=st.sampled_from(KEYS),
    operator=st.sampled_from([LabelSelectorOperator.IN, LabelSelectorOperator.NOT_IN]),
    values=st.lists(st.sampled_from(VALUES), min_size=1, max_size=3).map(tuple),
)
existences = st.builds(
    LabelSelectorRequirement,
    key=st.sampled_from(KEYS),
    operator=st.sampled_from([LabelSelectorOperator.EXISTS, LabelSelectorOperator.DOES_NOT_EXIST]),
)
selectors = st.builds(
    LabelSelector,
    match_labels=st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=2),
    match_expressions=st.lists(comparisons | existences, max_size=3).map(tuple),
)


@given(selector=selectors)
def test_selector_reads_back_as_written(selector: LabelSelector) -> None:
    assert LabelSelector.model_validate(selector.model_dump()) == selector

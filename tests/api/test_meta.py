"""Label selectors select what the API server selects."""

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.cluster import Cluster
from trimtab.api import LabelSelector
from trimtab.api.meta import LabelSelectorOperator, LabelSelectorRequirement

KEYS = ["app", "tier", "example.com/team"]
VALUES = ["", "web", "db", "a.b_c-d"]
POPULATION = [
    {},
    {"app": "web"},
    {"app": "db", "tier": ""},
    {"app": "", "example.com/team": "a.b_c-d"},
    {"tier": "web", "example.com/team": "web"},
    {"app": "web", "tier": "db", "example.com/team": "db"},
]

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


def query(selector: LabelSelector) -> str:
    """The selector as the API server takes it in a URL."""
    said = {
        LabelSelectorOperator.IN: "{key} in ({values})",
        LabelSelectorOperator.NOT_IN: "{key} notin ({values})",
        LabelSelectorOperator.EXISTS: "{key}",
        LabelSelectorOperator.DOES_NOT_EXIST: "!{key}",
    }
    demands = [f"{key}={value}" for key, value in selector.match_labels.items()]
    for requirement in selector.match_expressions:
        values = ",".join(requirement.values)
        demands.append(said[requirement.operator].format(key=requirement.key, values=values))
    return quote(",".join(demands))


@pytest.fixture(scope="module")
def population(cluster: Cluster) -> Iterator[str]:
    """The path of a few objects with different labels, named by their place in POPULATION."""
    cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": "labels"}})
    path = "/api/v1/namespaces/labels/secrets"
    for place, labels in enumerate(POPULATION):
        cluster.call("POST", path, {"metadata": {"name": f"s{place}", "labels": labels}})
    yield path
    cluster.call("DELETE", "/api/v1/namespaces/labels")


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(selector=selectors)
def test_a_selector_selects_what_the_server_selects(
    cluster: Cluster, population: str, selector: LabelSelector
) -> None:
    found = cluster.call("GET", f"{population}?labelSelector={query(selector)}")
    assert {item["metadata"]["name"] for item in found["items"]} == {
        f"s{place}" for place, labels in enumerate(POPULATION) if selector.matches(labels)
    }


@given(selector=selectors)
def test_a_selector_reads_back_as_it_was_written(selector: LabelSelector) -> None:
    assert LabelSelector.model_validate(selector.model_dump()) == selector

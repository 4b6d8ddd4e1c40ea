"""Label selectors select what the API server selects."""

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings

from api.test_meta import selectors
from harness.cluster.cluster import Cluster
from trimtab.api import LabelSelector
from trimtab.api.meta import LabelSelectorOperator

POPULATION = [
    {},
    {"app": "web"},
    {"app": "db", "tier": ""},
    {"app": "", "example.com/team": "a.b_c-d"},
    {"tier": "web", "example.com/team": "web"},
    {"app": "web", "tier": "db", "example.com/team": "db"},
]


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
def test_selector_selects_what_the_server_selects(
    cluster: Cluster, population: str, selector: LabelSelector
) -> None:
    found = cluster.call("GET", f"{population}?labelSelector={query(selector)}")
    assert {item["metadata"]["name"] for item in found["items"]} == {
        f"s{place}" for place, labels in enumerate(POPULATION) if selector.matches(labels)
    }

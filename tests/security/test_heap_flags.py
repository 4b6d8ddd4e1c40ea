"""The arguments and variables of a tenant's template must not take the memory of the operator."""

import json
from typing import Any

import pytest

from trimtab.kube.cache.interning import InternTable
from trimtab.kube.kinds.heap_flags import MAX_EXPANSION, HeapFlags, parse_heap_flags

LONG = "-Xmx1g " * 5000


def parse(*containers: dict[str, Any]) -> tuple[HeapFlags, ...]:
    return parse_heap_flags(json.dumps({"spec": {"containers": containers}}).encode(), InternTable())


@pytest.mark.parametrize("reference", ["$(A)", "${A}", "$A "])
def test_references_to_a_long_variable_do_not_multiply_it(reference: str) -> None:
    """An object of a megabyte has room for 100,000 references to a variable of 500 kB: 50 GB, which ended each leader."""
    variables = [{"name": "A", "value": LONG}]
    found = parse({"name": "web", "args": [reference * 2000], "env": variables})
    assert sum(len(each.args) for each in found) <= MAX_EXPANSION


def test_references_of_all_variables_and_containers_share_the_bound() -> None:
    variables = [
        {"name": "A", "value": LONG},
        *({"name": f"JAVA_OPTS_{n}", "value": "$(A)"} for n in range(400)),
    ]
    found = parse(*({"name": f"c{n}", "args": ["$(A)"], "env": variables} for n in range(5)))
    own = 5 * len(LONG)
    assert sum(len(text) for each in found for _, text in each.env) <= MAX_EXPANSION + own


def test_references_within_the_bound_are_replaced() -> None:
    [found] = parse({"name": "web", "args": ["java $(A)"], "env": [{"name": "A", "value": "-Xmx1g"}]})
    assert found.args == "-Xmx1g"

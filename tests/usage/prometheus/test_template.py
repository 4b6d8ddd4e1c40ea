"""Test PromQL templates: a name never changes the meaning of a query."""

import promql_parser as promql
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.usage.prometheus.template import QueryError, fill_template, find_query_problem

NAMES = st.text(min_size=1, max_size=20)


def matchers(query: str) -> dict[str, str]:
    found = {}

    def visit(node: promql.Expr) -> bool:
        if isinstance(node, promql.VectorSelector):
            found.update({each.name: each.value for each in node.matchers.matchers})
        return True

    promql.walk(promql.parse(query), visit)
    return found


@given(namespace=NAMES, name=NAMES, quote=st.sampled_from("\"'`"))
def test_fill_template_matches_any_name_literally(namespace: str, name: str, quote: str) -> None:
    template = f"sum(errors{{namespace={quote}$namespace{quote},app={quote}$workload{quote},kept='yes'}})"
    query = fill_template(template, namespace=namespace, kind="Deployment", name=name)
    assert matchers(query) == {"namespace": namespace, "app": name, "kept": "yes"}


def test_fill_template_escapes_name_before_regex_matcher() -> None:
    query = fill_template('up{pod=~"$workload-.*"}', namespace="shop", kind="Deployment", name="web.v1")
    assert matchers(query) == {"pod": r"web\.v1-.*"}


def test_fill_template_keeps_capture_groups_of_label_replace() -> None:
    template = 'sum(label_replace(up{app="$name"}, "a", "$1", "b", "(.*)"))'
    assert '"$1"' in fill_template(template, namespace="shop", kind="Deployment", name="web")
    assert find_query_problem(template) is None


@pytest.mark.parametrize("template", ["errors_$workload", 'sum(up{app="web"}) + $namespace'])
def test_fill_template_rejects_placeholder_outside_quotes(template: str) -> None:
    with pytest.raises(QueryError, match="must stand in quotes"):
        fill_template(template, namespace="shop", kind="Deployment", name="web")
    assert "must stand in quotes" in (find_query_problem(template) or "")

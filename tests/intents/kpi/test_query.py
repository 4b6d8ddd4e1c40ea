"""A KPI's query, filled in for a target: what the names hold cannot change what is asked."""

import string

import promql_parser as promql
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.api.intent import TargetRef
from trimtab.api.kpiprofile import KPIProfileSpec, KPIType
from trimtab.intents.kpi.measurement import LINKERD_QUERIES, resolve_kpi
from trimtab.intents.kpi.query import build_kpi_query
from trimtab.usage.pod_ownership import build_pod_name_pattern
from trimtab.usage.prometheus.namespace_scope import QueryRules
from trimtab.usage.prometheus.template import QueryError, find_query_problem

names = st.text(
    st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]) | st.just("\n"), min_size=1, max_size=20
)

ALPHANUMERIC = string.ascii_lowercase + string.digits
ends = st.sampled_from(ALPHANUMERIC)
object_names = ends | st.builds("{}{}{}".format, ends, st.text(ALPHANUMERIC + "-.", max_size=20), ends)
"""Drawn in a third of the time of a regular expression."""


def matchers(text: str) -> dict[str, str]:
    found = {}

    def visit(node: promql.Expr) -> bool:
        if isinstance(node, promql.VectorSelector):
            found.update({each.name: each.value for each in node.matchers.matchers})
        return True

    promql.walk(promql.parse(text), visit)
    return found


def target(name: str, kind: str = "Deployment") -> TargetRef:
    return TargetRef.model_construct(api_version="apps/v1", kind=kind, name=name)


@given(namespace=names, name=names, quote=st.sampled_from("\"'`"))
def test_build_kpi_query_escapes_names_in_string_matchers(namespace: str, name: str, quote: str) -> None:
    places = f"namespace={quote}$namespace{quote},app={quote}$name{quote},kept={quote}yes{quote}"
    query = f"sum(rate(hits{{{places}}}[1m]))"
    asked = build_kpi_query(query, namespace=namespace, target=target(name))
    assert matchers(asked.promql) == {"namespace": namespace, "app": name, "kept": "yes"}


def test_build_kpi_query_escapes_names_in_regex_matchers() -> None:
    asked = build_kpi_query('up{pod=~"$name-.*"}', namespace="shop", target=target("web.v1"))
    assert asked.promql == r'up{pod=~"web\\.v1-.*"}'


@pytest.mark.parametrize("quote", ['"', "'", "`"])
@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob", "Rollout"])
@given(name=object_names)
def test_build_kpi_query_accepts_every_query_that_passed_its_check(kind: str, quote: str, name: str) -> None:
    query = f"sum(rate(hits{{pod=~{quote}$pods{quote},app={quote}$name{quote}}}[1m]))"
    assert find_query_problem(query) is None
    asked = build_kpi_query(query, namespace="shop", target=target(name, kind))
    assert matchers(asked.promql) == {"pod": build_pod_name_pattern(kind, name), "app": name}


def test_build_kpi_query_keeps_backslashes_of_raw_strings() -> None:
    asked = build_kpi_query(r"up{pod=~`web-\d+`}", namespace="shop", target=target("web"))
    assert matchers(asked.promql) == {"pod": r"web-\d+"}


def test_build_kpi_query_matches_pod_names_of_each_kind() -> None:
    asked = build_kpi_query("up{pod=~'$pods'}", namespace="shop", target=target("db", "StatefulSet"))
    assert matchers(asked.promql) == {"pod": r"db(-\d{1,6})"}


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("up{", "is not valid PromQL"),
        ("rate(up[$namespace])", "must stand in quotes"),
        ('up{pod="$pods"}', "match it with =~"),
        ('up{pod="$pod"}', "there are $namespace"),
        ("up[5m]", "avg_over_time"),
        ('"text"', "returns text"),
    ],
)
def test_find_query_problem_names_the_remedy(query: str, words: str) -> None:
    assert words in (find_query_problem(query) or "")


def test_find_query_problem_ignores_comments() -> None:
    assert find_query_problem('sum(up{a="b"}) # in $') is None


def test_kpi_query_lists_instant_selectors() -> None:
    asked = build_kpi_query(
        'a{x="1"} + rate(b[1m]) + max_over_time(c[1m]) + d offset 5m', namespace="n", target=target("w")
    )
    assert asked.instant_selectors == ('a{x="1"}',)


@pytest.mark.parametrize(("query", "is_scalar"), [("1 + 2", True), ("scalar(up)", True), ("up > 1", False)])
def test_kpi_query_distinguishes_scalar_from_vector(query: str, *, is_scalar: bool) -> None:
    assert build_kpi_query(query, namespace="n", target=target("w")).is_scalar is is_scalar


def test_linkerd_queries_are_valid_for_every_kind() -> None:
    for kind in ("Deployment", "StatefulSet", "Rollout"):
        for query in LINKERD_QUERIES.values():
            assert build_kpi_query(query, namespace="n", target=target("w", kind)).instant_selectors == ()


def test_resolve_kpi_uses_default_query() -> None:
    found = resolve_kpi(KPIProfileSpec(type=KPIType.LATENCY), LINKERD_QUERIES, rules=QueryRules())
    assert (found.query, found.less_is_better, found.problem) == (LINKERD_QUERIES[KPIType.LATENCY], True, "")


def test_resolve_kpi_measures_availability_from_pods() -> None:
    found = resolve_kpi(KPIProfileSpec(type=KPIType.AVAILABILITY), {}, rules=QueryRules())
    assert found.is_from_pods
    assert not found.less_is_better
    assert not found.problem


def test_resolve_kpi_reports_profile_without_query() -> None:
    assert (
        "no default query for power"
        in resolve_kpi(KPIProfileSpec(type=KPIType.POWER), LINKERD_QUERIES, rules=QueryRules()).problem
    )


def test_resolve_kpi_names_query_in_problem() -> None:
    with pytest.raises(QueryError):
        build_kpi_query("up{", namespace="n", target=target("w"))
    assert resolve_kpi(
        KPIProfileSpec(type=KPIType.CUSTOM, query="up{"), {}, rules=QueryRules()
    ).problem.startswith("query: is no")

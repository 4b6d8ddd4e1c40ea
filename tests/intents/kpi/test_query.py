"""A KPI's query, filled in for a target: what the names hold cannot change what is asked."""

import promql_parser as promql
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.api.intent import TargetRef
from trimtab.api.kpiprofile import KPIProfileSpec, KPIType
from trimtab.intents.kpi.measurement import LINKERD_QUERIES, resolve_kpi
from trimtab.intents.kpi.query import QueryError, build_kpi_query, find_kpi_query_problem
from trimtab.usage.pod_names import build_pod_name_pattern

names = st.text(min_size=1, max_size=20)


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
def test_whatever_a_name_holds_it_is_matched_to_the_letter(namespace: str, name: str, quote: str) -> None:
    places = f"namespace={quote}$namespace{quote},app={quote}$name{quote},kept={quote}yes{quote}"
    query = f"sum(rate(hits{{{places}}}[1m]))"
    asked = build_kpi_query(query, namespace=namespace, target=target(name))
    assert matchers(asked.promql) == {"namespace": namespace, "app": name, "kept": "yes"}


def test_within_a_pattern_a_name_is_meant_to_the_letter() -> None:
    asked = build_kpi_query('up{pod=~"$name-.*"}', namespace="shop", target=target("web.v1"))
    assert asked.promql == r'up{pod=~"web\\.v1-.*"}'


@pytest.mark.parametrize("quote", ['"', "'", "`"])
@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "Job", "CronJob", "Rollout"])
@given(name=st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?", fullmatch=True))
def test_query_accepted_by_its_check_can_be_asked_for_any_target(kind: str, quote: str, name: str) -> None:
    query = f"sum(rate(hits{{pod=~{quote}$pods{quote},app={quote}$name{quote}}}[1m]))"
    assert find_kpi_query_problem(query) is None
    asked = build_kpi_query(query, namespace="shop", target=target(name, kind))
    assert matchers(asked.promql) == {"pod": build_pod_name_pattern(kind, name), "app": name}


def test_raw_string_keeps_its_backslashes() -> None:
    asked = build_kpi_query(r"up{pod=~`web-\d+`}", namespace="shop", target=target("web"))
    assert matchers(asked.promql) == {"pod": r"web-\d+"}


def test_the_pods_of_a_kind_are_matched_by_how_it_names_them() -> None:
    asked = build_kpi_query("up{pod=~'$pods'}", namespace="shop", target=target("db", "StatefulSet"))
    assert matchers(asked.promql) == {"pod": r"db(-\d{1,6})"}


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("up{", "is no PromQL"),
        ("rate(up[$namespace])", "must stand in quotes"),
        ('up{pod="$pods"}', "match it with =~"),
        ('up{pod="$pod"}', "there are $namespace"),
        ("up[5m]", "avg_over_time"),
        ('"text"', "gives text"),
    ],
)
def test_what_cannot_be_asked_is_refused_with_the_fix(query: str, words: str) -> None:
    assert words in (find_kpi_query_problem(query) or "")


def test_a_dollar_in_a_comment_is_nobodys_business() -> None:
    assert find_kpi_query_problem('sum(up{a="b"}) # in $') is None


def test_selectors_whose_age_nothing_bounds_are_known() -> None:
    asked = build_kpi_query(
        'a{x="1"} + rate(b[1m]) + max_over_time(c[1m]) + d offset 5m', namespace="n", target=target("w")
    )
    assert asked.instant_selectors == ('a{x="1"}',)


@pytest.mark.parametrize(("query", "is_scalar"), [("1 + 2", True), ("scalar(up)", True), ("up > 1", False)])
def test_a_scalar_is_told_from_a_vector(query: str, *, is_scalar: bool) -> None:
    assert build_kpi_query(query, namespace="n", target=target("w")).is_scalar is is_scalar


def test_the_queries_of_the_mesh_can_be_asked_for_every_kind() -> None:
    for kind in ("Deployment", "StatefulSet", "Rollout"):
        for query in LINKERD_QUERIES.values():
            assert build_kpi_query(query, namespace="n", target=target("w", kind)).instant_selectors == ()


def test_a_profile_without_a_query_takes_the_operators() -> None:
    found = resolve_kpi(KPIProfileSpec(type=KPIType.LATENCY), LINKERD_QUERIES)
    assert (found.query, found.less_is_better, found.problem) == (LINKERD_QUERIES[KPIType.LATENCY], True, "")


def test_availability_without_a_query_comes_from_the_pods() -> None:
    found = resolve_kpi(KPIProfileSpec(type=KPIType.AVAILABILITY), {})
    assert found.is_from_pods
    assert not found.less_is_better
    assert not found.problem


def test_a_profile_that_nothing_can_measure_says_so() -> None:
    assert "has none for power" in resolve_kpi(KPIProfileSpec(type=KPIType.POWER), LINKERD_QUERIES).problem


def test_the_reason_names_the_query() -> None:
    with pytest.raises(QueryError):
        build_kpi_query("up{", namespace="n", target=target("w"))
    assert resolve_kpi(KPIProfileSpec(type=KPIType.CUSTOM, query="up{"), {}).problem.startswith(
        "query: is no"
    )

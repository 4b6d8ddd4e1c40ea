"""Queries of tenants read their own namespace only, and go to servers that the administrator allows."""

import asyncio
import socket
from typing import Any

import promql_parser
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from harness.builders.records import policy, workload
from trimtab.api.kpiprofile import KPIProfileSpec
from trimtab.errors import TrimtabError
from trimtab.intents.kpi.client import PromqlKpiClient
from trimtab.intents.kpi.endpoints import check_endpoint
from trimtab.intents.kpi.measurement import find_profile_problem
from trimtab.intents.kpi.query import KpiQuery
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.policy.resolver import build_effective_policy
from trimtab.operator.policy.validation import GUARDRAIL_ANNOTATION
from trimtab.operator.sizing.harm_signals import PromqlGuardrailChecker
from trimtab.testing import FakePromql
from trimtab.usage.errors import SourceRefused
from trimtab.usage.prometheus.namespace_scope import NamespaceScope, QueryRules, restrict_to_namespace
from trimtab.usage.prometheus.template import QueryError

SCOPE = NamespaceScope("shop", "namespace")
MATCHER = 'namespace="shop"'
TOKENS = ["up", "sum", "by", "x", "(", ")", "{", "}", 'a="b"', "=", "[5m]", "[1h:5m]", "offset 5m", "@ 5", ",", "#", "\n",
          "+", "-", " and ", " or ", " on(a) ", " group_left ", " without (a) ", "avg(", "rate(", "bool ", '"', "'", "\\",
          "1", "5m", "inf", "start", "start()", '"}"', "{}", '{__name__=~".+"}', "`", "fill(0)", " atan2 ", ":", "é",
          "\r", "#\r", '=~"a"', '{a=~"(b{9}|\\\\w)"}', "{`c`}", "\x0b"]  # fmt: skip


def _all_selectors(node: Any) -> list[Any]:
    found: list[Any] = []
    promql_parser.walk(
        node, lambda each: found.append(each) if "VectorSelector" in type(each).__name__ else None
    )
    return found


@pytest.mark.parametrize(
    ("query", "restricted"),
    [
        ("up", f"up{{{MATCHER}}}"),
        ('up{namespace="bank"}', f'up{{{MATCHER},namespace="bank"}}'),
        ("sum(rate(x[5m])) by (le)", f"sum(rate(x{{{MATCHER}}}[5m])) by (le)"),
        ('{__name__=~".+"} @ end()', f'{{{MATCHER},__name__=~".+"}} @ end()'),
        ("a / on(x) group_left(y) b offset 1m", f"a{{{MATCHER}}} / on(x) group_left(y) b{{{MATCHER}}} offset 1m"),
        ("avg(avg) # {up}\n+ up", f"avg(avg{{{MATCHER}}}) # {{up}}\n+ up{{{MATCHER}}}"),
        ('label_replace(up, "a", "{up}", "b", "up")', f'label_replace(up{{{MATCHER}}}, "a", "{{up}}", "b", "up")'),
        ("max_over_time(rate(x[5m])[1h:5m] offset 5m)",
         f"max_over_time(rate(x{{{MATCHER}}}[5m])[1h:5m] offset 5m)"),
    ],
)  # fmt: skip
def test_every_selector_is_restricted_to_the_namespace(query: str, restricted: str) -> None:
    assert restrict_to_namespace(query, SCOPE) == restricted


@pytest.mark.parametrize(
    "query", ['up{a="b" or namespace="bank"}', "info(up)", "up{", "sum without (b) (by)"]
)
def test_query_that_cannot_be_restricted_is_refused(query: str) -> None:
    with pytest.raises(QueryError):
        restrict_to_namespace(query, SCOPE)


@given(st.lists(st.sampled_from(TOKENS), max_size=25).map("".join))
def test_restricted_query_has_the_matcher_in_every_selector_or_is_refused(query: str) -> None:
    try:
        restricted = restrict_to_namespace(query, SCOPE)
    except QueryError:
        return
    selectors = _all_selectors(promql_parser.parse(restricted))
    assert len(selectors) == len(_all_selectors(promql_parser.parse(query)))
    for selector in selectors:
        assert not selector.matchers.or_matchers
        assert MATCHER in [f'{each.name}="{each.value}"' for each in selector.matchers.matchers]


def test_name_of_a_namespace_cannot_break_out_of_its_matcher() -> None:
    hostile = NamespaceScope('x"} or up{a="', "namespace")
    (selector,) = _all_selectors(promql_parser.parse(restrict_to_namespace("up", hostile)))
    assert [each.value for each in selector.matchers.matchers] == [hostile.namespace]


@pytest.mark.parametrize(
    ("author", "reader", "is_restricted"),
    [("shop", "shop", True), ("bank", "shop", True), ("shop", "bank", True), ("monitoring", "shop", False)],
)
def test_query_is_restricted_to_the_namespace_of_its_reader(
    author: str, reader: str, *, is_restricted: bool
) -> None:
    rules = QueryRules(trusted_namespaces=frozenset({"monitoring"}))
    scope = rules.scope(author=author, reader=reader)
    assert (scope is not None and scope.namespace == reader) is is_restricted


@pytest.mark.parametrize(
    "endpoint",
    ["http://169.254.169.254", "http://127.0.0.1:8080", "https://kubernetes.default", "http://evil.example"],
)
def test_profile_names_only_servers_that_the_administrator_allows(endpoint: str) -> None:
    stated = {"type": "custom", "query": "up", "props": {"endpoint": endpoint}}
    spec = KPIProfileSpec.model_validate(stated)
    rules = QueryRules(endpoints=frozenset({"http://prometheus.shop:9090"}))
    problem = find_profile_problem(spec, {}, rules=rules, namespace="shop")
    assert problem.startswith("props.endpoint: the administrator has not allowed this server")
    allowed = KPIProfileSpec.model_validate(stated | {"props": {"endpoint": "http://prometheus.shop:9090/"}})
    assert find_profile_problem(allowed, {}, rules=rules, namespace="shop") == ""


@pytest.mark.parametrize(
    "endpoint",
    ["http://localhost:9090", "http://127.1.2.3", "http://[::1]:9090", "http://169.254.169.254", "http://[fe80::1]",
     "https://kubernetes.default.svc", "http://0.0.0.0:1", "http://[::ffff:127.0.0.1]", "ftp://a.b", "http://u:p@a.b"],
)  # fmt: skip
def test_configuration_rejects_endpoints_on_loopback_link_local_and_the_api_server(endpoint: str) -> None:
    with pytest.raises(ValueError, match=r"endpoints\[?\.?0"):
        OperatorConfig.model_validate({"tenantQueries": {"endpoints": [endpoint]}})


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "::1", "fe80::1"])
async def test_allowed_name_that_points_to_a_forbidden_address_is_not_queried(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def resolve(*_: object, **__: object) -> list[Any]:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        return [(family, socket.SOCK_STREAM, 6, "", (address, 9090))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    with pytest.raises(TrimtabError, match="which is never queried"):
        await check_endpoint("prometheus.shop", 9090)


async def test_kpi_reading_contains_no_text_of_the_server() -> None:
    secret = 'found duplicate series: {account="alice", namespace="bank"}'
    queries = [KpiQuery("up", namespace="shop")]
    async with PromqlKpiClient(FakePromql({"up": SourceRefused(secret)}), max_age=60, timeout=5) as kpis:
        (reading,) = (await kpis.measure(queries, at=0.0)).values()
    assert "rejected the query" in reading.reason
    assert "alice" not in reading.reason


@pytest.mark.parametrize(
    ("namespace", "asked"), [("shop", f"sum(errors{{{MATCHER}}})"), ("trimtab-system", "sum(errors)")]
)
async def test_guardrail_of_a_tenants_policy_reads_its_own_namespace(namespace: str, asked: str) -> None:
    config = OperatorConfig.model_validate({})
    annotations = ((GUARDRAIL_ANNOTATION, "sum(errors)"),)
    stated = replace(policy("p", namespace=namespace), annotations=annotations)
    server = FakePromql()
    guardrails = build_effective_policy(stated, config).guardrails(config)
    await PromqlGuardrailChecker(server).check_guardrails(workload(), guardrails, now=1.0)
    assert [query for query, _ in server.queries] == [asked]

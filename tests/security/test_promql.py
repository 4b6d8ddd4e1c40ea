"""Queries that a namespace user writes must not crash the operator, nor cost it much time or memory."""

import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.api.intent import TargetRef
from trimtab.intents.kpi.query import build_kpi_query
from trimtab.usage.prometheus.template import MAX_LENGTH, MAX_NESTING, QueryError, find_query_problem

TARGET = TargetRef(kind="Deployment", name="web")
CODE_TOKENS = [
    "(",
    ")",
    "[5m]",
    "[5m:1m]",
    "{",
    "}",
    '{a="b"}',
    "x",
    "1",
    "+",
    "-",
    "^",
    " and ",
    "sum(",
    ",",
]
TEXT_TOKENS = ["by (a) ", "$name", '"$name"', "`", '"', "'", "\\", "#", "\n", "offset 5m", "@ 1", "\x00", "é"]


@pytest.mark.parametrize("depth", [8001, 18001, 1_000_000])
@pytest.mark.parametrize(
    ("opening", "closing"), [("(", ")"), ("abs(", ")"), ("-(", ")"), ("sum by (a) (", ")")]
)
def test_deeply_nested_query_is_refused_before_it_is_parsed(opening: str, closing: str, depth: int) -> None:
    """The parser overflowed its stack at 18,001 brackets, which ends the process, and took 1.3 GB for 8,001."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for count in (depth // len(opening), MAX_LENGTH // len(opening + closing) - 1):
        problem = find_query_problem(opening * count + "x" + closing * count)
        assert problem is not None
        assert "at most" in problem
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


@pytest.mark.parametrize("operator", ["+", "^", " and ", "==", "-", "- -"])
def test_query_with_many_operators_is_refused_before_it_is_parsed(operator: str) -> None:
    query = operator.join(["x"] * 600)
    problem = find_query_problem(query)
    assert problem is not None
    assert "operators" in problem
    with pytest.raises(QueryError, match="operators"):
        build_kpi_query(query, namespace="shop", target=TARGET)


def test_query_that_people_write_is_within_the_bounds() -> None:
    pods = 'namespace="$namespace", pod=~"$pods"'
    selector = f'http_request_duration_seconds_bucket{{{pods}, code!~"5..", path=~"/api/(v1|v2)/.*"}}'
    quantile = f"histogram_quantile(0.99, sum by (le) (rate({selector}[5m])))"
    query = " or ".join(f"({quantile} > {limit})" for limit in range(20))
    assert find_query_problem(query) is None
    assert find_query_problem("(" * MAX_NESTING + "1" + ")" * MAX_NESTING) is None


@given(st.lists(st.sampled_from(CODE_TOKENS + TEXT_TOKENS) | st.text(max_size=3), max_size=60).map("".join))
def test_promql_check_accepts_or_rejects_any_query_with_a_reason(query: str) -> None:
    problem = find_query_problem(query)
    if problem is None:
        assert build_kpi_query(query, namespace="shop", target=TARGET).promql
    else:
        assert problem.isprintable()

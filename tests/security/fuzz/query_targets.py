"""Targets: PromQL of guardrails and KPIProfiles, and the answers to it."""

from __future__ import annotations

import promql_parser

from security.fuzz.engine import Target
from trimtab.api.intent import TargetRef
from trimtab.intents.kpi.client import _combine_queries
from trimtab.intents.kpi.query import build_kpi_query
from trimtab.usage.errors import UsageError
from trimtab.usage.prometheus.namespace_scope import NamespaceScope, list_operands, restrict_to_namespace
from trimtab.usage.prometheus.response import TimeGrid, decode_matrix, decode_samples, first_sample
from trimtab.usage.prometheus.template import QueryError, find_query_problem

TARGET = TargetRef(kind="Deployment", name="web")
_QUERIES = (
    'sum(rate(http_requests_total{namespace="$namespace", pod=~"$pods", code=~"5.."}[5m]))',
    'histogram_quantile(0.99, sum by (le) (rate(latency_bucket{job="$name"}[5m]))) > bool 0.2',
    "max_over_time(sum(up)[10m:1m] offset 5m) or vector(0)",
    "1 + -2 ^ 3 % time()",
    'label_replace(up, "a", "$1", "b", "(.*)") unless on (a) group_left (b) down @ 1.5',
    "x{a='b', c!~`d`} # comment\n * ignoring (e) y",
    'count_values("version", build_info) atan2 quantile(0.5, x)',
    "topk(3, x) and bottomk(1, y) == absent(z)",
)
_TOKENS = (
    *tuple(
        b'( ) { } [ ] , "a" \' ` # \\ \\" $name $pods "$pods" =~"$pods" [5m] [5m:1m] offset @ by( without( on( '
        b"sum( rate( abs( -( +( ^ == !~ =~ bool and or unless 1e9 Inf NaN 0x1F 5m 1y _ : start() end() "
        b'{__name__=~".*"} {{{ "\\u2028" "\\xff" {a=~"\\\\\\\\pL{99}"} =~"(\\\\\\\\w|[a-z]){30}" {9} {1,1000} (?i) (?x) [[:alpha:]] [^\\xc3\\xa9] '
        b"{{{{a{9}){9}){9}){9})".split(b" ")
    ),
    b"\r",
    b"#\r",
    b"# \n",
    b"\x0b",
    b"\xe2\x80\xa8",
)


def check_query(data: bytes) -> str:
    """Accept a query that builds, is still one query within a batch, and parses again; else require one line."""
    text = data.decode(errors="replace")
    problem = find_query_problem(text)
    try:
        query = build_kpi_query(text, namespace="shop", target=TARGET)
    except QueryError as error:
        assert problem is not None
        # A problem becomes part of a status and of the admission response.
        raise QueryError(problem) from error
    assert problem is None or problem, "admission is stricter than the operator"
    if query.is_scalar:
        return "scalar"  # sent alone
    # Otherwise one tenant's query could change the meaning of another's in the same request.
    batch = (query, build_kpi_query("up", namespace="other", target=TARGET))
    assert isinstance(promql_parser.parse(_combine_queries(batch)), promql_parser.BinaryExpr)
    return "vector"


def restrict_query(data: bytes) -> str:
    """Require the namespace's matcher in every selector of the restricted query, or one line that refuses it."""
    restricted = restrict_to_namespace(data.decode(errors="replace"), NamespaceScope("shop", "namespace"))
    remaining = [promql_parser.parse(restricted)]
    selectors = 0
    while remaining:
        expression = remaining.pop()
        if isinstance(expression, promql_parser.VectorSelector):
            found = [(each.name, str(each.op), each.value) for each in expression.matchers.matchers]
            assert ("namespace", str(promql_parser.MatchOp.Equal), "shop") in found
            assert not expression.matchers.or_matchers
            selectors += 1
        remaining += list_operands(expression)
    return f"{min(selectors, 3)} selectors"


def read_answer(data: bytes) -> str:
    """Read an answer to a query as the KPIs of Intents and the usage of containers do."""
    found = decode_matrix(data)
    samples = [first_sample(series) for series in found]
    decode_samples(found, TimeGrid(1_700_000_000.0, 60.0, 3))
    return f"{min(len(samples), 3)} series"


_ANSWER = b'{"status":"success","data":{"resultType":"matrix","result":[%s]},"warnings":[]}'
_ANSWERS = [
    _ANSWER % series
    for series in (
        b"",
        b'{"metric":{"pod":"web"},"values":[[1700000000,"0.25"],[1700000060,"1e3"],[1700000120.0,"NaN"]]}',
        b'{"metric":{},"values":[[1700000000, "+Inf"],[1700000060,"-12345678901234567890.5"]]},{"metric":{},"values":[]}',
    )
] + [b'{"status":"error","errorType":"timeout","error":"query timed out"}']


TARGETS = (
    Target(
        name="promql-answers",
        seeds=_ANSWERS,
        tokens=tuple(
            b"values metric NaN +Inf 1e309 0x1p3 1_0 [[ ]] , isPartial true warnings null".split(b" ")
        ),
        run=read_answer,
        errors=(UsageError,),
    ),
    Target(
        name="scoped-promql",
        seeds=[query.encode() for query in _QUERIES],
        tokens=_TOKENS,
        run=restrict_query,
        errors=(QueryError,),
    ),
    Target(
        name="promql",
        seeds=[query.encode() for query in _QUERIES],
        tokens=_TOKENS,
        run=check_query,
        errors=(QueryError,),
    ),
)

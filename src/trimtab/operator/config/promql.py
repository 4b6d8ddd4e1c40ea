"""Validate PromQL when it is written, instead of in Prometheus hours later.

A guardrail is evaluated for one workload, so its query may contain the placeholders below. Whether the series exist is
not checked here.
"""

import promql_parser

PLACEHOLDERS = ("$namespace", "$kind", "$workload")
"""The placeholders that are replaced by the workload. Any other `$` is invalid PromQL and rejected."""


def find_query_problem(query: str) -> str | None:
    """Return the problem of a query that must return one number, with the fix; None if there is none."""
    try:
        expression = promql_parser.parse(fill_placeholders(query, namespace="n", kind="k", workload="w"))
    except ValueError as error:
        reason = " ".join(str(error).split())
        return f"is not valid PromQL: {reason}; try it in Prometheus first"
    if isinstance(expression, promql_parser.MatrixSelector | promql_parser.SubqueryExpr):
        return "returns a range of samples; wrap it in a function such as avg_over_time"
    if isinstance(expression, promql_parser.StringLiteral):
        return "returns text; it must return a number"
    return None


def fill_placeholders(query: str, *, namespace: str, kind: str, workload: str) -> str:
    """Return the query for one workload."""
    for placeholder, value in zip(PLACEHOLDERS, (namespace, kind, workload), strict=True):
        query = query.replace(placeholder, value)
    return query

"""Whether a query of a user's can be asked at all: told when it is written, and not by a Prometheus hours later.

A guardrail is asked for one workload, so its text may hold the placeholders below. Whether its series exist is left
to whoever asks it.
"""

import promql_parser

PLACEHOLDERS = ("$namespace", "$kind", "$workload")
"""What is replaced by the workload that is looked at. A `$` that begins none of them is no PromQL, and refused."""


def find_query_problem(query: str) -> str | None:
    """What is wrong with a query that is to give one number, and how to mend it; None when nothing is."""
    try:
        expression = promql_parser.parse(fill_placeholders(query, namespace="n", kind="k", workload="w"))
    except ValueError as error:
        reason = " ".join(str(error).split())
        return f"is no PromQL: {reason}; try it in Prometheus first"
    if isinstance(expression, promql_parser.MatrixSelector | promql_parser.SubqueryExpr):
        return "gives a range of samples; put a function such as avg_over_time around it"
    if isinstance(expression, promql_parser.StringLiteral):
        return "gives text; it must give a number"
    return None


def fill_placeholders(query: str, *, namespace: str, kind: str, workload: str) -> str:
    """The query for one workload."""
    for placeholder, value in zip(PLACEHOLDERS, (namespace, kind, workload), strict=True):
        query = query.replace(placeholder, value)
    return query

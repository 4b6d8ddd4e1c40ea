"""Queries that a namespace user writes must not crash the operator, nor cost it much time or memory."""

import resource
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.api.intent import TargetRef
from trimtab.intents.kpi.query import build_kpi_query
from trimtab.usage.prometheus.namespace_scope import NamespaceScope, find_scoped_problem
from trimtab.usage.prometheus.template import (
    MAX_COMMAS,
    MAX_LENGTH,
    MAX_MATCHERS,
    MAX_NESTING,
    MAX_OPERATORS,
    QueryError,
    find_query_problem,
)

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
REGEX_TOKENS = [r"\\pL", r"\\w", "[a-z]", "[^é]", "(", ")", "{9}", "{100}", "{1,40}", "|", "(?i)", "(?x)", ".*", "a", "ü", "[", "]",
                r"\\", r"\\[", "#", "$pods", "\n", "?", "{ 30 , 40 }", "(?:", "[]", "[[:alpha:]]"]  # fmt: skip
TEXT_TOKENS = [
    "\r",
    "#\r",
    '=~"\\\\pL{200}"',
    "by (a) ",
    "$name",
    '"$name"',
    "`",
    '"',
    "'",
    "\\",
    "#",
    "\n",
    "offset 5m",
    "@ 1",
    "\x00",
    "é",
]


@pytest.mark.parametrize("depth", [8001, 18001, 1_000_000])
@pytest.mark.parametrize(
    ("opening", "closing"), [("(", ")"), ("abs(", ")"), ("-(", ")"), ("sum by (a) (", ")")]
)
def test_deeply_nested_query_is_rejected_before_it_is_parsed(opening: str, closing: str, depth: int) -> None:
    """The parser overflowed its stack at 18,001 brackets, which ends the process, and took 1.3 GB for 8,001."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for count in (depth // len(opening), MAX_LENGTH // len(opening + closing) - 1):
        problem = find_query_problem(opening * count + "x" + closing * count)
        assert problem is not None
        assert "at most" in problem
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


@pytest.mark.parametrize("operator", ["+", "^", " and ", "==", "-", "- -"])
def test_query_with_many_operators_is_rejected_before_it_is_parsed(operator: str) -> None:
    query = operator.join(["x"] * 600)
    problem = find_query_problem(query)
    assert problem is not None
    assert "operators" in problem
    with pytest.raises(QueryError, match="operators"):
        build_kpi_query(query, namespace="shop", target=TARGET)


@pytest.mark.parametrize(
    "query",
    [
        "#\r" + "(" * 4090 + "1" + ")" * 4090,
        "1 #\r" + "+1" * 4000,
        "#\r" + "-" * 8000 + "1",
        'up{a="\x0b"}',
        "up # \u2028 or balance",
    ],
)
def test_query_with_control_characters_is_refused_before_it_is_parsed(query: str) -> None:
    """The parser ends a comment at a carriage return, so code after one was parsed without any bound: 1.3 GB, 25 s."""
    problem, grown = _measure(lambda: find_query_problem(query))[:2]
    assert "control character" in (problem or "")
    assert grown < 16 << 20
    with pytest.raises(QueryError, match="control character"):
        build_kpi_query(query, namespace="shop", target=TARGET)


LETTER, WORD = r"\\pL", r"\\w"
COSTLY_REGEXES = {
    "repeated-class": f'x{{a=~"{LETTER}{{230}}"}}',
    "many": "x{" + ",".join(f'a{number}=~"{LETTER}{{9}}"' for number in range(94)) + "}",
    "nested": 'x{a=~"((((a{100}){100}){100}){100})"}',
    "repeated-repetition": 'x{a=~"a{100}{100}{100}"}',
    "group-of-classes": f'x{{a!~"({WORD}|{LETTER}){{99}}"}}',
    "behind-comment": f'x{{a=~# "\n"{LETTER}{{99}}"}}',
    "behind-comments": f"x{{a=~ #\n\t# =~\n '{LETTER}{{99}}'}}",
    "raw": r"x{a=~`\pL{99}`}",
    "hidden": r'x{a=~"\x5cpL{99}"}',
    "octal": r'x{a=~"\134pL{99}"}',
    "set-behind-backslash": r'x{a=~"[\\\\](\\pL{99}){9}]"}',
    "parenthesis-in-set": f'x{{a=~"({LETTER}[)]){{99}}"}}',
    "comment-in-regex": f'x{{a=~"(?x)({LETTER}#)){{99}}"}}',
    "fold": 'x{a=~"(?i)([a-\ud7ff]){99}"}',
    "wide-set": 'x{a=~"[' + "".join(chr(0x100 + 2 * number) for number in range(3900)) + ']{1000}"}',
    "wide-count": 'x{a=~"[a-z]{ 999999 }"}',
}


@pytest.mark.parametrize("query", COSTLY_REGEXES.values(), ids=COSTLY_REGEXES)
def test_costly_regular_expression_is_refused_before_it_is_compiled(query: str) -> None:
    """The parser compiles regular expressions up to 10 MB each: 94 in 1,590 characters took 33 s and 1.2 GB."""
    problem, grown, seconds = _measure(lambda: find_query_problem(query))
    assert "regular expression" in (problem or "")
    assert "illegal regex" not in (problem or ""), "it was compiled"
    assert grown < 16 << 20
    assert seconds < 0.05


@given(st.lists(st.sampled_from(REGEX_TOKENS), max_size=40).map("".join))
def test_regular_expression_within_the_bound_compiles_quickly(pattern: str) -> None:
    query = f'x{{a=~"{pattern}"}}'
    _, grown, seconds = _measure(lambda: find_query_problem(query))
    assert seconds < 0.1
    assert grown < 32 << 20


DEEP = MAX_NESTING - 2
WORST = {
    "operators": "(" * DEEP + "x" + "+x" * MAX_OPERATORS + ")" * DEEP,
    "selectors": "+".join(['x{a="b",c="d"}'] * MAX_OPERATORS),
    "arguments": 'label_join(x,"a","b",' + ",".join(['""'] * (MAX_COMMAS - 4)) + ")",
    "grouping": "(" * (DEEP - 1) + "sum by (" + "a," * (MAX_COMMAS - 1) + "a) (x)" + ")" * (DEEP - 1),
    "matchers": "(" * (DEEP - 1) + "x{" + ",".join(['a="b"'] * MAX_MATCHERS) + "}" + ")" * (DEEP - 1),
    "classes": f'x{{a=~"{LETTER}{{14}}"}}',
    "alternatives": 'x{a=~"' + "|".join(f"a{number}" for number in range(1300)) + '"}',
    "strings": "(" * (DEEP - 1) + 'x{a="' + "b" * 8000 + '"}' + ")" * (DEEP - 1),
    "operators-and-classes": "(" * (DEEP - 1) + f'x{{a=~"{LETTER}{{10}}"}}' + "+x" * 120 + ")" * (DEEP - 1),
}


@pytest.mark.parametrize("query", WORST.values(), ids=WORST)
def test_worst_query_within_the_bounds_is_checked_within_milliseconds(query: str) -> None:
    scope = NamespaceScope("shop", "namespace")
    assert find_scoped_problem(query, scope) is None
    assert min(_measure(lambda: find_scoped_problem(query, scope))[2] for _ in range(5)) < 0.04


def _measure(check: Callable[[], str | None]) -> tuple[str | None, int, float]:
    """Return the result, the growth of the largest resident set in bytes, and the CPU seconds."""
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.thread_time()
    found = check()
    return (
        found,
        (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10,
        time.thread_time() - started,
    )


def test_query_with_a_hundred_selectors_is_not_refused_for_the_matchers_that_are_added() -> None:
    assert find_scoped_problem("+".join(["x"] * 110), NamespaceScope("shop", "namespace")) is None


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

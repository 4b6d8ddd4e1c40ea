"""Numbers before what they count."""

import pytest

from trimtab.plural import format_time_span, pluralize


@pytest.mark.parametrize(
    ("number", "words", "expected"),
    [
        (1, ("pod",), "1 pod"),
        (0, ("pod",), "0 pods"),
        (1234, ("query", "queries"), "1,234 queries"),
        (1.0, ("day",), "1 day"),
        (1.5, ("day",), "1.5 days"),
    ],
)
def test_pluralize_uses_the_singular_only_for_one(
    number: float, words: tuple[str, ...], expected: str
) -> None:
    assert pluralize(number, *words) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (14 * 86400, "14 days"),
        (86400, "1 day"),
        (1.25 * 86400, "1.2 days"),
        (7200, "2 hours"),
        (1800, "30 minutes"),
        (30, "0.5 minutes"),
    ],
)
def test_format_period_uses_the_largest_whole_unit(seconds: float, expected: str) -> None:
    assert format_time_span(seconds) == expected

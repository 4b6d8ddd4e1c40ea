"""Numbers before what they count."""

import pytest

from trimtab.counting import counted


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
def test_only_one_is_told_in_the_singular(number: float, words: tuple[str, ...], expected: str) -> None:
    assert counted(number, *words) == expected

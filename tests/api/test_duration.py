"""Durations mean what Go says they mean: every answer here is asked of Go itself."""

import pytest

from trimtab.api.duration import Duration
from trimtab.api.errors import DurationError


def test_seconds_come_and_go() -> None:
    assert Duration.parse("1h30m").seconds == 5400
    assert str(Duration.from_seconds(0.25)) == "250ms"
    assert Duration.parse("59s") < Duration.parse("1m")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("14d", 'unknown unit "d"; write days as hours, like 168h'),
        ("5 min", 'unknown unit " min"'),
        ("90", 'a unit is missing after "90"'),
        ("", "a number is missing"),
        ("s", "a number is missing"),
        ("300000000h", "longer than 292 years"),
    ],
)
def test_duration_error_names_the_problem(text: str, named: str) -> None:
    with pytest.raises(DurationError) as parse_error:
        Duration.parse(text)
    assert f'duration "{text}"' in str(parse_error.value)
    assert named in str(parse_error.value)

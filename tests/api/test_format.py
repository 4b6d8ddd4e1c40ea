"""Tests of the text forms of amounts."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.api.quantity import (
    GIB,
    MIB,
    format_exact,
    format_short,
    format_step,
    parse_memory_bytes,
    parse_millicores,
)


@given(amount=st.integers(0, 2**62))
@settings(max_examples=200)
def test_format_exact_is_parsed_back_to_the_same_amount(amount: int) -> None:
    assert parse_memory_bytes(format_exact("memory", amount)) == amount
    assert parse_millicores(format_exact("cpu", amount)) == amount


def test_formats_name_an_unset_amount_none() -> None:
    assert {form("cpu", None) for form in (format_exact, format_step, format_short)} == {"none"}


def test_format_step_uses_one_unit() -> None:
    assert [format_step("cpu", amount) for amount in (0, 250, 2000)] == ["0m", "250m", "2000m"]
    assert [format_step("memory", amount) for amount in (0, MIB // 2, 512 * MIB, 2 * GIB)] == [
        "0Mi",
        "0.5Mi",
        "512Mi",
        "2048Mi",
    ]


def test_format_short_keeps_three_digits() -> None:
    assert [format_short("cpu", amount) for amount in (0, 12, 999, 1000, 1250, 12_345, 250_400)] == [
        "0",
        "12m",
        "999m",
        "1",
        "1.25",
        "12.3",
        "250",
    ]
    assert [format_short("memory", amount * MIB) for amount in (0, 64, 1024, 1536, 102_400)] == [
        "0",
        "64Mi",
        "1Gi",
        "1.5Gi",
        "100Gi",
    ]

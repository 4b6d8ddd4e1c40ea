"""Quantities mean what Go says they mean: every answer here is asked of the library that clusters run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.api.errors import QuantityError
from trimtab.api.quantity import Quantity, parse_memory_bytes, parse_millicores

INT64 = 2**63 - 1
DIGITS = "0123456789"
SUFFIXES = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]

signs = st.sampled_from(["", "+", "-"])
digits = st.text(DIGITS, max_size=22)
zeros = st.integers(0, 24).map("0".__mul__)
numbers = st.one_of(
    st.builds("{}{}{}".format, signs, digits, st.just("") | digits.map(".{}".format)),
    st.text(DIGITS, min_size=1, max_size=4),
    st.builds("{}{}{}".format, zeros, st.integers(1, 999), zeros),
    st.builds("{}{}.{}{}{}".format, st.integers(1, 999), zeros, zeros, st.integers(0, 9), zeros),
    st.integers(-INT64 * 2, INT64 * 2).map(str),
)
# Exponents stay small only because Go would write the zeros out.
exponents = st.builds(
    "{}{}{:0{}}".format, st.sampled_from("eE"), signs, st.integers(0, 99), st.integers(1, 5)
)
written = st.builds(str.__add__, numbers, st.one_of(st.sampled_from(SUFFIXES), exponents))
amounts = written.filter(lambda text: text[:1].isdigit()).map(Quantity.parse)


@given(quantity=amounts)
def test_quantity_reads_back_from_its_canonical_text(quantity: Quantity) -> None:
    again = Quantity.parse(str(quantity))
    assert again == quantity
    assert hash(again) == hash(quantity)
    assert str(again) == str(quantity)


@given(one=amounts, other=amounts)
def test_order_is_the_order_of_the_amounts(one: Quantity, other: Quantity) -> None:
    assert (one < other) == (one.amount < other.amount)
    assert (one == other) == (one.amount == other.amount)
    assert (one <= other) == (not other < one)


@given(millis=st.integers(0, INT64))
def test_millicores_survive_being_written_and_read(millis: int) -> None:
    quantity = Quantity.from_millicores(millis)
    assert quantity.millicores == parse_millicores(str(quantity)) == millis


def test_sizes_are_written_as_people_write_them() -> None:
    assert str(Quantity.from_millicores(1500)) == "1500m"
    assert str(Quantity.from_millicores(2000)) == "2"
    assert str(Quantity.from_bytes(512 * 2**20)) == "512Mi"
    assert str(Quantity.from_bytes(1536 * 2**20)) == "1536Mi"
    assert Quantity.parse("250m").cores == 0.25


def test_quantity_is_equal_in_any_notation() -> None:
    assert {Quantity.parse("1"), Quantity.parse("1000m"), Quantity.parse("1e0")} == {
        Quantity.from_millicores(1000)
    }
    assert Quantity.parse("1") != 1


def test_quantity_beyond_int64_stays_at_its_bound() -> None:
    assert parse_memory_bytes("1e999999999") == INT64
    assert Quantity.parse("-1e30").bytes == -INT64
    assert parse_millicores("1E") == INT64


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("1.5GB", 'unknown suffix "GB"'),
        ("1 Gi", 'unknown suffix " Gi"'),
        ("", "is empty"),
        ("1.2.3", "more than one point"),
        ("lots", "does not start with a number"),
        ("1e", '"e" is not an exponent'),
        ("1e99999999999999999999", "is not an exponent"),
        ("Ei", "no number before the suffix"),
    ],
)
def test_quantity_error_names_the_problem_and_the_notation(text: str, named: str) -> None:
    with pytest.raises(QuantityError) as parse_error:
        Quantity.parse(text)
    assert f'quantity "{text}"' in str(parse_error.value)
    assert named in str(parse_error.value)
    assert "write it like" in str(parse_error.value)

"""Quantities mean what Go says they mean: every answer here is asked of the library that clusters run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.quantity import GoQuantity
from trimtab.api.errors import QuantityError
from trimtab.api.quantity import Quantity, QuantityFormat, parse_memory_bytes, parse_millicores

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
mangled = st.text(DIGITS + ".+-eEinumkKMGTPB sµ", max_size=8)
amounts = written.filter(lambda text: text[:1].isdigit()).map(Quantity.parse)
anything = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=5)

WRITTEN_BY_HAND = """
    0 -0 +0 00 0.0 0Ki . - + -. 5. .5 -.5 .5m 5.m 1. 1.e3 .e3 1e3 1E 1E3 1e 1.5e3 1e+3 1e-3 1e03 1ee3 1e3e 1e3.5
    e5 e-9 e-10 .e-10 E Ki Mi Gi Ti Pi Ei m n 0.1n 0.9n 1.1n -0.1n 1e-10 1e-30 0e-30 1.0000000001 0.0000000001
    1Ki5 1K 1ki 1KiB 1.5GB 1.5Z 1Zi 1i 1mi 1Em 1Mm 1m5 1-5 1+5 1e5- 0x10 1_000 1,5 ½ inf nan 1.2.3 --1 +-1 1e4294967297
    1023 1024 1Ki 1000Ki 1024Ki 1025Ki 0.5Ki 0.0001Ki 1.0001Ki -1.5Ki -1024Ki 1.5Gi 1536Mi 1073741824 7Ei 8Ei 7.9Ei
    9Ei 100Ei -8Ei 9223372036854775807 9223372036854775808 -9223372036854775808 99999999999999999999999 1E1E 999E
    -0303220500500211102534559.09515110005000000010m
    123456789012345678 1234567890123456789 0.123456789 0.1234567891 123456789.123456789 100000000000000000000Ki
    1500m 1000m 100m 2000m 1.500 1.000 0.500 0.5 1000 1000k 1000M 1000000000000000000 1.000000000000000001 1.5E 1e18
"""


def read(text: str) -> Quantity | None:
    try:
        return Quantity.parse(text)
    except QuantityError:
        return None


def agreed(go: GoQuantity, texts: list[str]) -> None:
    for text, said in zip(texts, go.ask([f"quantity {text}" for text in texts]), strict=True):
        ours = read(text)
        assert (ours is None) == ("error" in said), f"{text!r} is {said} to Go, {ours} to us"
        if ours is None:
            continue
        assert ours == Quantity.parse(said["decimal"]), text
        if (
            ours.format is not QuantityFormat.DECIMAL_SI or abs(ours.amount) < 10**21
        ):  # past that Go drops the suffix
            assert str(ours) == said["canonical"], text
        if 0 <= ours.amount <= INT64:
            assert ours.bytes == parse_memory_bytes(text) == said["value"], text
        if 0 <= ours.amount * 1000 <= INT64:
            assert ours.millicores == parse_millicores(text) == said["milli"], text


def test_what_people_and_mischief_write_reads_as_in_go(go_quantity: GoQuantity) -> None:
    agreed(go_quantity, WRITTEN_BY_HAND.split())
    agreed(go_quantity, ["", " ", " 1", "1 ", "1 Gi", "1\t", "\u0661"])


@given(texts=st.lists(st.one_of(written, mangled, anything), min_size=10, max_size=60))
def test_any_text_reads_as_in_go(go_quantity: GoQuantity, texts: list[str]) -> None:
    agreed(go_quantity, texts)


@given(quantity=amounts)
def test_the_canonical_text_reads_back_as_the_same_amount(quantity: Quantity) -> None:
    again = Quantity.parse(str(quantity))
    assert again == quantity
    assert hash(again) == hash(quantity)
    assert str(again) == str(quantity)


@given(one=amounts, other=amounts)
def test_order_is_the_order_of_the_amounts(one: Quantity, other: Quantity) -> None:
    assert (one < other) == (one.amount < other.amount)
    assert (one == other) == (one.amount == other.amount)
    assert (one <= other) == (not other < one)


@given(counts=st.lists(st.integers(0, INT64), min_size=10, max_size=60))
def test_bytes_are_written_so_that_go_reads_them(go_quantity: GoQuantity, counts: list[int]) -> None:
    said = go_quantity.ask([f"quantity {Quantity.from_bytes(count)}" for count in counts])
    assert [answer["value"] for answer in said] == counts


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


def test_the_same_amount_is_equal_however_written() -> None:
    assert {Quantity.parse("1"), Quantity.parse("1000m"), Quantity.parse("1e0")} == {
        Quantity.from_millicores(1000)
    }
    assert Quantity.parse("1") != 1


def test_a_whole_number_past_an_int64_stays_at_its_end() -> None:
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
        ("1e", '"e" is no exponent'),
        ("1e99999999999999999999", "is no exponent"),
        ("Ei", "no number before the suffix"),
    ],
)
def test_a_refusal_names_what_is_wrong_and_how_to_write_it(text: str, named: str) -> None:
    with pytest.raises(QuantityError) as refusal:
        Quantity.parse(text)
    assert f'quantity "{text}"' in str(refusal.value)
    assert named in str(refusal.value)
    assert "write it like" in str(refusal.value)

"""Quantities mean what Go says they mean: every answer here is asked of the library that clusters run."""

from hypothesis import given
from hypothesis import strategies as st

from api.test_quantity import DIGITS, INT64, written
from harness.peers.quantity import GoQuantity
from trimtab.api.errors import QuantityError
from trimtab.api.quantity import Quantity, QuantityFormat, parse_memory_bytes, parse_millicores

mangled = st.text(DIGITS + ".+-eEinumkKMGTPB sµ", max_size=8)
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


def test_quantity_parses_unusual_text_as_go_does(go_quantity: GoQuantity) -> None:
    agreed(go_quantity, WRITTEN_BY_HAND.split())
    agreed(go_quantity, ["", " ", " 1", "1 ", "1 Gi", "1\t", "\u0661"])


@given(texts=st.lists(st.one_of(written, mangled, anything), min_size=10, max_size=60))
def test_quantity_parses_any_text_as_go_does(go_quantity: GoQuantity, texts: list[str]) -> None:
    agreed(go_quantity, texts)


@given(counts=st.lists(st.integers(0, INT64), min_size=10, max_size=60))
def test_bytes_are_written_so_that_go_reads_them(go_quantity: GoQuantity, counts: list[int]) -> None:
    said = go_quantity.ask([f"quantity {Quantity.from_bytes(count)}" for count in counts])
    assert [answer["value"] for answer in said] == counts

"""Durations mean what Go says they mean: every answer here is asked of Go itself."""

from hypothesis import given
from hypothesis import strategies as st

from harness.peers.quantity import GoQuantity
from trimtab.api.duration import Duration
from trimtab.api.errors import DurationError

UNITS = ["ns", "us", "µs", "μs", "ms", "s", "m", "h"]

digits = st.text("0123456789", max_size=22)
parts = st.builds(
    str.__add__,
    digits | st.builds("{}.{}".format, digits, digits) | st.integers(0, 999).map(str),
    st.sampled_from([*UNITS, "s", "m", "h", "d", "", "sec"]),
)
written = st.builds(
    lambda sign, spans: sign + "".join(spans),
    st.sampled_from(["", "", "-", "+", "\u0661s"]),
    st.lists(parts, max_size=4),
)
anything = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), max_size=6)

WRITTEN_BY_HAND = """
    0 -0 +0 00 0s 0h . .s -.s 5 5s 5m30s 90s 1h 1.5h .5s 5.s 1h1h 1m1h -1.5h +5s --5s 1d 1w 1y 5min 100ms 1us 1µs 1μs
    0.3us 0.000000001h 1.0000000001s 0.9223372036854775808s 0.9223372036854775809s 0.99999999999999999999999s 2562047h
    2562048h 9223372036854775807ns 9223372036854775808ns -9223372036854775808ns -9223372036854775809ns 1e3s 1s1 s h
    1.2.3s 106751d 2562047h47m16.854775807s 2562047h47m16.854775808s 1S 1H  0.1ns 999ns 1000ns 999999ns 3600s 60m
    00000000000000000000000000000001s 1.00000000000000000000000000000001s 59.999999999s
"""


def read(text: str) -> Duration | None:
    try:
        return Duration.parse(text)
    except DurationError:
        return None


def agreed(go: GoQuantity, texts: list[str]) -> None:
    for text, said in zip(texts, go.ask([f"duration {text}" for text in texts]), strict=True):
        ours = read(text)
        assert (ours is None) == ("error" in said), f"{text!r} is {said} to Go, {ours} to us"
        if ours is None:
            continue
        assert (ours.nanoseconds, str(ours)) == (said.get("nanoseconds"), said.get("canonical")), (
            f"{text!r}: {said}"
        )


def test_duration_parses_unusual_text_as_go_does(go_quantity: GoQuantity) -> None:
    agreed(go_quantity, WRITTEN_BY_HAND.split())
    agreed(go_quantity, ["", " ", " 1s", "1s ", "5 m", "-", "+", "\u0661s"])


@given(texts=st.lists(st.one_of(written, anything), min_size=10, max_size=40))
def test_duration_parses_any_text_as_go_does(go_quantity: GoQuantity, texts: list[str]) -> None:
    agreed(go_quantity, texts)


@given(
    spans=st.lists(
        st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**10), 10**10), min_size=10, max_size=60
    )
)
def test_duration_is_formatted_as_go_formats_it(go_quantity: GoQuantity, spans: list[int]) -> None:
    ours = [str(Duration(span)) for span in spans]
    said = go_quantity.ask([f"duration {text}" for text in ours])
    assert [answer["canonical"] for answer in said] == ours
    assert [answer["nanoseconds"] for answer in said] == spans

"""States of strategies: reindexing keeps rows of remaining containers, and unpacking restores exactly what was packed."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from sizing.conformance import START, STEP, fleet, numbers, play, train
from trimtab.sizing import Settings, Strategy, Targets, strategy
from trimtab.sizing.state import NEW_ROW, Floats, Indices, pack, reindex, unpack


@pytest.mark.parametrize("name", ["vpa", "krr", "percentile", "autopilot-ml"])
def test_reindex_preserves_the_state_of_each_container(name: str) -> None:
    usage = fleet(days=6.0)
    half = usage.steps // 2
    rows = np.array([5, NEW_ROW, 1])
    moved = strategy(name, containers=usage.containers)
    for _ in play(moved, usage, stop=half):
        pass
    moved = reindex(moved, rows)

    columns = np.array([5, 3, 1])
    cpu, memory = usage.cpu[:, columns].copy(), usage.memory[:, columns].copy()
    cpu[:half, 1] = memory[:half, 1] = np.nan
    steady = strategy(name, containers=3)
    theirs = type(usage)(cpu, memory, usage.ooms[:, columns])
    for _ in play(steady, theirs):
        pass
    for _ in play(moved, theirs, start=half):
        pass
    end = START + usage.steps * STEP
    np.testing.assert_array_equal(numbers(moved.recommend(end)), numbers(steady.recommend(end)))


def test_reindex_rejects_duplicate_rows() -> None:
    with pytest.raises(ValueError, match="continue from the same row"):
        reindex(train("vpa", fleet(days=0.5)), np.array([0, 0]))


class Tuned(Settings):
    quantile: float = 0.9
    """The target of the state."""


class Dummy(Strategy[Tuned]):
    """A strategy in name only: a snapshot asks nothing else of it."""

    name = "dummy"
    settings_type = Tuned

    def observe(self, t: float, cpu: Floats, memory: Floats) -> None: ...
    def observe_oom(self, t: float, containers: Indices, memory: Floats) -> None: ...
    def recommend(self, t: float) -> Targets:
        raise NotImplementedError

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        raise NotImplementedError

    def load_arrays(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None: ...


ARRAYS: dict[str, npt.NDArray[Any]] = {
    "weights": np.array([[0.1, np.nan], [-0.0, np.inf]]),
    "counts": np.array([1, 2], dtype=np.uint32),
}


def dummy(containers: int = 2, **tuned: float) -> Dummy:
    return Dummy(containers, Tuned(**tuned))


@settings(max_examples=100)
@given(
    hnp.arrays(
        st.sampled_from([np.float64, np.float32, np.uint8, np.int64, np.bool_]),
        hnp.array_shapes(min_dims=1, max_dims=3, min_side=0),
    )
)
def test_unpack_returns_packed_arrays_bit_for_bit(array: npt.NDArray[Any]) -> None:
    (back,) = unpack(dummy(), pack(dummy(), {"a": array}), {"a": array}).values()
    assert (back.tobytes(), back.dtype, back.shape) == (array.tobytes(), array.dtype, array.shape)
    assert back.flags.writeable


def test_pack_is_deterministic() -> None:
    assert pack(dummy(), ARRAYS) == pack(dummy(), {name: array.copy() for name, array in ARRAYS.items()})


def test_unpack_accepts_pool_of_any_length() -> None:
    back = unpack(dummy(), pack(dummy(), {"cpu.pool": np.zeros((7, 2))}), {"cpu.pool": np.zeros((1, 2))})
    assert back["cpu.pool"].shape == (7, 2)


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (b"", "not a snapshot"),
        (b"\x80\x04\x95 anything", "not a snapshot"),
        (pack(dummy(), ARRAYS)[:10], "cut short"),
        (pack(dummy(), ARRAYS)[:-1], "checksum"),
        (pack(dummy(3), ARRAYS), "of 3 containers, not of 2"),
        (pack(dummy(quantile=0.5), ARRAYS), "learned with quantile = 0.5, not 0.9"),
        (pack(dummy(), {"weights": ARRAYS["weights"]}), "array 'counts' is missing"),
        (pack(dummy(), {**ARRAYS, "more": ARRAYS["counts"]}), "array 'more' is not one"),
        (pack(dummy(), {**ARRAYS, "counts": np.zeros(2)}), "array 'counts' is <f8"),
        (pack(dummy(), {**ARRAYS, "counts": ARRAYS["counts"][:1]}), r"array 'counts' is <u4 \(1,\)"),
    ],
)
def test_unpack_rejects_invalid_bytes_with_a_reason(state: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        unpack(dummy(), state, ARRAYS)


def test_unpack_detects_every_flipped_bit() -> None:
    state = pack(dummy(), ARRAYS)
    for place in range(len(state)):
        broken = bytearray(state)
        broken[place] ^= 1
        with pytest.raises(ValueError, match=r"^state: "):
            unpack(dummy(), bytes(broken), ARRAYS)


def test_unpack_rejects_state_of_another_strategy() -> None:
    class Other(Dummy):
        name = "other"

    with pytest.raises(ValueError, match="of strategy 'other', not of 'dummy'"):
        unpack(dummy(), pack(Other(2, Tuned()), ARRAYS), ARRAYS)


def test_state_with_the_averages_of_an_earlier_version_is_restored() -> None:
    sizer = train("trimtab", fleet(days=1.0))
    former = {"cpu.shape": np.ones((5, 5, 88)), "memory.fleet": np.ones((5, 5))}
    stored = pack(sizer, {**sizer.arrays(), **former})
    again = strategy("trimtab", sizer.containers)
    again.restore(stored)
    assert again.state() == sizer.state()

"""Kernels of a library that was just built, beside numba's."""

from pathlib import Path
from typing import Any, NamedTuple

import numba
import numpy as np
import pytest

from trimtab.errors import TrimtabError
from trimtab.kernel_builder import build_library
from trimtab.kernel_library import DifferentTypes, KernelLibrary


class ScaledTable(NamedTuple):
    values: Any
    factor: float


@numba.njit
def scale(pair: ScaledTable, count: int, negated: bool, small: Any) -> Any:  # noqa: FBT001 - kernels take no keywords
    total = 0.0
    for row in range(count):
        for value in pair.values[row]:
            total += value * pair.factor
    return (-total if negated else total), int(small[0]), not negated


@numba.njit
def multiply(left: Any, right: Any) -> Any:
    table = np.empty((left.size, right.size))
    for row in range(left.size):
        table[row] = left[row] * right
    return table


@numba.njit(nogil=True)
def divide(whole: int, part: int) -> int:
    return whole // part


@numba.njit
def clear(values: Any) -> None:
    values[:] = 0


TABLE, SMALL = np.arange(6.0).reshape(3, 2), np.array([200], np.uint8)
KERNELS = {"scale": scale, "multiply": multiply, "divide": divide, "clear": clear}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> KernelLibrary:
    scale(ScaledTable(TABLE, 2.0), 3, True, SMALL)
    multiply(np.ones(2), np.ones(3))
    divide(1, 1)
    clear(np.ones(2, np.float32))
    folder = tmp_path_factory.mktemp("kernels")
    build_library(folder, KERNELS)
    return KernelLibrary(folder)


def call(library: KernelLibrary, name: str, *arguments: Any) -> Any:
    (kernel,) = library.find_kernels(name)
    return kernel(arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        (ScaledTable(TABLE, 2.0), 3, True, SMALL),
        (ScaledTable(TABLE, np.float64(0.1)), np.int32(2), np.False_, SMALL),
        (ScaledTable(np.empty((0, 2)), 3), 0, False, SMALL),
    ],
)
def test_kernel_of_a_library_returns_what_numba_returns(
    library: KernelLibrary, arguments: tuple[Any, ...]
) -> None:
    assert call(library, "scale", *arguments) == scale(*arguments)


@pytest.mark.parametrize("lengths", [(3, 4), (0, 4), (1, 1)])
def test_kernel_of_a_library_returns_arrays(library: KernelLibrary, lengths: tuple[int, int]) -> None:
    left, right = (np.arange(float(each)) + 0.1 for each in lengths)
    found = call(library, "multiply", left, right)
    assert found.flags.writeable
    np.testing.assert_array_equal(found, multiply(left, right), strict=True)


def test_kernel_of_a_library_writes_to_arrays(library: KernelLibrary) -> None:
    values = np.ones(3, np.float32)
    assert call(library, "clear", values) is None
    assert not values.any()


def test_kernel_of_a_library_reports_errors(library: KernelLibrary) -> None:
    assert call(library, "divide", -7, 2) == -4
    with pytest.raises(RuntimeError, match="compiled kernel divide failed"):
        call(library, "divide", 1, 0)


READ_ONLY = np.ones(3, np.float32)
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    "arguments",
    [
        ("clear", READ_ONLY),
        ("clear", np.ones(6, np.float32)[::2]),
        ("clear", np.ones(3)),
        ("clear", np.ones((3, 1), np.float32)),
        ("clear", [1.0]),
        ("clear",),
        ("divide", 2**70, 1),
        ("divide", 1.5, 1),
        ("scale", (TABLE,), 1, True, SMALL),
        ("scale", ScaledTable(TABLE, 1.0), 1, 1, SMALL),
    ],
)
def test_kernel_of_a_library_refuses_other_types(library: KernelLibrary, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(DifferentTypes):
        call(library, *arguments)


@numba.njit
def return_both(values: Any) -> Any:
    return values * 2, 1.0


@numba.njit
def return_given(values: Any, doubled: bool) -> Any:  # noqa: FBT001 - kernels take no keywords
    if doubled:
        return values * 2
    return values[1:]


@pytest.mark.parametrize(
    ("kernel", "arguments", "what"),
    [
        (return_both, (TABLE,), "a tuple with an array"),
        (return_given, (TABLE, False), "an array of its arguments"),
    ],
)
def test_library_refuses_results_that_cannot_be_read(
    kernel: Any, arguments: tuple[Any, ...], what: str, tmp_path: Path
) -> None:
    """They were read as addresses, and the process crashed when it released them."""
    kernel(*arguments)
    with pytest.raises(TrimtabError, match=f"kernel it returns {what}: return one new array, or scalars"):
        build_library(tmp_path, {"it": kernel})


def test_library_needs_the_sources_that_it_was_built_from(tmp_path: Path) -> None:
    divide(1, 1)
    build_library(tmp_path, {"divide": divide})
    (listed := tmp_path / "kernels.json").write_text(listed.read_text().replace('.py": "', '.py": "0'))
    with pytest.raises(TrimtabError, match=r"compiled from another version of .*test_kernel_builder\.py"):
        KernelLibrary(tmp_path)

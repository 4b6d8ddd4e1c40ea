"""The memory of nested calls."""

import resource
from concurrent.futures import ThreadPoolExecutor

from trimtab.frame_memory import call_with_frame_memory

LOOPS = 500
DEPTH = 400


def _descend(depth: int) -> None:
    if depth:
        _descend(depth - 1)


def _count_pages() -> int:
    """Return the number of pages that the kernel gave to a loop of deep calls."""
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    for _ in range(LOOPS):
        _descend(DEPTH)
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before


def test_repeated_deep_calls_ask_the_kernel_for_memory_once() -> None:
    with ThreadPoolExecutor(1) as thread:  # whose frames are not those of pytest
        assert thread.submit(call_with_frame_memory, _count_pages).result() < LOOPS / 2


def test_result_of_a_call_comes_through() -> None:
    assert call_with_frame_memory(lambda: 7) == 7

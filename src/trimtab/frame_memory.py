"""Reserve the memory of nested calls once.

CPython keeps the frames of a thread in chunks of 16 KiB, and up to 3.14 returns a chunk to the kernel with its first frame.
A loop whose calls cross that border gets a new chunk in each pass: it took up to three times the CPU, by its depth alone.
"""

from collections.abc import Callable
from types import FunctionType
from typing import TypeVar, cast

T = TypeVar("T")

_SLOTS = 1 << 16
"""The slots of 8 bytes of a frame that needs a chunk of its own, of twice that size; the kernel gives only what is used."""


def _call(function: Callable[[], T]) -> T:
    return function()


_call_in_large_frame = cast(
    Callable[[Callable[[], object]], object], FunctionType(_call.__code__.replace(co_stacksize=_SLOTS), {})
)


def call_with_frame_memory(function: Callable[[], T]) -> T:
    """Call a function with half a mebibyte for the frames of all that it calls, and return its result."""
    return cast(T, _call_in_large_frame(function))

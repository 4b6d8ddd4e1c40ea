"""Numbers from text at the speed of reading it: `[[1700000000,"0.25"],…]`, as every PromQL server writes samples.

Only what is usual is read, to the last bit but one; at anything else this gives up, and the caller reads it slowly and
judges it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

from trimtab.usage.trace import Floats

_TENS = np.array([float(f"1e{power}") for power in range(23)])
"""Those that are exact."""
_MOST_DIGITS = 19
"""That an unsigned integer of 64 bits holds for sure."""

_COMMA, _QUOTE, _OPEN, _CLOSE, _DOT, _MINUS, _PLUS = (ord(sign) for sign in ',"[].-+')
_ZERO, _NINE, _SMALL_E, _N, _A = (ord(sign) for sign in "09eNa")


@njit(cache=True)
def read_pairs(text: npt.NDArray[np.uint8], flat: Floats) -> bool:
    """Fill `flat` with a time and a value for each sample; False when the text is not exactly that."""
    at, end, count = 1, text.size, 0
    if end < 2 or text[0] != _OPEN or text[end - 1] != _CLOSE:
        return False
    while count < flat.size:
        if count > 0:
            if at >= end or text[at] != _COMMA:
                return False
            at += 1
        if at >= end or text[at] != _OPEN:
            return False
        at, flat[count] = _number(text, at + 1)
        if at < 0 or at + 1 >= end or text[at] != _COMMA or text[at + 1] != _QUOTE:
            return False
        at, flat[count + 1] = _number(text, at + 2)
        if at < 0 or at + 1 >= end or text[at] != _QUOTE or text[at + 1] != _CLOSE:
            return False
        at += 2
        count += 2
    return bool(at == end - 1)


@njit(cache=True)
def _number(text: npt.NDArray[np.uint8], at: int) -> tuple[int, float]:
    """The number that begins here and where it ends; -1 when none does."""
    end = text.size
    if at + 3 <= end and text[at] == _N and text[at + 1] == _A and text[at + 2] == _N:
        return at + 3, np.nan
    negative = at < end and text[at] == _MINUS
    at += negative
    whole, digits, power, dot = np.uint64(0), 0, 0, False
    while at < end and (_ZERO <= text[at] <= _NINE or (text[at] == _DOT and not dot)):
        if text[at] == _DOT:
            dot = True
        else:
            whole = whole * np.uint64(10) + np.uint64(text[at] - _ZERO)
            digits += 1 if whole > 0 or digits > 0 else 0
            power -= dot
            if digits > _MOST_DIGITS:
                return -1, 0.0
        at += 1
    if digits == 0 and (at == 0 or text[at - 1] != _ZERO):
        return -1, 0.0
    if at < end and text[at] == _SMALL_E:
        at += 1
        below = at < end and text[at] == _MINUS
        at += at < end and (text[at] == _MINUS or text[at] == _PLUS)
        written = 0
        begin = at
        while at < end and _ZERO <= text[at] <= _NINE and at - begin < 4:
            written = written * 10 + int(text[at] - _ZERO)
            at += 1
        if at == begin:
            return -1, 0.0
        power += -written if below else written
    if power < -22 or power > 22:
        return -1, 0.0
    value = float(whole) / _TENS[-power] if power < 0 else float(whole) * _TENS[power]
    return at, -value if negative else value

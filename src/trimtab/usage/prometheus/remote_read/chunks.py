"""Decode Prometheus' XOR chunks: delta-of-delta timestamps and XOR-compressed values.

The format is Facebook's Gorilla as written by Prometheus (tsdb/chunkenc/xor.go). No chunk is trusted: a
truncated one is detected. All chunks are decoded in place in the response, without a Python object or call
per chunk. Pure.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trimtab.kernel import kernel
from trimtab.usage.trace import Floats

Bytes = npt.NDArray[np.uint8]
Times = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]
Spans = npt.NDArray[np.int64]
"""One row per item: its begin and end."""

_HEADER = 2
DAMAGED = -1
_TOP_BIT_SHIFT = np.uint64(63)
PADDING_BYTES = 64
"""The number of zeros after a response, so that a damaged chunk cannot be read beyond its end."""
_MIN_WORD_BITS = 57
"""The number of valid bits of a word read from any position."""


class PackedChunks(NamedTuple):
    """The chunks of many series within one byte array."""

    data: Bytes
    """The response and its padding."""
    chunks: Spans
    """The begin and end of each chunk."""
    begins: Numbers
    """The index of the first chunk of each series, followed by the number of chunks."""

    @classmethod
    def from_padded(cls, body: bytes, *, chunks: Spans, begins: Numbers) -> PackedChunks:
        """Find chunks in a response with its padding, without a copy: it may have many megabytes."""
        return cls(np.frombuffer(body, np.uint8), chunks, begins)


@kernel(nogil=True)
def count_samples(packed: PackedChunks, series: int) -> int:
    """Return the number of samples that a series declares."""
    found = 0
    for number in range(packed.begins[series], packed.begins[series + 1]):
        begin, end = packed.chunks[number]
        if end >= begin + _HEADER:
            found += _read_count(packed.data, begin)
    return found


@kernel(nogil=True)
def unpack_series(packed: PackedChunks, series: int, times: Times, values: Floats) -> int:
    """Fill in the times in milliseconds and values of a series; return their number, or `DAMAGED`.

    The arrays must hold the number of samples that `count_samples` returns.
    """
    bits, filled = values.view(np.uint64), 0
    for number in range(packed.begins[series], packed.begins[series + 1]):
        begin, end = packed.chunks[number]
        if end < begin + _HEADER:
            return DAMAGED
        until = filled + _read_count(packed.data, begin)
        target = times[filled:until], bits[filled:until]
        if until > filled and _decode(packed.data, begin, end, *target) == DAMAGED:
            return DAMAGED
        filled = until
    return filled


@kernel(nogil=True)
def _read_count(data: Bytes, begin: int) -> int:
    return int(np.int64(data[begin]) << 8) + int(np.int64(data[begin + 1]))


@kernel(nogil=True, inline="always")
def _read_word(data: Bytes, at: int) -> np.uint64:
    """Return at least 57 bits from a position on, the first of them highest.

    Inlined like `_read_bits`: with a call each, which counts references to the array, decoding took three
    times as long.
    """
    index = np.uint64(at >> 3)  # unsigned, which avoids a check for negative indices
    word = np.uint64(0)
    for byte in range(8):  # compiled to a single load
        word = word << np.uint64(8) | np.uint64(data[index + np.uint64(byte)])
    return word << np.uint64(at & 7)


@kernel(nogil=True, inline="always")
def _read_bits(data: Bytes, at: int, count: int | np.int64) -> np.uint64:
    """Return `count` bits, at least one, from a position on."""
    if count <= _MIN_WORD_BITS:
        return _read_word(data, at) >> np.uint64(64 - count)
    rest = count - 32
    upper = _read_word(data, at) >> np.uint64(32)
    return upper << np.uint64(rest) | _read_word(data, at + 32) >> np.uint64(64 - rest)


@kernel(nogil=True)
def _read_varint(data: Bytes, at: int) -> tuple[np.uint64, int]:
    """Return an unsigned varint and its end."""
    found, shift = np.uint64(0), 0
    position = at
    while shift < 64:
        byte = _read_bits(data, position, 8)
        position += 8
        found |= (byte & np.uint64(0x7F)) << np.uint64(shift)
        if byte < np.uint64(0x80):
            break
        shift += 7
    return found, position


@kernel(nogil=True)
def _sign_extend(found: np.uint64, width: int) -> np.int64:
    if width == 64:
        return np.int64(found)
    number = np.int64(found)
    return number - (np.int64(1) << width) if number > (np.int64(1) << (width - 1)) else number


@kernel(nogil=True)
def _read_delta_change(data: Bytes, at: int) -> tuple[np.int64, int]:
    """Return the change of the time delta and its end, for a delta that changed."""
    word, ones = _read_word(data, at), 1
    while ones < 4 and word >> np.uint64(63 - ones) & np.uint64(1):
        ones += 1
    position = at + min(ones + 1, 4)
    width = 14 if ones == 1 else 17 if ones == 2 else 20 if ones == 3 else 64
    return _sign_extend(_read_bits(data, position, width), width), position + width


@kernel(nogil=True)
def _decode(data: Bytes, begin: int, end: int, times: Times, values: Bits) -> int:
    """Fill in times and value bits, at least one; return their number, or `DAMAGED`."""
    count = times.size
    zigzag, at = _read_varint(data, 8 * (begin + _HEADER))
    t = np.int64(zigzag >> np.uint64(1)) ^ -np.int64(zigzag & np.uint64(1))
    bits = _read_bits(data, at, 64)
    at += 64
    if at > 8 * end:
        return DAMAGED
    times[0], values[0] = t, bits
    delta, change = np.int64(0), np.int64(0)
    leading, width = np.int64(0), np.int64(64)
    for number in range(1, count):
        if number == 1:
            first, at = _read_varint(data, at)
            delta = np.int64(first)
        elif _read_word(data, at) >> _TOP_BIT_SHIFT:  # the interval changed
            change, at = _read_delta_change(data, at)
            delta += change
        else:
            at += 1
        t += delta
        word = _read_word(data, at)
        at += 1
        if word >> _TOP_BIT_SHIFT:  # the value changed
            at += 1
            if word >> np.uint64(62) & np.uint64(1):  # in other bits than before
                leading = np.int64(word >> np.uint64(57) & np.uint64(31))
                width = np.int64(word >> np.uint64(51) & np.uint64(63))
                if width == 0:  # 64 does not fit in six bits
                    width = np.int64(64)
                at += 11
            if leading + width > 64:
                return DAMAGED
            bits ^= _read_bits(data, at, width) << np.uint64(64 - leading - width)
            at += int(width)
        if at > 8 * end:
            return DAMAGED
        times[number], values[number] = t, bits
    return count

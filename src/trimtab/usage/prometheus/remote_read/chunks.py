"""Prometheus' XOR chunks: times as differences of differences, values as the bits in which they differ.

The format is that of Facebook's Gorilla as Prometheus writes it (tsdb/chunkenc/xor.go). Nothing in a chunk is trusted:
one that ends too early says so. All chunks are read where they lie in an answer, so that there is no Python object and
no call for each. Pure.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from trimtab.usage.trace import Floats

Bytes = npt.NDArray[np.uint8]
Times = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]
Spans = npt.NDArray[np.int64]
"""A row for each thing: where it begins and where it ends."""

_HEADER = 2
DAMAGED = -1
_TOP_BIT_SHIFT = np.uint64(63)
_PADDING_BYTES = 64
_MIN_WORD_BITS = 57
"""Bits that a word has from any place on."""


class PackedChunks(NamedTuple):
    """The chunks of many series, wherever they lie in a run of bytes."""

    data: Bytes
    """With some bytes more at the end, which a damaged chunk is read into before it shows."""
    chunks: Spans
    """Where each chunk begins and ends."""
    begins: Numbers
    """The number of the first chunk of each series; at last that of all chunks."""

    @classmethod
    def from_body(cls, body: bytes, *, chunks: Spans, begins: Numbers) -> PackedChunks:
        return cls(np.frombuffer(body + bytes(_PADDING_BYTES), np.uint8), chunks, begins)


@njit(cache=True, nogil=True)
def count_samples(packed: PackedChunks, series: int) -> int:
    """How many samples a series says that it has."""
    found = 0
    for number in range(packed.begins[series], packed.begins[series + 1]):
        begin, end = packed.chunks[number]
        if end >= begin + _HEADER:
            found += _read_count(packed.data, begin)
    return found


@njit(cache=True, nogil=True)
def unpack_series(packed: PackedChunks, series: int, times: Times, values: Floats) -> int:
    """Fill in times in milliseconds and values of a series as its chunks hold them; the answer is how many, or `DAMAGED`.

    There must be room for as many as are `counted`.
    """
    bits, filled = values.view(np.uint64), 0
    for number in range(packed.begins[series], packed.begins[series + 1]):
        begin, end = packed.chunks[number]
        if end < begin + _HEADER:
            return DAMAGED
        until = filled + _read_count(packed.data, begin)
        room = times[filled:until], bits[filled:until]
        if until > filled and _decode(packed.data, begin, end, *room) == DAMAGED:
            return DAMAGED
        filled = until
    return filled


@njit(cache=True, nogil=True)
def _read_count(data: Bytes, begin: int) -> int:
    return int(np.int64(data[begin]) << 8) + int(np.int64(data[begin + 1]))


@njit(cache=True, nogil=True, inline="always")
def _read_word(data: Bytes, at: int) -> np.uint64:
    """The bits from a place on, the first of them highest: 57 at least.

    In line, as `_bits`: with a call for each, which counts references to the bytes, a sample took three times as long.
    """
    index = np.uint64(at >> 3)  # unsigned, or each place is looked at for being counted from the end
    word = np.uint64(0)
    for byte in range(8):  # which is compiled to a single load
        word = word << np.uint64(8) | np.uint64(data[index + np.uint64(byte)])
    return word << np.uint64(at & 7)


@njit(cache=True, nogil=True, inline="always")
def _read_bits(data: Bytes, at: int, count: int | np.int64) -> np.uint64:
    """So many bits from a place on, of which there is at least one."""
    if count <= _MIN_WORD_BITS:
        return _read_word(data, at) >> np.uint64(64 - count)
    rest = count - 32
    upper = _read_word(data, at) >> np.uint64(32)
    return upper << np.uint64(rest) | _read_word(data, at + 32) >> np.uint64(64 - rest)


@njit(cache=True, nogil=True)
def _read_varint(data: Bytes, at: int) -> tuple[np.uint64, int]:
    """An unsigned number of seven bits a byte, and where it ends."""
    found, shift = np.uint64(0), 0
    place = at
    while shift < 64:
        byte = _read_bits(data, place, 8)
        place += 8
        found |= (byte & np.uint64(0x7F)) << np.uint64(shift)
        if byte < np.uint64(0x80):
            break
        shift += 7
    return found, place


@njit(cache=True, nogil=True)
def _sign_extend(found: np.uint64, width: int) -> np.int64:
    if width == 64:
        return np.int64(found)
    number = np.int64(found)
    return number - (np.int64(1) << width) if number > (np.int64(1) << (width - 1)) else number


@njit(cache=True, nogil=True)
def _read_delta_change(data: Bytes, at: int) -> tuple[np.int64, int]:
    """By how much a difference of times differs from the one before, where it does, and where that ends."""
    word, ones = _read_word(data, at), 1
    while ones < 4 and word >> np.uint64(63 - ones) & np.uint64(1):
        ones += 1
    place = at + min(ones + 1, 4)
    width = 14 if ones == 1 else 17 if ones == 2 else 20 if ones == 3 else 64
    return _sign_extend(_read_bits(data, place, width), width), place + width


@njit(cache=True, nogil=True)
def _decode(data: Bytes, begin: int, end: int, times: Times, values: Bits) -> int:
    """Fill in times and the bits of values, one at least; the answer is how many, or that the chunk is damaged."""
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
        elif (
            _read_word(data, at) >> _TOP_BIT_SHIFT
        ):  # not as long after the last as that after the one before
            change, at = _read_delta_change(data, at)
            delta += change
        else:
            at += 1
        t += delta
        word = _read_word(data, at)
        at += 1
        if word >> _TOP_BIT_SHIFT:  # another value than the last
            at += 1
            if word >> np.uint64(62) & np.uint64(1):  # that differs in other places
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

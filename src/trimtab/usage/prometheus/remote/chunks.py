"""Prometheus' XOR chunks: times as differences of differences, values as the bits in which they differ.

The format is that of Facebook's Gorilla as Prometheus writes it (tsdb/chunkenc/xor.go). Nothing in a chunk is trusted:
one that ends too early says so. All chunks of an answer are kept as one run of bytes, so that there is no Python object
and no call for each. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import njit

from trimtab.usage.trace import Floats

Bytes = npt.NDArray[np.uint8]
Times = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint64]

_HEADER = 2
DAMAGED = -1


class Packed(NamedTuple):
    """The chunks of many series, one after the other."""

    data: Bytes
    ends: npt.NDArray[np.int64]
    """Where each chunk ends."""
    begins: npt.NDArray[np.int64]
    """The number of the first chunk of each series; at last that of all chunks."""


def packed(chunks: Sequence[Sequence[bytes]]) -> Packed:
    """The chunks of each series, in the order of time."""
    every = [chunk for own in chunks for chunk in own]
    return Packed(
        np.frombuffer(b"".join(every), np.uint8),
        np.cumsum([len(chunk) for chunk in every], dtype=np.int64),
        np.cumsum([0, *map(len, chunks)], dtype=np.int64),
    )


@njit(cache=True, nogil=True)
def counted(chunks: Packed, series: int) -> int:
    """How many samples a series says that it has."""
    found = 0
    for number in range(chunks.begins[series], chunks.begins[series + 1]):
        begin = chunks.ends[number - 1] if number else 0
        if chunks.ends[number] >= begin + _HEADER:
            found += (int(chunks.data[begin]) << 8) + int(chunks.data[begin + 1])
    return found


@njit(cache=True, nogil=True)
def unpack(chunks: Packed, series: int, times: Times, values: Floats) -> int:
    """Fill in times in milliseconds and values of a series as its chunks hold them; the answer is how many, or `DAMAGED`.

    There must be room for as many as are `counted`.
    """
    bits, begin = values.view(np.uint64), 0
    for number in range(chunks.begins[series], chunks.begins[series + 1]):
        first = chunks.ends[number - 1] if number else 0
        chunk = chunks.data[first : chunks.ends[number]]
        if chunk.size < _HEADER:
            return DAMAGED
        end = begin + (int(chunk[0]) << 8) + int(chunk[1])
        if _decode(chunk, times[begin:end], bits[begin:end]) == DAMAGED:
            return DAMAGED
        begin = end
    return begin


@njit(cache=True, nogil=True)
def _bits(data: Bytes, at: int, count: int | np.int64) -> np.uint64:
    """So many bits from a place on; zeros beyond the end, which the caller looks for."""
    found = np.uint64(0)
    left = int(count)
    place = at
    while left > 0:
        index = place >> 3
        byte = np.uint64(data[index]) if index < data.size else np.uint64(0)
        free = 8 - (place & 7)
        take = min(free, left)
        piece = (byte >> np.uint64(free - take)) & np.uint64((1 << take) - 1)
        found = (found << np.uint64(take)) | piece
        place += take
        left -= take
    return found


@njit(cache=True, nogil=True)
def _bit(data: Bytes, at: int) -> bool:
    index = at >> 3
    return index < data.size and (data[index] >> (7 - (at & 7))) & 1 == 1


@njit(cache=True, nogil=True)
def _varint(data: Bytes, at: int) -> tuple[np.uint64, int]:
    """An unsigned number of seven bits a byte, and where it ends."""
    found, shift = np.uint64(0), 0
    place = at
    while shift < 64:
        byte = _bits(data, place, 8)
        place += 8
        found |= (byte & np.uint64(0x7F)) << np.uint64(shift)
        if byte < np.uint64(0x80):
            break
        shift += 7
    return found, place


@njit(cache=True, nogil=True)
def _signed(found: np.uint64, width: int) -> np.int64:
    if width == 64:
        return np.int64(found)
    number = np.int64(found)
    return number - (np.int64(1) << width) if number > (np.int64(1) << (width - 1)) else number


@njit(cache=True, nogil=True)
def _change(data: Bytes, at: int) -> tuple[np.int64, int]:
    """By how much a difference of times differs from the one before, and where that ends."""
    ones = 0
    while ones < 4 and _bit(data, at + ones):
        ones += 1
    place = at + min(ones + 1, 4)
    width = 0 if ones == 0 else 14 if ones == 1 else 17 if ones == 2 else 20 if ones == 3 else 64
    changed = _signed(_bits(data, place, width), width) if width else np.int64(0)
    return changed, place + width


@njit(cache=True, nogil=True)
def _decode(data: Bytes, times: Times, values: Bits) -> int:
    """Fill in times and the bits of values; the answer is how many, or that the chunk is damaged."""
    count = times.size
    if count == 0:
        return 0
    zigzag, at = _varint(data, 8 * _HEADER)
    t = np.int64(zigzag >> np.uint64(1)) ^ -np.int64(zigzag & np.uint64(1))
    bits = _bits(data, at, 64)
    at += 64
    times[0], values[0] = t, bits
    delta, change = np.int64(0), np.int64(0)
    leading, width = np.int64(0), np.int64(64)
    for number in range(1, count):
        if number == 1:
            first, at = _varint(data, at)
            delta = np.int64(first)
        else:
            change, at = _change(data, at)
            delta += change
        t += delta
        if _bit(data, at):
            at += 1
            if _bit(data, at):
                leading = np.int64(_bits(data, at + 1, 5))
                width = np.int64(_bits(data, at + 6, 6))
                if width == 0:  # 64 does not fit in six bits
                    width = np.int64(64)
                at += 11
            at += 1
            if leading + width > 64:
                return DAMAGED
            bits ^= _bits(data, at, width) << np.uint64(64 - leading - width)
            at += int(width)
        else:
            at += 1
        if at > 8 * data.size:
            return DAMAGED
        times[number], values[number] = t, bits
    return count

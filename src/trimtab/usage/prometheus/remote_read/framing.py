"""Locate the labels and chunks of each series in a response without creating protobuf objects.

A response has hundreds of thousands of chunks, and a message object for each took as long as everything else.
The fields that lead to them are therefore parsed by hand; labels are left to the protobuf library. Nothing is
trusted: truncated, damaged and foreign responses are distinguished. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from trimtab.kernel import kernel
from trimtab.usage.errors import UsageResponseError
from trimtab.usage.prometheus.remote_read.chunks import Bytes, Numbers, Spans
from trimtab.usage.prometheus.remote_read.messages.remote_pb2 import (
    Chunk,
    ChunkedReadResponse,
    ChunkedSeries,
)

_CASTAGNOLI = 0x82F63B78
_CHECKSUM_BYTES = 4
"""The bytes of the checksum before each frame."""
_VARINT, _FIXED64, _LENGTH_DELIMITED, _FIXED32 = 0, 1, 2, 5
"""The protobuf wire types."""
_CUT_OFF, _DAMAGED, _UNREADABLE = -1, -2, -3
_ERROR_TEXTS = {
    _CUT_OFF: "is cut off",
    _DAMAGED: "has a frame whose checksum is wrong",
    _UNREADABLE: "has a frame that cannot be read",
}
_SERIES = ChunkedReadResponse.CHUNKED_SERIES_FIELD_NUMBER
_LABELS, _CHUNKS = ChunkedSeries.LABELS_FIELD_NUMBER, ChunkedSeries.CHUNKS_FIELD_NUMBER
_TYPE, _DATA = Chunk.TYPE_FIELD_NUMBER, Chunk.DATA_FIELD_NUMBER
_XOR = int(Chunk.XOR)


class FrameIndex(NamedTuple):
    """The positions of series in a response; a series that spans several frames appears repeatedly."""

    labels: Spans
    """The labels of each series, which form a message of their own without the chunks."""
    first_chunks: Numbers
    """The index of the first chunk of each series."""
    chunks: Spans


def index_frames(body: Bytes) -> FrameIndex:
    """Locate each series in a response; raise `UsageResponseError` if it is incomplete."""
    counting = FrameIndex(np.empty((0, 2), np.int64), np.empty(0, np.int64), np.empty((0, 2), np.int64))
    series, chunks = _walk(body, _CRC_TABLE, counting)
    if series < 0:
        raise UsageResponseError(f"the response {_ERROR_TEXTS[series]}")
    found = FrameIndex(
        np.empty((series, 2), np.int64), np.empty(series, np.int64), np.empty((chunks, 2), np.int64)
    )
    _walk(body, _CRC_TABLE, found)
    return found


@kernel(nogil=True)
def _walk(data: Bytes, table: npt.NDArray[np.uint32], into: FrameIndex) -> tuple[int, int]:
    """Count series and chunks and verify checksums; fill in positions if `into` has space for them."""
    counting = into.first_chunks.size == 0
    at = series = chunks = 0
    while at < data.size:
        size, begin = _read_varint(data, at, data.size)
        begin += _CHECKSUM_BYTES
        # Compared before it is added: the compiler assumes that sums do not overflow, and a size near 2**63 passed a check of
        # the sum.
        if begin < _CHECKSUM_BYTES or not 0 <= size <= data.size - begin:
            return _CUT_OFF, 0
        at = begin + size
        # Once is enough: the second pass reads the same bytes.
        if counting and _crc(data[begin:at], table) != _read_big_endian(
            data[begin - _CHECKSUM_BYTES : begin]
        ):
            return _DAMAGED, 0
        while begin < at:
            number, inside, begin = _read_field(data, begin, at)
            if begin < 0:
                return _UNREADABLE, 0
            if number == _SERIES:
                if not counting:
                    into.first_chunks[series] = chunks
                chunks = _index_series(data, inside, begin, series, chunks, into)
                if chunks < 0:
                    return _UNREADABLE, 0
                series += 1
    return series, chunks


@kernel(nogil=True)
def _index_series(data: Bytes, at: int, end: int, series: int, chunks: int, into: FrameIndex) -> int:
    """Count or fill in the chunks of a series and the position of its labels; return the chunk count."""
    begin = labels = at
    there = chunks
    while at < end:
        number, inside, at = _read_field(data, at, end)
        # Labels are one slice that ends before the first chunk: labels after a chunk would not be in it.
        if at < 0 or (number == _LABELS and there > chunks):
            return _UNREADABLE
        if number == _LABELS:
            labels = at
        elif number == _CHUNKS:
            first, last = _locate_chunk(data, inside, at)
            if first < 0:
                return _UNREADABLE
            if last > first:
                if into.first_chunks.size:
                    into.chunks[there] = first, last
                there += 1
    if into.first_chunks.size:
        into.labels[series] = begin, labels
    return there


@kernel(nogil=True)
def _locate_chunk(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Return the position of a chunk's samples; an empty one for another encoding."""
    first = last = at
    kind = 0
    while at < end:
        number, inside, at = _read_field(data, at, end)
        if at < 0:
            return _UNREADABLE, 0
        if number == _TYPE:
            kind = _read_varint(data, inside, at)[0]
        elif number == _DATA:
            first, last = inside, at
    return (first, last) if kind == _XOR else (end, end)


@kernel(nogil=True)
def _read_field(data: Bytes, at: int, end: int) -> tuple[int, int, int]:
    """Return a field's number, the begin of its content and its end, which is negative if invalid."""
    key, begin = _read_varint(data, at, end)
    if begin < 0:
        return 0, 0, _UNREADABLE
    kind, last = key & 7, begin
    if kind == _VARINT:
        _, last = _read_varint(data, begin, end)
    elif kind == _FIXED64:
        last = begin + 8
    elif kind == _LENGTH_DELIMITED:
        size, begin = _read_varint(data, begin, end)
        last = begin + size if begin >= 0 and 0 <= size <= end - begin else _UNREADABLE
    elif kind == _FIXED32:
        last = begin + 4
    else:
        last = _UNREADABLE
    return (key >> 3, begin, last) if begin <= last <= end else (0, 0, _UNREADABLE)


@kernel(nogil=True)
def _read_varint(data: Bytes, at: int, end: int) -> tuple[int, int]:
    """Return a varint and its end, which is negative if it is truncated."""
    found = shift = 0
    # A longer run of continuation bits is no number, and would shift beyond 64 bits.
    while at < end and shift < 64:
        byte = int(np.int64(data[at]))
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found, at
        shift += 7
    return 0, _UNREADABLE


@kernel(nogil=True)
def _read_big_endian(data: Bytes) -> int:
    found = 0
    for byte in data:
        found = found << 8 | int(np.int64(byte))
    return found


def _build_crc_table(polynomial: int) -> Iterable[int]:
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (polynomial if value & 1 else 0)
        yield value


_CRC_TABLE = np.array(list(_build_crc_table(_CASTAGNOLI)), np.uint32)


@kernel(nogil=True)
def _crc(data: Bytes, table: npt.NDArray[np.uint32]) -> int:
    value = np.uint32(0xFFFFFFFF)
    for byte in data:
        value = table[(value ^ byte) & np.uint32(0xFF)] ^ (value >> np.uint32(8))
    return int(value ^ np.uint32(0xFFFFFFFF))

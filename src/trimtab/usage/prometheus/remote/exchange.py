"""What is said to a server by remote read, and what it says: a request, and a stream of frames with chunks of series.

Pure. Left out: the wire, and what the samples mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError
from numba import njit

from trimtab.usage.errors import BadAnswer
from trimtab.usage.prometheus.remote.chunks import Bytes
from trimtab.usage.prometheus.remote.messages.remote_pb2 import (
    Chunk,
    ChunkedReadResponse,
    LabelMatcher,
    Query,
    ReadRequest,
)
from trimtab.usage.prometheus.scheme import Labels, Names

HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Read-Version": "0.1.0",
}
STREAMED = "application/x-streamed-protobuf"

_LITERAL = 60
_CASTAGNOLI = 0x82F63B78


def request(
    metric: str,
    *,
    labels: Labels,
    namespaces: Names,
    required: Mapping[str, str],
    start: float,
    end: float,
) -> bytes:
    """All samples of a metric of real containers in these namespaces, from a time to a time in seconds."""
    equal, differs, like = LabelMatcher.EQ, LabelMatcher.NEQ, LabelMatcher.RE
    matchers = [
        (equal, "__name__", metric),
        (like, labels.namespace, "|".join(map(re.escape, namespaces))),
        (differs, labels.pod, ""),
        (differs, labels.container, ""),
        (differs, labels.container, "POD"),
        *((equal, name, value) for name, value in required.items()),
    ]
    query = Query(
        start_timestamp_ms=round(start * 1000),
        end_timestamp_ms=round(end * 1000),
        matchers=[LabelMatcher(type=type_, name=name, value=value) for type_, name, value in matchers],
    )
    asked = ReadRequest(queries=[query], accepted_response_types=[ReadRequest.STREAMED_XOR_CHUNKS])
    return _snappy(asked.SerializeToString())


Found = tuple[dict[str, str], list[bytes]]
"""The labels of a series, and its chunks in the order of time."""


def series(body: bytes) -> Iterator[Found]:
    """Every series of an answer; one that is spread over several frames is put together."""
    for labels, parts in groupby(_pieces(body), key=lambda piece: piece[0]):
        yield dict(labels), [data for _, chunks in parts for data in chunks]


def _pieces(body: bytes) -> Iterator[tuple[tuple[tuple[str, str], ...], list[bytes]]]:
    for frame in _frames(body):
        try:
            answer = ChunkedReadResponse.FromString(frame)
        except DecodeError as error:
            raise BadAnswer(f"the answer has a frame that cannot be read: {error}") from None
        for each in answer.chunked_series:
            chunks = [chunk.data for chunk in each.chunks if chunk.type == Chunk.XOR]
            yield tuple((label.name, label.value) for label in each.labels), chunks


def _frames(body: bytes) -> Iterator[bytes]:
    """Each as long as it says, with the checksum that it says."""
    place = 0
    while place < len(body):
        size, place = _length(body, place)
        checksum, begin = int.from_bytes(body[place : place + 4], "big"), place + 4
        place = begin + size
        if place > len(body):
            raise BadAnswer("the answer is cut off")
        frame = body[begin:place]
        if _crc(np.frombuffer(frame, np.uint8), _TABLE) != checksum:
            raise BadAnswer("the answer has a frame whose checksum is wrong")
        yield frame


def _length(body: bytes, place: int) -> tuple[int, int]:
    size = shift = 0
    while place < len(body) and shift < 64:
        byte = body[place]
        place += 1
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return size, place
        shift += 7
    raise BadAnswer("the answer is cut off")


def _snappy(data: bytes) -> bytes:
    """In snappy's block format without compressing: requests are short."""
    size, header = len(data), bytearray()
    while size >= 0x80:
        header.append(size & 0x7F | 0x80)
        size >>= 7
    header.append(size)
    pieces = (data[begin : begin + _LITERAL] for begin in range(0, len(data), _LITERAL))
    return bytes(header) + b"".join(bytes([(len(piece) - 1) << 2]) + piece for piece in pieces)


def _table(polynomial: int) -> Iterable[int]:
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (polynomial if value & 1 else 0)
        yield value


_TABLE = np.array(list(_table(_CASTAGNOLI)), np.uint32)


@njit(cache=True)
def _crc(data: Bytes, table: npt.NDArray[np.uint32]) -> int:
    value = np.uint32(0xFFFFFFFF)
    for byte in data:
        value = table[(value ^ byte) & np.uint32(0xFF)] ^ (value >> np.uint32(8))
    return int(value ^ np.uint32(0xFFFFFFFF))

"""What is said to a server by remote read, and what it says: a request, and a stream of frames with chunks of series.

Pure. Left out: the wire, and what the samples mean.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from trimtab.usage.errors import BadAnswer
from trimtab.usage.prometheus.promql import Matchers, equals
from trimtab.usage.prometheus.remote_read.chunks import Packed
from trimtab.usage.prometheus.remote_read.framing import places
from trimtab.usage.prometheus.remote_read.messages.remote_pb2 import (
    ChunkedSeries,
    LabelMatcher,
    Query,
    ReadRequest,
)

HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Read-Version": "0.1.0",
}
STREAMED = "application/x-streamed-protobuf"

_TYPES = {"=": LabelMatcher.EQ, "!=": LabelMatcher.NEQ, "=~": LabelMatcher.RE}
_LITERAL = 60


def request(metric: str, matchers: Matchers, *, start: float, end: float) -> bytes:
    """All samples of the series of a metric that match, from a time to a time in seconds."""
    query = Query(
        start_timestamp_ms=round(start * 1000),
        end_timestamp_ms=round(end * 1000),
        matchers=[
            LabelMatcher(type=_TYPES[each.sign], name=each.label, value=each.value)
            for each in (equals("__name__", metric), *matchers)
        ],
    )
    asked = ReadRequest(queries=[query], accepted_response_types=[ReadRequest.STREAMED_XOR_CHUNKS])
    return _snappy(asked.SerializeToString())


class Answered(NamedTuple):
    """Every series of an answer."""

    labels: list[dict[str, str]]
    chunks: Packed


def answered(body: bytes) -> Answered:
    """What an answer holds; a series that is spread over several frames is put together."""
    labels, firsts, chunks = places(np.frombuffer(body, np.uint8))
    pieces = [body[begin:end] for begin, end in labels.tolist()]
    new = [number for number, piece in enumerate(pieces) if number == 0 or piece != pieces[number - 1]]
    begins = np.append(firsts[new], len(chunks))
    return Answered(
        [_labels(pieces[number]) for number in new], Packed.within(body, chunks=chunks, begins=begins)
    )


def _labels(piece: bytes) -> dict[str, str]:
    try:
        return {label.name: label.value for label in ChunkedSeries.FromString(piece).labels}
    except DecodeError as error:
        raise BadAnswer(f"the answer has labels that cannot be read: {error}") from None


def _snappy(data: bytes) -> bytes:
    """In snappy's block format without compressing: requests are short."""
    size, header = len(data), bytearray()
    while size >= 0x80:
        header.append(size & 0x7F | 0x80)
        size >>= 7
    header.append(size)
    pieces = (data[begin : begin + _LITERAL] for begin in range(0, len(data), _LITERAL))
    return bytes(header) + b"".join(bytes([(len(piece) - 1) << 2]) + piece for piece in pieces)

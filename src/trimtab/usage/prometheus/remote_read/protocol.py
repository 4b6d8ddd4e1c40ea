"""Encode remote read requests and decode the streamed frames of their responses. Pure."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from trimtab.usage.errors import UsageResponseError
from trimtab.usage.prometheus.promql import Matchers, equals
from trimtab.usage.prometheus.remote_read.chunks import PADDING_BYTES, PackedChunks
from trimtab.usage.prometheus.remote_read.framing import index_frames
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
STREAMED_CONTENT_TYPE = "application/x-streamed-protobuf"

_MATCHER_TYPES = {"=": LabelMatcher.EQ, "!=": LabelMatcher.NEQ, "=~": LabelMatcher.RE}
_MAX_LITERAL_BYTES = 60


def encode_request(metric: str, matchers: Matchers, *, start: float, end: float) -> bytes:
    """Encode a request for all samples of a metric's matching series in a time range in seconds."""
    query = Query(
        start_timestamp_ms=round(start * 1000),
        end_timestamp_ms=round(end * 1000),
        matchers=[
            LabelMatcher(type=_MATCHER_TYPES[each.operator], name=each.label, value=each.value)
            for each in (equals("__name__", metric), *matchers)
        ],
    )
    request = ReadRequest(queries=[query], accepted_response_types=[ReadRequest.STREAMED_XOR_CHUNKS])
    return _encode_snappy(request.SerializeToString())


class SeriesChunks(NamedTuple):
    """All series of a response."""

    labels: list[dict[str, str]]
    chunks: PackedChunks


def decode_response(body: bytes) -> SeriesChunks:
    """Decode a response with its padding; a series that spans several frames is joined."""
    labels, firsts, chunks = index_frames(np.frombuffer(body, np.uint8)[:-PADDING_BYTES])
    pieces = [body[begin:end] for begin, end in labels.tolist()]
    new = [number for number, piece in enumerate(pieces) if number == 0 or piece != pieces[number - 1]]
    begins = np.append(firsts[new], len(chunks))
    return SeriesChunks(
        [_decode_labels(pieces[number]) for number in new],
        PackedChunks.from_padded(body, chunks=chunks, begins=begins),
    )


def _decode_labels(piece: bytes) -> dict[str, str]:
    try:
        return {label.name: label.value for label in ChunkedSeries.FromString(piece).labels}
    except DecodeError as error:
        raise UsageResponseError(f"the response has labels that cannot be read: {error}") from None


def _encode_snappy(data: bytes) -> bytes:
    """Encode data in snappy's block format without compression, because requests are short."""
    size, header = len(data), bytearray()
    while size >= 0x80:
        header.append(size & 0x7F | 0x80)
        size >>= 7
    header.append(size)
    pieces = (data[begin : begin + _MAX_LITERAL_BYTES] for begin in range(0, len(data), _MAX_LITERAL_BYTES))
    return bytes(header) + b"".join(bytes([(len(piece) - 1) << 2]) + piece for piece in pieces)

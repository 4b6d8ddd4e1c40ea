"""Test that remote read returns the same samples as the query API of a real server."""

import struct

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.usage.prometheus.remote_read.chunks import (
    DAMAGED,
    PackedChunks,
    Times,
    count_samples,
    unpack_series,
)
from trimtab.usage.trace import Floats

MIN_CHUNK_BYTES = 9
"""Bytes of a chunk's first sample: a time of one at least, and a value of eight."""


def decode_series(chunks: PackedChunks, series: int = 0) -> tuple[Times, Floats] | None:
    """Decode the samples of one series; None if they are damaged."""
    room = count_samples(chunks, series)
    times, values = np.empty(room, np.int64), np.empty(room)
    return None if unpack_series(chunks, series, times, values) == DAMAGED else (times, values)


@settings(max_examples=200)
@given(count=st.integers(0, 2000), body=st.binary(max_size=200))
def test_unpack_series_never_overruns_random_chunk(count: int, body: bytes) -> None:
    chunk = struct.pack(">H", count) + body
    ends = len(chunk) * np.arange(1, 3)
    spans = np.stack([ends - len(chunk), ends], axis=1)
    both = PackedChunks.from_body(2 * chunk, chunks=spans, begins=np.array([0, 2]))
    found = decode_series(both)
    if count and len(body) < MIN_CHUNK_BYTES:
        assert found is None
    assert found is None or len(found[0]) == len(found[1]) == 2 * count

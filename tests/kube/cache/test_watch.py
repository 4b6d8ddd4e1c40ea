"""A watch's stream becomes the same events however the network cuts it."""

from collections.abc import AsyncIterator
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.kube.cache.watch import WatchEventDecoder, split_lines
from trimtab.kube.errors import Gone, KubeResponseError
from trimtab.kube.kinds.metadata import metadata_projection
from trimtab.kube.kinds.pods import pod_projection

ADDED = b'{"type":"ADDED","object":{"metadata":{"name":"%d"}}}\n'
STREAM = b"".join(ADDED % number for number in range(20))
EXPIRED = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old"}}\n'
MISSHAPEN = b'{"type":"ADDED","object":{"metadata":{"name":7}}}\n'
NO_TEXT = b'{"type":"ADDED","object":{"metadata":{"name":"\xfc"}}}\n'


async def pieces(stream: bytes, cuts: list[int]) -> AsyncIterator[bytes]:
    ends = [0, *sorted(cuts), len(stream)]
    for start, end in pairwise(ends):
        yield stream[start:end]


@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=30), unfinished=st.binary(max_size=50))
async def test_watch_yields_whole_lines_wherever_the_stream_is_cut(
    cuts: list[int], unfinished: bytes
) -> None:
    stream = STREAM + unfinished.replace(b"\n", b" ")
    batches = [bytes(lines) async for lines in split_lines(pieces(stream, cuts))]
    assert all(batch.endswith(b"\n") for batch in batches)
    assert b"".join(batches) == STREAM


def test_watch_raises_an_error_of_the_stream_by_its_code() -> None:
    with pytest.raises(Gone, match="too old"):
        WatchEventDecoder(metadata_projection()).decode(memoryview(STREAM + EXPIRED))


@pytest.mark.parametrize("odd", [MISSHAPEN, NO_TEXT])
def test_watch_skips_a_malformed_object(odd: bytes) -> None:
    events = WatchEventDecoder(metadata_projection()).decode(odd + STREAM)
    assert [event.object.metadata.name for event in events] == [str(number) for number in range(20)]


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED"])
def test_event_decoder_reports_an_unreadable_object_as_deleted(kind: str) -> None:
    """Or a cache would keep what it was before, also after its deletion."""
    line = {"type": kind, "object": {"metadata": {"name": "odd", "resourceVersion": "7"}, "spec": []}}
    (event,) = WatchEventDecoder(pod_projection()).decode(msgspec.json.encode(line) + b"\n")
    assert (event.type, event.object.metadata.name, event.object.metadata.version) == ("DELETED", "odd", 7)


@pytest.mark.parametrize(
    "lines",
    [b"<html>\n", b'{"status":"ok"}\n', b"[]\n", b'{"type":"ADDED","object":{"meta\n', b'{"type":"\xfc"}\n'],
)
def test_watch_reports_bytes_that_are_not_from_an_api_server(lines: bytes) -> None:
    with pytest.raises(KubeResponseError, match="not from a Kubernetes API server"):
        WatchEventDecoder(metadata_projection()).decode(STREAM + lines)

"""Tests of ttrpc over NRI's mux with both ends ours, and of messages with unknown fields."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.node.hooks import mux, ttrpc
from trimtab.node.hooks.messages import cri_pb2


@asynccontextmanager
async def _connect(handlers: dict[str, ttrpc.Handler]) -> AsyncIterator[ttrpc.TtrpcClient]:
    """A client whose calls arrive at the handlers, over one connection of a mux on either side."""
    ours, theirs = socket.socketpair()
    near, far = [mux.Mux(*await asyncio.open_unix_connection(sock=end)) for end in (ours, theirs)]
    client = ttrpc.TtrpcClient(ttrpc.Channel(near, 2))
    near.open_stream(2)
    far.open_stream(2)
    tasks = [
        asyncio.create_task(each)
        for each in (near.run(), far.run(), client.run(), ttrpc.serve(ttrpc.Channel(far, 2), handlers))
    ]
    yield client
    await near.close()
    await far.close()
    await asyncio.gather(*tasks)


async def _echo(payload: bytes) -> bytes:
    return payload


@given(content=st.binary(min_size=1, max_size=20_000))
def test_mux_reassembles_frames(content: bytes) -> None:
    pieces = list(mux.split_frames(7, content))
    assert all(len(piece) <= mux.FRAME.size + mux.MAX_WRITE_BYTES for piece in pieces)
    assert all(mux.FRAME.unpack(piece[:8]) == (7, len(piece) - 8) for piece in pieces)
    assert b"".join(piece[8:] for piece in pieces) == content


@pytest.mark.parametrize("length", [0, 1, 4096, 1 << 20])
async def test_ttrpc_answers_calls_of_any_length(length: int) -> None:
    async with _connect({"s/echo": _echo}) as client:
        assert await client.call("s", "echo", b"x" * length, timeout=30) == b"x" * length


async def test_ttrpc_answers_calls_out_of_order() -> None:
    go = asyncio.Event()

    async def slow(payload: bytes) -> bytes:
        await go.wait()
        return b"slow"

    async with _connect({"s/slow": slow, "s/echo": _echo}) as client:
        waiting = asyncio.create_task(client.call("s", "slow", b"", timeout=30))
        assert await client.call("s", "echo", b"quick", timeout=30) == b"quick"
        go.set()
        assert await waiting == b"slow"


async def test_ttrpc_rejects_unknown_method_with_its_code() -> None:
    async with _connect({}) as client:
        with pytest.raises(ttrpc.TtrpcError, match=r"s/nothing is not implemented \(code 12\)"):
            await client.call("s", "nothing", b"", timeout=30)


async def test_ttrpc_returns_an_error_when_the_handler_fails() -> None:
    async def fail(_: bytes) -> bytes:
        raise ValueError("no such thing")

    async with _connect({"s/fail": fail}) as client:
        with pytest.raises(ttrpc.TtrpcError, match="ValueError: no such thing"):
            await client.call("s", "fail", b"", timeout=30)


async def test_ttrpc_call_ends_at_its_deadline() -> None:
    async def never(_: bytes) -> bytes:
        await asyncio.Event().wait()
        raise AssertionError

    async with _connect({"s/never": never}) as client:
        with pytest.raises((TimeoutError, ttrpc.TtrpcError)):
            await client.call("s", "never", b"", timeout=0.05)


async def test_ttrpc_fails_pending_calls_when_the_peer_disconnects() -> None:
    ours, theirs = socket.socketpair()
    near = mux.Mux(*await asyncio.open_unix_connection(sock=ours))
    client = ttrpc.TtrpcClient(ttrpc.Channel(near, 2))
    near.open_stream(2)
    running = [asyncio.create_task(near.run()), asyncio.create_task(client.run())]
    call = asyncio.create_task(client.call("s", "echo", b"", timeout=30))
    await asyncio.sleep(0)
    theirs.close()
    with pytest.raises((ttrpc.TtrpcError, OSError)):
        await call
    await near.close()
    await asyncio.gather(*running)


def test_cri_codec_preserves_unknown_fields() -> None:
    there = cri_pb2.LinuxContainerConfig.FromString(b"\xfa\x01\x03abc")
    there.resources.cpu_quota = 5000
    assert b"\xfa\x01\x03abc" in there.SerializeToString()

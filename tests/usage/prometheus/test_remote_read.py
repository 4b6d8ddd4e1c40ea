"""Test that remote read returns the same samples as the query API of a real server."""

import asyncio
import json
import math
import random
import struct
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import numpy as np
import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.peers.recorded_prometheus import RecordedServers
from trimtab.usage.errors import UsageResponseError
from trimtab.usage.prometheus import Prometheus
from trimtab.usage.prometheus.remote_read.chunks import (
    DAMAGED,
    PADDING_BYTES,
    PackedChunks,
    Times,
    count_samples,
    unpack_series,
)
from trimtab.usage.prometheus.remote_read.protocol import (
    HEADERS,
    SeriesChunks,
    decode_response,
    encode_request,
)
from trimtab.usage.prometheus.schema import ContainerLabels
from trimtab.usage.prometheus.settings import PrometheusSettings
from trimtab.usage.prometheus.sharding import LAST_CHARACTERS, PodSelector
from trimtab.usage.source import UsageQuery
from trimtab.usage.trace import Floats
from trimtab.usage.usage import Usage
from usage.recording import CPU, MEMORY, T0, MetricRecording, container_labels

PADDING = bytes(PADDING_BYTES)
MIN_CHUNK_BYTES = 9
"""Bytes of a chunk's first sample: a time of one at least, and a value of eight."""


def decode_series(chunks: PackedChunks, series: int = 0) -> tuple[Times, Floats] | None:
    """Decode the samples of one series; None if they are damaged."""
    max_bytes = count_samples(chunks, series)
    times, values = np.empty(max_bytes, np.int64), np.empty(max_bytes)
    return None if unpack_series(chunks, series, times, values) == DAMAGED else (times, values)


@settings(max_examples=200)
@given(count=st.integers(0, 2000), body=st.binary(max_size=200))
def test_unpack_series_never_overruns_random_chunk(count: int, body: bytes) -> None:
    chunk = struct.pack(">H", count) + body
    ends = len(chunk) * np.arange(1, 3)
    spans = np.stack([ends - len(chunk), ends], axis=1)
    both = PackedChunks.from_padded(2 * chunk + PADDING, chunks=spans, begins=np.array([0, 2]))
    found = decode_series(both)
    if count and len(body) < MIN_CHUNK_BYTES:
        assert found is None
    assert found is None or len(found[0]) == len(found[1]) == 2 * count


HOURS = 2
LABELS = ContainerLabels("namespace", "pod", "container")
PODS = 6
SPECIAL_VALUES = (0.0, -0.0, math.inf, -math.inf, 5e-324, 1.7976931348623157e308, 2.0**53, -1.0, 0.1)


def random_samples(seed: int) -> list[tuple[float, float]]:
    """Generate samples at irregular times with values that jump, repeat or are extreme."""
    draw = random.Random(seed)
    at, value, found = draw.uniform(0, 60), draw.uniform(0, 1e9), []
    while at < HOURS * 3600:
        found.append((at, value))
        at += draw.choice((0.001, 1, 15, 30, 30, 30, 30, draw.uniform(1, 2000)))
        value = draw.choice(
            (value, value + 1, value * draw.random(), draw.choice(SPECIAL_VALUES), draw.uniform(-1e12, 1e12))
        )
    return found


def counter_samples(seed: int) -> list[tuple[float, float]]:
    """Generate a counter that grows unevenly, with resets and missed scrapes."""
    draw = random.Random(seed)
    value, found = draw.uniform(0, 100), []
    for number in range(HOURS * 120):
        if draw.random() < 0.01:
            value = 0.0
        value += draw.expovariate(0.1)
        if draw.random() > 0.05:
            # Rounded, so that the samples are the same with every C library.
            found.append((round(number * 30 + draw.uniform(1, 2), 3), round(value, 3)))
    return found


def decode_all(answer: SeriesChunks) -> list[tuple[dict[str, str], list[float], list[float]]]:
    """Return labels, times and values of each series."""
    found = []
    for number, labels in enumerate(answer.labels):
        samples = decode_series(answer.chunks, number)
        assert samples
        found.append((labels, samples[0].tolist(), samples[1].tolist()))
    return found


@pytest.fixture(scope="module")
def server(servers: RecordedServers) -> Iterator[str]:
    recording = MetricRecording()
    for number in range(PODS):
        recording.add("wild", container_labels(f"pod-{number}"), random_samples(number))
        recording.add(CPU, container_labels(f"pod-{number}"), counter_samples(number))
        recording.add(MEMORY, container_labels(f"pod-{number}"), counter_samples(1000 + number))
        for metric, share in (("periods", 1.0), ("throttled_periods", 0.3)):
            counted = [(at, share * value) for at, value in counter_samples(2000 + number)]
            recording.add(f"container_cpu_cfs_{metric}_total", container_labels(f"pod-{number}"), counted)
    with servers.serve("random-samples", recording.text) as url:
        yield url


def encode_query(metric: str, *, endings: str = LAST_CHARACTERS) -> bytes:
    pods = PodSelector(("shop",), endings)
    return encode_request(metric, LABELS.build_matchers(pods), start=T0, end=T0 + HOURS * 3600)


def fetch(server: str, question: bytes) -> bytes:
    call = urllib.request.Request(f"{server}/api/v1/read", question, HEADERS)
    with urllib.request.urlopen(call, timeout=30) as response:
        body: bytes = response.read()
        return body


@pytest.fixture(scope="module")
def answer(server: str) -> bytes:
    """Return the response for the random samples."""
    return fetch(server, encode_query("wild"))


async def read(url: str, *, raw: bool, step: float = 60.0, start: float = T0) -> Usage:
    ask = UsageQuery(start=start, end=start + HOURS * 3600, step=step)
    async with Prometheus(PrometheusSettings(url=url, raw_samples=raw)) as source:
        return await source.read(ask)


def test_decode_response_equals_samples_of_query_api(server: str, answer: bytes) -> None:
    query = urllib.parse.urlencode({"query": f"wild[{HOURS}h]", "time": T0 + HOURS * 3600})
    with urllib.request.urlopen(f"{server}/api/v1/query?{query}", timeout=30) as response:
        expected = {each["metric"]["pod"]: each["values"] for each in json.load(response)["data"]["result"]}
    found = decode_all(decode_response(answer + PADDING))
    assert {labels["pod"] for labels, _, _ in found} == expected.keys()
    assert len(found) == PODS
    for labels, times, values in found:
        own = expected[labels["pod"]]
        assert times == [round(t * 1000) for t, _ in own]
        np.testing.assert_array_equal(values, [float(value) for _, value in own])


def test_remote_read_selects_pods_by_last_character(server: str) -> None:
    even = decode_response(fetch(server, encode_query("wild", endings="02468")) + PADDING)
    assert sorted(labels["pod"] for labels in even.labels) == sorted(f"pod-{n}" for n in range(0, PODS, 2))


@pytest.mark.parametrize("step", [60.0, 97.0, 15.0])
async def test_remote_read_equals_range_queries(server: str, step: float) -> None:
    raw, queried = await asyncio.gather(read(server, raw=True, step=step), read(server, raw=False, step=step))
    assert raw.containers == queried.containers
    np.testing.assert_allclose(raw.cpu, queried.cpu, rtol=1e-9)
    np.testing.assert_allclose(raw.memory, queried.memory, rtol=1e-12)
    assert raw.throttled is not None
    assert queried.throttled is not None
    np.testing.assert_allclose(raw.throttled, queried.throttled, rtol=1e-9)
    assert np.nanmax(raw.throttled) > 0.29


def test_decode_response_does_not_copy_the_response(answer: bytes) -> None:
    padded = answer + PADDING
    assert np.shares_memory(decode_response(padded).chunks.data, np.frombuffer(padded, np.uint8))


@settings(max_examples=200)
@given(data=st.data())
def test_decode_response_rejects_damaged_bytes(answer: bytes, data: st.DataObject) -> None:
    damaged = bytearray(answer)
    place = data.draw(st.integers(0, len(answer) - 1))
    damaged[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(UsageResponseError):
        decode_response(bytes(damaged) + PADDING)


@given(end=st.floats(0.01, 0.99))
def test_decode_response_rejects_truncated_frame(answer: bytes, end: float) -> None:
    cut = answer[: int(len(answer) * end)]
    try:
        found = decode_all(decode_response(cut + PADDING))
    except UsageResponseError:
        return
    # A cut between two frames is noticed only by the connection; the frames before it are complete.
    assert repr(found) == repr(decode_all(decode_response(answer + PADDING))[: len(found)])


@pytest.mark.parametrize(
    "rejection",
    [
        pytest.param({"status": 404, "text": "404 page not found"}, id="Thanos' Querier has none"),
        pytest.param({"status": 403, "text": "forbidden"}, id="a gateway lets none through"),
        pytest.param({"status": 502, "text": "bad gateway"}, id="a gateway fails on it"),
        pytest.param(
            {"status": 200, "body": b"\x00", "content_type": "application/x-protobuf"},
            id="it streams nothing",
        ),
    ],
)
async def test_prometheus_falls_back_to_queries_without_remote_read(
    server: str, rejection: dict[str, Any]
) -> None:
    rejections = 0

    async def answer(call: web.Request) -> web.Response:
        nonlocal rejections
        if call.path == "/api/v1/read":
            rejections += 1
            return web.Response(**rejection)
        return await forward(server, call)

    async with serve_in_front(answer) as url:
        found = await read(url, raw=True)
    assert rejections
    np.testing.assert_array_equal(found.cpu, (await read(server, raw=False)).cpu)


async def test_range_query_disables_victoriametrics_time_rounding(server: str) -> None:
    """VictoriaMetrics rounds start and end (AdjustStartEnd) unless the query disables its cache."""

    async def answer(call: web.Request) -> web.Response:
        if call.path == "/api/v1/read":
            return web.Response(status=400, text="unsupported path requested: /api/v1/read")
        form = dict(await call.post())
        if "step" in form and "nocache" not in form:
            step = float(str(form["step"]))
            for end in ("start", "end"):
                form[end] = str(float(str(form[end])) // step * step)
        return await forward(server, call, form)

    async with serve_in_front(answer) as url:
        found = await read(url, raw=True, start=T0 + 7)
    np.testing.assert_array_equal(found.cpu, (await read(server, raw=False, start=T0 + 7)).cpu)


async def forward(server: str, call: web.Request, form: Mapping[str, Any] | None = None) -> web.Response:
    async with (
        aiohttp.ClientSession() as session,
        session.request(call.method, server + call.path_qs, data=form or await call.post()) as given,
    ):
        return web.Response(body=await given.read(), status=given.status, content_type="application/json")


@asynccontextmanager
async def serve_in_front(answer: Callable[[web.Request], Awaitable[web.Response]]) -> AsyncIterator[str]:
    """Serve `answer` in front of a server; yields its address."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()

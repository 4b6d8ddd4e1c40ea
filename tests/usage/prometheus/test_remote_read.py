"""Raw samples by remote read: what a real server hands out is what its own queries answer, whatever the samples are."""

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

from harness import UnavailableError
from harness.prometheus import Recorded
from trimtab.usage.errors import UsageResponseError
from trimtab.usage.prometheus import Prometheus
from trimtab.usage.prometheus.pod_selector import LAST_CHARACTERS, PodSelector
from trimtab.usage.prometheus.remote_read.chunks import (
    DAMAGED,
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
from trimtab.usage.source import UsageQuery
from trimtab.usage.trace import Floats
from trimtab.usage.usage import Usage
from usage.recording import CPU, MEMORY, T0, Recording, named

HOURS = 2
LABELS = ContainerLabels("namespace", "pod", "container")
PODS = 60
LEAST = 9
"""Bytes of a chunk's first sample: a time of one at least, and a value of eight."""
ODD = (0.0, -0.0, math.inf, -math.inf, 5e-324, 1.7976931348623157e308, 2.0**53, -1.0, 0.1)


def wild(seed: int) -> list[tuple[float, float]]:
    """Samples at odd times, with long gaps and short ones, and values that jump, stay, or are hardly numbers."""
    draw = random.Random(seed)
    at, value, found = draw.uniform(0, 60), draw.uniform(0, 1e9), []
    while at < HOURS * 3600:
        found.append((at, value))
        at += draw.choice((0.001, 1, 15, 30, 30, 30, 30, draw.uniform(1, 2000)))
        value = draw.choice(
            (value, value + 1, value * draw.random(), draw.choice(ODD), draw.uniform(-1e12, 1e12))
        )
    return found


def steps(seed: int) -> list[tuple[float, float]]:
    """A counter as kubelets have them: it grows, unevenly, and now and then begins anew or is not scraped."""
    draw = random.Random(seed)
    value, found = draw.uniform(0, 100), []
    for number in range(HOURS * 120):
        if draw.random() < 0.01:
            value = 0.0
        value += draw.expovariate(0.1)
        if draw.random() > 0.05:
            found.append((number * 30 + draw.uniform(1, 2), value))
    return found


def decoded(chunks: PackedChunks, series: int = 0) -> tuple[Times, Floats] | None:
    """The samples of one series; None where they cannot be read."""
    room = count_samples(chunks, series)
    times, values = np.empty(room, np.int64), np.empty(room)
    return None if unpack_series(chunks, series, times, values) == DAMAGED else (times, values)


def every(answer: SeriesChunks) -> list[tuple[dict[str, str], list[float], list[float]]]:
    """Labels, times and values of each series."""
    found = []
    for number, labels in enumerate(answer.labels):
        samples = decoded(answer.chunks, number)
        assert samples
        found.append((labels, samples[0].tolist(), samples[1].tolist()))
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    recording = Recording()
    for number in range(PODS):
        recording.add("wild", named(f"pod-{number}"), wild(number))
        recording.add(CPU, named(f"pod-{number}"), steps(number))
        recording.add(MEMORY, named(f"pod-{number}"), steps(1000 + number))
        for metric, share in (("periods", 1.0), ("throttled_periods", 0.3)):
            counted = [(at, share * value) for at, value in steps(2000 + number)]
            recording.add(f"container_cpu_cfs_{metric}_total", named(f"pod-{number}"), counted)
    try:
        recorded = Recorded(tmp_path_factory.mktemp("prometheus"), recording.text)
    except UnavailableError as why:
        pytest.skip(str(why))
    with recorded as running:
        yield running


def asked(metric: str, *, endings: str = LAST_CHARACTERS) -> bytes:
    pods = PodSelector(("shop",), endings)
    return encode_request(metric, LABELS.build_matchers(pods), start=T0, end=T0 + HOURS * 3600)


def handed_out(server: Recorded, question: bytes) -> bytes:
    call = urllib.request.Request(f"{server.url}/api/v1/read", question, HEADERS)
    with urllib.request.urlopen(call, timeout=30) as response:
        body: bytes = response.read()
        return body


@pytest.fixture(scope="module")
def answer(server: Recorded) -> bytes:
    """What the server hands out of the wild ones."""
    return handed_out(server, asked("wild"))


async def read(url: str, *, raw: bool, step: float = 60.0, start: float = T0) -> Usage:
    ask = UsageQuery(start=start, end=start + HOURS * 3600, step=step)
    async with Prometheus(PrometheusSettings(url=url, raw_samples=raw)) as source:
        return await source.read(ask)


def test_decode_response_equals_samples_of_query_api(server: Recorded, answer: bytes) -> None:
    query = urllib.parse.urlencode({"query": f"wild[{HOURS}h]", "time": T0 + HOURS * 3600})
    with urllib.request.urlopen(f"{server.url}/api/v1/query?{query}", timeout=30) as response:
        told = {each["metric"]["pod"]: each["values"] for each in json.load(response)["data"]["result"]}
    found = every(decode_response(answer))
    assert {labels["pod"] for labels, _, _ in found} == told.keys()
    assert len(found) == PODS
    for labels, times, values in found:
        own = told[labels["pod"]]
        assert times == [round(t * 1000) for t, _ in own]
        np.testing.assert_array_equal(values, [float(value) for _, value in own])


def test_remote_read_selects_pods_by_last_character(server: Recorded) -> None:
    even = decode_response(handed_out(server, asked("wild", endings="02468")))
    assert sorted(labels["pod"] for labels in even.labels) == sorted(f"pod-{n}" for n in range(0, PODS, 2))


@pytest.mark.parametrize("step", [60.0, 97.0, 15.0])
async def test_remote_read_equals_range_queries(server: Recorded, step: float) -> None:
    raw, queried = await asyncio.gather(
        read(server.url, raw=True, step=step), read(server.url, raw=False, step=step)
    )
    assert raw.containers == queried.containers
    np.testing.assert_allclose(raw.cpu, queried.cpu, rtol=1e-9)
    np.testing.assert_allclose(raw.memory, queried.memory, rtol=1e-12)
    assert raw.throttled is not None
    assert queried.throttled is not None
    np.testing.assert_allclose(raw.throttled, queried.throttled, rtol=1e-9)
    assert np.nanmax(raw.throttled) > 0.29


@settings(max_examples=200)
@given(data=st.data())
def test_decode_response_rejects_damaged_bytes(answer: bytes, data: st.DataObject) -> None:
    damaged = bytearray(answer)
    place = data.draw(st.integers(0, len(answer) - 1))
    damaged[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(UsageResponseError):
        decode_response(bytes(damaged))


@given(end=st.floats(0.01, 0.99))
def test_decode_response_rejects_truncated_frame(answer: bytes, end: float) -> None:
    cut = answer[: int(len(answer) * end)]
    try:
        found = every(decode_response(cut))
    except UsageResponseError:
        return
    # Between two frames only the connection tells; what came before is whole.
    assert repr(found) == repr(every(decode_response(answer))[: len(found)])


@settings(max_examples=200)
@given(count=st.integers(0, 2000), body=st.binary(max_size=200))
def test_unpack_series_never_overruns_random_chunk(count: int, body: bytes) -> None:
    chunk = struct.pack(">H", count) + body
    ends = len(chunk) * np.arange(1, 3)
    spans = np.stack([ends - len(chunk), ends], axis=1)
    both = PackedChunks.from_body(2 * chunk, chunks=spans, begins=np.array([0, 2]))
    found = decoded(both)
    if count and len(body) < LEAST:
        assert found is None
    assert found is None or len(found[0]) == len(found[1]) == 2 * count


@pytest.mark.parametrize(
    "refuses",
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
async def test_prometheus_falls_back_to_queries_without_remote_read(server: Recorded, refuses: dict[str, Any]) -> None:
    refused = 0

    async def answer(call: web.Request) -> web.Response:
        nonlocal refused
        if call.path == "/api/v1/read":
            refused += 1
            return web.Response(**refuses)
        return await passed_on(server, call)

    async with standing_before(answer) as url:
        found = await read(url, raw=True)
    assert refused
    np.testing.assert_array_equal(found.cpu, (await read(server.url, raw=False)).cpu)


async def test_range_query_disables_victoriametrics_time_rounding(server: Recorded) -> None:
    """As its AdjustStartEnd does to a query of many points that it may answer from its cache."""

    async def answer(call: web.Request) -> web.Response:
        if call.path == "/api/v1/read":
            return web.Response(status=400, text="unsupported path requested: /api/v1/read")
        form = dict(await call.post())
        if "step" in form and "nocache" not in form:
            step = float(str(form["step"]))
            for end in ("start", "end"):
                form[end] = str(float(str(form[end])) // step * step)
        return await passed_on(server, call, form)

    async with standing_before(answer) as url:
        found = await read(url, raw=True, start=T0 + 7)
    np.testing.assert_array_equal(found.cpu, (await read(server.url, raw=False, start=T0 + 7)).cpu)


async def passed_on(
    server: Recorded, call: web.Request, form: Mapping[str, Any] | None = None
) -> web.Response:
    async with (
        aiohttp.ClientSession() as session,
        session.request(call.method, server.url + call.path_qs, data=form or await call.post()) as given,
    ):
        return web.Response(body=await given.read(), status=given.status, content_type="application/json")


@asynccontextmanager
async def standing_before(answer: Callable[[web.Request], Awaitable[web.Response]]) -> AsyncIterator[str]:
    """The address of something that answers in a server's place."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()

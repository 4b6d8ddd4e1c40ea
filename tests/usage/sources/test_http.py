"""Test the HTTP usage protocol and its errors."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from aiohttp import web

from trimtab.errors import TrimtabError
from trimtab.usage.errors import (
    QueryTooLarge,
    SourceRefused,
    SourceUnavailable,
    UsageError,
    UsageResponseError,
)
from trimtab.usage.source import UsageQuery, source
from trimtab.usage.sources.http import Http, HttpSettings
from usage.conformance import conforms

QUERY = UsageQuery(start=600.0, end=900.0, step=60.0)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def serving(usage: Handler, health: object = None) -> AsyncIterator[str]:
    async def report_health(_: web.Request) -> web.Response:
        return web.json_response(health or {"ok": True, "detail": "two containers", "history": True})

    app = web.Application()
    app.router.add_get("/house/v1/usage", usage)
    app.router.add_get("/house/v1/health", report_health)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        yield f"http://{host}:{port}/house"
    finally:
        await runner.cleanup()


def usage_response(request: web.Request) -> dict[str, Any]:
    start, end, step = (float(request.query[name]) for name in ("start", "end", "step"))
    steps = round((end - start) / step)
    wanted = request.query.get("namespaces")
    containers = [
        (["shop", "web-0", "web"], [0.5] * (steps - 1) + [None], [1e9] * steps),
        (["data", "db-0", "db"], [-1.0] * steps, [2e9] * steps),
    ]
    kept = [one for one in containers if wanted is None or one[0][0] in wanted.split(",")]
    names, cpu, memory = ([one[place] for one in kept] for place in range(3))
    return {"start": start, "step": step, "containers": names, "cpu": cpu, "memory": memory}


async def respond(request: web.Request) -> web.Response:
    return web.json_response(usage_response(request))


async def test_http_source_reads_server_that_follows_protocol() -> None:
    async with serving(respond) as url, Http(HttpSettings(url=url)) as http_source:
        await conforms(http_source, QUERY)
        usage = await http_source.read(QUERY)
    assert [container.pod for container in usage.containers] == ["db-0", "web-0"]
    np.testing.assert_array_equal(usage.cpu[:, 1], [0.5, 0.5, 0.5, 0.5, np.nan])
    assert np.isnan(usage.cpu[:, 0]).all()
    assert (usage.memory == [2e9, 1e9]).all()


async def test_http_source_sends_token_and_headers(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    seen: list[tuple[str | None, str | None]] = []

    async def record_request(request: web.Request) -> web.Response:
        seen.append((request.headers.get("Authorization"), request.headers.get("X-House")))
        return await respond(request)

    async with serving(record_request) as url:
        settings = HttpSettings(url=url, token_file=tmp_path / "token", headers={"X-House": "blue"})
        async with Http(settings) as http_source:
            await http_source.read(QUERY)
    assert seen == [("Bearer s3cret", "blue")]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"step": 30.0}, "the response has start 600.0 and step 30.0 instead of 600.0 and 60.0"),
        ({"cpu": [[1.0]]}, "cpu in the response must have a list of 5 numbers per container"),
        (
            {"memory": [[1.0] * 5, [1.0] * 4]},
            "memory in the response must have a list of 5 numbers per container",
        ),
        ({"containers": [["a", "b", "c"]] * 2}, "names a container twice"),
        ({"containers": "none"}, "the response does not follow the protocol"),
    ],
)
async def test_http_source_rejects_response_to_another_query(change: dict[str, object], line: str) -> None:
    async def respond_wrongly(request: web.Request) -> web.Response:
        return web.json_response(usage_response(request) | change)

    async with serving(respond_wrongly) as url, Http(HttpSettings(url=url)) as http_source:
        with pytest.raises(UsageResponseError) as refused:
            await http_source.read(QUERY)
    assert line in str(refused.value)
    assert str(refused.value).startswith(url)


async def test_http_source_rejects_other_encodings() -> None:
    async def latin(_: web.Request) -> web.Response:
        return web.Response(
            body='{"start": 600, "step": 60, "containers": [["a", "b", "ü"]]}'.encode("latin-1")
        )

    async with serving(latin) as url, Http(HttpSettings(url=url)) as http_source:
        with pytest.raises(UsageResponseError, match="the response does not follow the protocol"):
            await http_source.read(QUERY)


async def test_http_source_uses_environment_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = []

    async def forward(request: web.Request) -> web.Response:
        hosts.append(request.host)
        return await respond(request)

    async with serving(forward) as proxy:
        monkeypatch.setenv("http_proxy", proxy.removesuffix("/house"))
        async with Http(HttpSettings(url="http://usage.example.org/house")) as http_source:
            await http_source.read(QUERY)
    assert hosts == ["usage.example.org"]


@pytest.mark.parametrize(
    ("status", "kind"), [(503, SourceUnavailable), (403, SourceRefused), (413, QueryTooLarge)]
)
async def test_http_source_maps_status_to_error(status: int, kind: type[UsageError]) -> None:
    async def fail(_: web.Request) -> web.Response:
        return web.Response(status=status, text=json.dumps({"error": "not today"}))

    health = {"ok": False, "detail": "asleep"}
    async with serving(fail, health) as url, Http(HttpSettings(url=url)) as http_source:
        with pytest.raises(kind):
            await http_source.read(QUERY)
        found = await http_source.check()
    assert not found.ok
    assert "asleep" in found.detail


async def test_http_source_check_reports_unreachable_server() -> None:
    async with Http(HttpSettings(url="http://127.0.0.1:9")) as http_source:
        health = await http_source.check()
    assert not health.ok
    assert "cannot connect" in health.detail


def test_http_source_is_registered_and_validates_url() -> None:
    assert isinstance(source("http", url="http://house:80"), Http)
    with pytest.raises(TrimtabError, match="usage source http: url"):
        source("http", url="house")

"""Large objects of a tenant, and servers that answer without an end, must not fill the memory of operator or agent."""

import asyncio
import json
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from harness.builders.kubeconfigs import write
from trimtab.kube.auth import Connection, load_connection
from trimtab.kube.errors import ResponseTooLarge
from trimtab.kube.rest import client as client_module
from trimtab.kube.rest.client import MAX_PAGE_BYTES, Client
from trimtab.kube.rest.resources import CONFIG_MAPS, NODES, PODS
from trimtab.kube.rest.retry import RateLimiter, RetryPolicy
from trimtab.kube.rest.transport import MAX_RESPONSE_BYTES
from trimtab.node.cgroups import Hierarchy
from trimtab.node.informer import NodeInformer

MIB = 1 << 20


@asynccontextmanager
async def connect(answer: object, folder: Path) -> AsyncIterator[Connection]:
    application = web.Application()
    application.router.add_get("/{path:.*}", answer)  # type: ignore[arg-type]
    async with TestServer(application) as running:
        yield load_connection(
            kubeconfig=write(folder / "config", cluster={"server": str(running.make_url("/"))})
        )


async def read_pages(texts: Sequence[str], folder: Path) -> tuple[list[bytes], list[int]]:
    """Read objects with these texts, and return the pages and the limit of each request."""
    limits: list[int] = []

    async def answer(request: web.Request) -> web.Response:
        limit, start = int(request.query["limit"]), int(request.query.get("continue", "0"))
        limits.append(limit)
        items = [
            {"metadata": {"name": f"o{number}"}, "data": {"text": texts[number]}}
            for number in range(start, min(start + limit, len(texts)))
        ]
        following = str(start + limit) if start + limit < len(texts) else ""
        return web.json_response(
            {"metadata": {"resourceVersion": "7", "continue": following}, "items": items}
        )

    rate = RateLimiter(per_second=1000, burst=1000)
    async with (
        connect(answer, folder) as there,
        Client(there, rate=rate, retry=RetryPolicy(attempts=3)) as client,
    ):
        pages = [page async for page in client.list_pages(CONFIG_MAPS)]
    names = [item["metadata"]["name"] for page in pages for item in json.loads(page)["items"]]
    assert names == [f"o{number}" for number in range(len(texts))]
    return pages, limits


async def test_pages_of_large_objects_are_read_in_smaller_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of Deployments of a megabyte each were read as one page, several times the operator's memory."""
    monkeypatch.setattr(client_module, "MAX_PAGE_BYTES", MAX_PAGE_BYTES // 32)
    small, large = 600, 60
    texts = ["x" * 100] * small + ["x" * (200 << 10)] * large + ["x" * 100] * small
    pages, limits = await read_pages(texts, tmp_path)
    assert max(map(len, pages)) <= MAX_PAGE_BYTES // 32
    assert limits[-1] > 4 * min(limits), "the pages grow again after the large objects"
    assert len(limits) < 80


async def test_list_of_large_objects_is_downloaded_about_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each page the next one was twice as large, refused, and so downloaded for nothing."""
    monkeypatch.setattr(client_module, "MAX_PAGE_BYTES", MIB)
    pages, limits = await read_pages(["x" * (32 << 10)] * 300, tmp_path)
    refused = len(limits) - len(pages)
    assert limits[:5] == [500, 250, 125, 62, 31]
    assert refused == 4, "only the first page is looked for"
    assert sum(map(len, pages)) + refused * MIB < 1.5 * 300 * (32 << 10)


@cache
def compressed_zeros(mebibytes: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(packer.compress(bytes(MIB)) for _ in range(mebibytes)) + packer.flush()


async def bomb(_: web.Request) -> web.Response:
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    return web.Response(body=compressed_zeros(MAX_RESPONSE_BYTES // MIB + 8), headers=headers)


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    while True:
        await response.write(bytes(MIB))


@pytest.mark.parametrize("answer", [bomb, endless])
async def test_answer_without_an_end_is_refused(answer: object, tmp_path: Path) -> None:
    async with (
        connect(answer, tmp_path) as there,
        Client(there, retry=RetryPolicy(attempts=3)) as client,
    ):
        with pytest.raises(ResponseTooLarge, match="more than 67,108,864 bytes"):
            await client.get(NODES, "n", subresource="proxy/stats/summary", into=dict)
        with pytest.raises(ResponseTooLarge):
            await client.list_objects(PODS)


async def test_agent_reads_no_endless_list_from_whoever_answers_for_the_kubelet(tmp_path: Path) -> None:
    (tmp_path / "tree" / "kubepods").mkdir(parents=True)
    (tmp_path / "tree" / "cgroup.controllers").touch()
    informer = NodeInformer("node", hierarchy=Hierarchy.detect(tmp_path / "tree"))
    async with (
        connect(endless, tmp_path) as there,
        Client(there, retry=RetryPolicy(attempts=1)) as kubelet,
    ):
        polling = asyncio.create_task(informer.poll_kubelet(kubelet, clock=lambda: 100.0))
        async with asyncio.timeout(30):
            while "kubelet" not in informer.errors_by_source():
                await asyncio.sleep(0.05)
        polling.cancel()
        await asyncio.wait([polling])
    assert "more than 67,108,864 bytes" in informer.errors_by_source()["kubelet"]
    informer.close()

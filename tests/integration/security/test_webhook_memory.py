"""Any pod may reach the webhook: its requests must not use up the operator's memory, nor keep the API server out."""

import asyncio
import gzip
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest

from harness.process import free_port
from security.hostile_queries import HOSTILE_QUERIES

MIB = 1 << 20
SLOW_HEAD = (
    b"POST /validate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)
SERVE = """
import asyncio, sys
from trimtab.http_server import serve_application
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.webhook.server import AdmissionHandlers

async def main():
    handlers = AdmissionHandlers(config=lambda: OperatorConfig(), policies=lambda: (), size_pod=lambda pod: {})
    async with serve_application(handlers.build_application(), f"127.0.0.1:{sys.argv[1]}"):
        print("ready", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""
GUARDED = (
    '{"request":{"uid":"1","operation":"CREATE","object":{"kind":"OptimizationPolicy","metadata":{"name":"a",'
    '"namespace":"shop","annotations":{"trimtab.io/guardrail":%s}},"spec":{}}}}'
)
REVIEW = b'{"request":{"uid":"1","operation":"CREATE","object":{"kind":"OptimizationPolicy","metadata":{},"spec":{%s}}}}'


class Webhook:
    """The webhook in a process of its own."""

    def __init__(self) -> None:
        self.port = free_port()
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVE, str(self.port)], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"

    @property
    def peak(self) -> int:
        """The most memory that it ever had, in bytes."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found
        return int(found.group(1)) << 10

    @property
    def cpu_seconds(self) -> float:
        user, system = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    started = Webhook()
    yield started
    started.stop()


def _objects(size: int) -> bytes:
    """Return members of an object that take as many Python objects as possible."""
    members = b",".join(b'"%x":{}' % number for number in range(size // 10))
    return members[: members.rindex(b",")]


async def _post(session: aiohttp.ClientSession, path: str, body: bytes) -> int:
    try:
        async with session.post(
            path, data=io.BytesIO(body), headers={"Content-Type": "application/json"}
        ) as response:
            await response.read()
            return response.status
    except aiohttp.ClientError:  # it closes connections that send too much
        return 413


async def _is_answered(session: aiohttp.ClientSession, seconds: float) -> bool:
    async with asyncio.timeout(seconds):
        return await _post(session, "/validate", REVIEW % b'"mode":"Auto"') == 200


@pytest.mark.parametrize("path", ["/mutate", "/validate", "/pods"])
@pytest.mark.parametrize("size", [12 * MIB, 2 * MIB])
async def test_large_requests_do_not_use_up_the_memory(webhook: Webhook, path: str, size: int) -> None:
    timeout = aiohttp.ClientTimeout(total=60)
    address = f"http://127.0.0.1:{webhook.port}"
    async with aiohttp.ClientSession(address, timeout=timeout) as session:
        assert await _is_answered(session, 30)
        before = webhook.peak
        body = REVIEW % _objects(size)
        statuses = await asyncio.gather(*(_post(session, path, body) for _ in range(4)))
        assert await _is_answered(session, 10)
    assert webhook.peak - before < 100 * MIB
    assert size < 3 * MIB or set(statuses) <= {413}


async def test_compressed_request_is_not_expanded(webhook: Webhook) -> None:
    body = gzip.compress(REVIEW % (b'"mode":"' + b" " * (256 * MIB) + b'"'))
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    async with aiohttp.ClientSession(f"http://127.0.0.1:{webhook.port}") as session:
        assert await _is_answered(session, 30)
        before = webhook.peak
        async with session.post("/validate", data=body, headers=headers) as response:
            assert response.status >= 400
    assert webhook.peak - before < 40 * MIB


async def test_clients_that_send_slowly_do_not_keep_others_out(webhook: Webhook) -> None:
    slow = []
    async with aiohttp.ClientSession(f"http://127.0.0.1:{webhook.port}") as session:
        assert await _is_answered(session, 30)
        for size in (2 * MIB,) * 40 + (1000,) * 60:
            _, writer = await asyncio.open_connection("127.0.0.1", webhook.port)
            writer.write(SLOW_HEAD % size + b"{")
            slow.append(writer)
        await asyncio.sleep(0.5)
        assert await _is_answered(session, 8)
        for writer in slow:
            writer.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"POST /validate HTTP/1.1\r\nHost",
        SLOW_HEAD % 1000 + b"{",
        SLOW_HEAD % (2 * MIB) + b"{",
    ],
    ids=["nothing", "half-a-head", "small", "large"],
)
@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2"])
async def test_hundreds_of_slow_clients_do_not_keep_the_api_server_out(
    webhook: Webhook, sent: bytes, address: str
) -> None:
    """The API server was answered after 58 seconds, beside 800 clients that connect again whenever they are cut off."""

    async def send_slowly() -> None:
        while True:
            try:
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", webhook.port, local_addr=(address, 0)
                )
            except OSError:
                await asyncio.sleep(0.1)
                continue
            writer.write(sent)
            with suppress(OSError):
                try:
                    await reader.read()
                finally:
                    writer.close()

    async with aiohttp.ClientSession(f"http://127.0.0.1:{webhook.port}") as session:
        assert await _is_answered(session, 30)
        before = webhook.peak
        slow = [asyncio.create_task(send_slowly()) for _ in range(800)]
        await asyncio.sleep(2)
        for _ in range(3):
            assert await _is_answered(session, 5)
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
    assert webhook.peak - before < 64 * MIB


@pytest.mark.parametrize("query", HOSTILE_QUERIES.values(), ids=HOSTILE_QUERIES)
async def test_guardrail_of_a_tenant_costs_the_webhook_neither_time_nor_memory(
    webhook: Webhook, query: str
) -> None:
    timeout = aiohttp.ClientTimeout(total=60)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{webhook.port}", timeout=timeout) as session:
        assert await _is_answered(session, 30)
        before, used = webhook.peak, webhook.cpu_seconds
        headers = {"Content-Type": "application/json"}
        async with session.post("/validate", data=GUARDED % json.dumps(query), headers=headers) as response:
            answer = (await response.json())["response"]
    assert not answer["allowed"]
    assert "metadata.annotations[trimtab.io/guardrail]" in answer["status"]["message"]
    assert webhook.peak - before < 32 * MIB
    assert webhook.cpu_seconds - used < 0.5

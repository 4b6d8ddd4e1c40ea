"""Three paths over HTTP, without a web server."""

import asyncio
from contextlib import suppress

import pytest

from harness.builders.ip_families import AT_EITHER_HOST
from harness.process import free_port
from trimtab.errors import TrimtabError
from trimtab.node.http import build_health_page, serve_http

PAGES = {
    "/metrics": lambda: (200, b"up 1\n"),
    "/readyz": build_health_page({"rounds": lambda: "", "states": lambda: "the kubelet is away"}),
    "/healthz": build_health_page({"rounds": lambda: ""}),
}


async def ask(port: int, request: bytes, *, host: str = "127.0.0.1") -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


@pytest.mark.parametrize(
    ("request_line", "status", "body"),
    [
        (b"GET /metrics HTTP/1.1", b"200 OK", b"up 1\n"),
        (b"GET /metrics?name=up HTTP/1.0", b"200 OK", b"up 1\n"),
        (b"GET /healthz HTTP/1.1", b"200 OK", b"[+] rounds\nok\n"),
        (
            b"GET /readyz HTTP/1.1",
            b"503 Service Unavailable",
            b"[+] rounds\n[-] states: the kubelet is away\nnot ok\n",
        ),
        (b"GET /secret HTTP/1.1", b"404 Not Found", b"no such page\n"),
        (b"DELETE /metrics HTTP/1.1", b"405 Method Not Allowed", b"only GET\n"),
    ],
    ids=["metrics", "query", "alive", "not-ready", "unknown", "method"],
)
async def test_http_server_answers_pages_with_their_status(
    request_line: bytes, status: bytes, body: bytes
) -> None:
    async with serve_http("127.0.0.1:0", PAGES) as port:
        answer = await ask(port, request_line + b"\r\nHost: a\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 " + status + b"\r\n")
    assert answer.endswith(b"\r\n\r\n" + body)


@pytest.mark.parametrize("request_line", [b"nonsense\r\n\r\n", b"GET / x HTTP/1.1\r\n\r\n", b"x" * 20_000])
async def test_http_server_closes_malformed_requests_and_serves_the_next(request_line: bytes) -> None:
    async with serve_http("127.0.0.1:0", PAGES) as port:
        with suppress(ConnectionResetError):  # hung up on before all was said
            assert await ask(port, request_line) == b""
        assert b"up 1" in await ask(port, b"GET /metrics HTTP/1.1\r\n\r\n")


async def test_http_server_reports_an_address_in_use() -> None:
    async with serve_http("127.0.0.1:0", PAGES) as port:
        with pytest.raises(TrimtabError, match="choose another address"):
            async with serve_http(f"127.0.0.1:{port}", PAGES):
                raise AssertionError("unreachable")


@AT_EITHER_HOST
async def test_http_server_without_host_listens_on_ipv4_and_ipv6(host: str) -> None:
    """A cluster of IPv6 alone probes its pods by that."""
    async with serve_http(f":{free_port()}", PAGES) as port:
        answer = await ask(port, b"GET /metrics HTTP/1.1\r\n\r\n", host=host)
    assert answer.endswith(b"up 1\n")

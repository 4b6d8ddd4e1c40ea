"""An HTTP proxy that knows CONNECT and nothing else, and remembers who asked for what."""

import asyncio
from asyncio import StreamReader, StreamWriter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Self


@dataclass
class ConnectProxy:
    """`async with ConnectProxy() as proxy`: then `proxy.url` leads through it."""

    targets: list[str] = field(default_factory=list)
    authorizations: list[str] = field(default_factory=list)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    @property
    def address(self) -> str:
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, target, _ = head[0].split(" ")
        assert method == "CONNECT"
        self.targets.append(target)
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        self.authorizations.append(headers.get("proxy-authorization", ""))
        host, port = target.rsplit(":", 1)
        there_reader, there_writer = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(_copy(reader, there_writer), _copy(there_reader, writer))


async def _copy(source: StreamReader, sink: StreamWriter) -> None:
    with suppress(ConnectionError):
        while chunk := await source.read(1 << 16):
            sink.write(chunk)
            await sink.drain()
    sink.close()
    with suppress(ConnectionError):
        await sink.wait_closed()

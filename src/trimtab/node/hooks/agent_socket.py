"""How the CRI proxy, a process of its own, asks the agent what a container is entitled to.

The kubelet can do nothing without the proxy, so nothing of the agent may be in it: an agent that is restarted, hangs or
was killed costs a container its adjustment. A question is one line of JSON over the agent's own socket, on a
connection of its own, and so is the answer; both ends are here, as they have to agree.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import structlog

from trimtab.errors import TrimtabError
from trimtab.node.hooks.adjustments import Adjustment, DecideAdjustment, RuntimeContainer

log = structlog.get_logger(__name__)

REQUEST_TIMEOUT = 5.0
"""Seconds after which whoever connected and asks nothing is hung up on."""
MAX_LINE_BYTES = 1 << 20
"""Bytes of a line: labels and annotations may be long, but Kubernetes takes no more than 256 KiB of them."""


@dataclass(frozen=True)
class AgentClient:
    """The agent as the proxy sees it: a `Decide`. OSError, TimeoutError or ValueError where there is no answer."""

    path: Path
    """Its socket."""
    deadline: float = 1.0
    """Seconds that a container may wait for it."""

    async def __call__(self, subject: RuntimeContainer) -> Adjustment:
        async with asyncio.timeout(self.deadline):
            reader, writer = await asyncio.open_unix_connection(str(self.path), limit=MAX_LINE_BYTES)
            try:
                writer.write(msgspec.json.encode(subject) + b"\n")
                return msgspec.json.decode(await reader.readline(), type=Adjustment)
            finally:
                writer.close()


@asynccontextmanager
async def serve_agent_socket(path: Path, decide: DecideAdjustment) -> AsyncIterator[None]:
    """Answer such questions at a socket, which only root can open."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT):
                subject = msgspec.json.decode(await reader.readline(), type=RuntimeContainer)
                writer.write(msgspec.json.encode(await decide(subject)) + b"\n")
                await writer.drain()
        except (OSError, TimeoutError, ValueError) as error:
            log.warning("hooks.not_answered", why=repr(error))
        finally:
            writer.close()

    async with await asyncio.start_unix_server(answer, sock=_bind_socket(path), limit=MAX_LINE_BYTES):
        yield


def _bind_socket(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # of an agent that was killed
        made.bind(str(path))
        path.chmod(0o600)
    except OSError as error:
        made.close()
        raise TrimtabError(
            f"--cri {path}: cannot be listened on: {error}; name a socket in a folder that can be written to"
        ) from None
    return made

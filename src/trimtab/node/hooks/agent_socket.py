"""The socket by which the CRI proxy, a separate process, asks the agent for an adjustment.

The kubelet cannot work without the proxy, so the agent is not part of it: an agent that restarts, hangs or
was killed costs a container its adjustment. A request is one line of JSON on a connection of its own, and so
is the response.
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
from trimtab.node.hooks.adjustments import (
    Adjustment,
    CountResult,
    DecideAdjustment,
    RuntimeContainer,
    ignore_result,
)

log = structlog.get_logger(__name__)

REQUEST_TIMEOUT = 5.0
"""The seconds after which a connection without a request is closed."""
MAX_LINE_BYTES = 1 << 20
"""The maximum bytes of a line; Kubernetes allows 256 KiB of annotations."""


@dataclass(frozen=True)
class AgentClient:
    """The agent as the proxy sees it. Raises OSError, TimeoutError or ValueError without a response."""

    path: Path
    """The agent's socket."""
    deadline: float = 1.0
    """The seconds that a container may wait for it."""

    async def __call__(self, container: RuntimeContainer) -> Adjustment:
        async with asyncio.timeout(self.deadline):
            reader, writer = await asyncio.open_unix_connection(str(self.path), limit=MAX_LINE_BYTES)
            try:
                writer.write(msgspec.json.encode(container) + b"\n")
                return msgspec.json.decode(await reader.readline(), type=Adjustment)
            finally:
                writer.close()


@asynccontextmanager
async def serve_agent_socket(
    path: Path, decide: DecideAdjustment, *, count_result: CountResult = ignore_result
) -> AsyncIterator[None]:
    """Answer requests at a socket that only root can open."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT):
                container = msgspec.json.decode(await reader.readline(), type=RuntimeContainer)
                wanted = await decide(container)
                writer.write(msgspec.json.encode(wanted) + b"\n")
                await writer.drain()
                count_result("adjusted" if wanted else "unchanged")
        except (OSError, TimeoutError, ValueError) as error:
            log.warning("hooks.request_failed", reason=repr(error))
            count_result("failed")
        finally:
            writer.close()

    async with await asyncio.start_unix_server(answer, sock=_bind_socket(path), limit=MAX_LINE_BYTES):
        yield


def _bind_socket(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # left by a killed agent
        made.bind(str(path))
        path.chmod(0o600)
    except OSError as error:
        made.close()
        raise TrimtabError(
            f"--cri {path}: cannot listen there: {error}; use a socket in a writable directory"
        ) from None
    return made

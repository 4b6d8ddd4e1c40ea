"""The CRI proxy asks the agent: two processes, of which the second may be wrong, hung or dead."""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from harness.process import Process
from node.hooks.test_agent_socket import SUBJECT, WANTED, _decide
from trimtab.node.hooks.adjustments import Adjustment
from trimtab.node.hooks.agent_socket import AgentClient, serve_agent_socket

AGENT_PROGRAM = """
import asyncio, pathlib, sys
from trimtab.node.hooks.adjustments import NO_ADJUSTMENT
from trimtab.node.hooks.agent_socket import serve_agent_socket

async def decide(subject):
    return NO_ADJUSTMENT

async def serve():
    async with serve_agent_socket(pathlib.Path(sys.argv[1]), decide):
        await asyncio.Event().wait()

asyncio.run(serve())
"""


async def _first_answer(agent: AgentClient) -> Adjustment:
    """As soon as somebody listens there."""
    async with asyncio.timeout(60):
        while True:
            with suppress(FileNotFoundError, ConnectionRefusedError):
                return await agent(SUBJECT)
            await asyncio.sleep(0.05)


async def test_agent_socket_client_does_not_wait_for_a_hung_or_killed_agent(tmp_path: Path) -> None:
    path = tmp_path / "agent"
    agent = Process("agent", [sys.executable, "-c", AGENT_PROGRAM, path], log=tmp_path / "log")
    agent.start()
    try:
        await _first_answer(AgentClient(path, deadline=60))
        os.kill(agent.pid, signal.SIGSTOP)
        with pytest.raises(TimeoutError):
            await AgentClient(path, deadline=0.2)(SUBJECT)
    finally:
        agent.kill()
    assert path.exists()  # it could not be removed
    with pytest.raises(ConnectionRefusedError):
        await AgentClient(path, deadline=60)(SUBJECT)
    async with serve_agent_socket(path, _decide):  # restarted
        assert await AgentClient(path, deadline=60)(SUBJECT) == WANTED

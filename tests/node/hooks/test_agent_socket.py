"""The CRI proxy asks the agent: two processes, of which the second may be wrong, hung or dead."""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from harness.process import Process
from trimtab.errors import TrimtabError
from trimtab.node.hooks.adjustments import NO_ADJUSTMENT, Adjustment, RuntimeContainer
from trimtab.node.hooks.agent_socket import AgentClient, serve_agent_socket

SUBJECT = RuntimeContainer(
    namespace="shop",
    pod="web",
    uid="1",
    container="main",
    labels={"app": "web"},
    annotations={"long": "x" * 300_000},
    quota=50_000,
)
WANTED = Adjustment(cpus="0-1", quota=30_000, env={"OURS": "ü"})
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


async def _decide(subject: RuntimeContainer) -> Adjustment:
    if subject.pod == "hopeless":
        raise ValueError("no idea")
    return WANTED if subject == SUBJECT else NO_ADJUSTMENT


async def _first_answer(agent: AgentClient) -> Adjustment:
    """As soon as somebody listens there."""
    async with asyncio.timeout(60):
        while True:
            with suppress(FileNotFoundError, ConnectionRefusedError):
                return await agent(SUBJECT)
            await asyncio.sleep(0.05)


async def test_agent_socket_answers_with_the_agents_decision(tmp_path: Path) -> None:
    path = tmp_path / "run" / "agent"
    async with serve_agent_socket(path, _decide):
        agent = AgentClient(path, deadline=60)
        assert await agent(SUBJECT) == WANTED
        assert not await agent(RuntimeContainer(namespace="", pod="", uid="", container=""))
        with pytest.raises(ValueError, match="truncated"):
            await agent(RuntimeContainer(namespace="", pod="hopeless", uid="", container=""))
        assert await agent(SUBJECT) == WANTED  # whatever was before
        assert path.stat().st_mode & 0o777 == 0o600


async def test_agent_socket_counts_results(tmp_path: Path) -> None:
    results: list[str] = []
    path = tmp_path / "agent"
    async with serve_agent_socket(path, _decide, count_result=results.append):
        agent = AgentClient(path, deadline=60)
        await agent(SUBJECT)
        await agent(RuntimeContainer(namespace="", pod="", uid="", container=""))
        with pytest.raises(ValueError, match="truncated"):
            await agent(RuntimeContainer(namespace="", pod="hopeless", uid="", container=""))
    assert results == ["adjusted", "unchanged", "failed"]


async def test_agent_socket_names_the_option_of_an_impossible_socket() -> None:
    with pytest.raises(TrimtabError, match="--cri /proc/none/agent: cannot be listened on"):
        async with serve_agent_socket(Path("/proc/none/agent"), _decide):
            pass


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
    assert path.exists()  # nobody could clear it away
    with pytest.raises(ConnectionRefusedError):
        await AgentClient(path, deadline=60)(SUBJECT)
    async with serve_agent_socket(path, _decide):  # started anew
        assert await AgentClient(path, deadline=60)(SUBJECT) == WANTED

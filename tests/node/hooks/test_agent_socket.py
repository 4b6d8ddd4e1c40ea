"""The CRI proxy asks the agent: two processes, of which the second may be wrong, hung or dead."""

from pathlib import Path

import pytest

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


async def _decide(subject: RuntimeContainer) -> Adjustment:
    if subject.pod == "hopeless":
        raise ValueError("no idea")
    return WANTED if subject == SUBJECT else NO_ADJUSTMENT


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
    with pytest.raises(TrimtabError, match="--cri /proc/none/agent: cannot listen there"):
        async with serve_agent_socket(Path("/proc/none/agent"), _decide):
            pass

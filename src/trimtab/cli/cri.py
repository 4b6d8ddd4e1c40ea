"""`trimtab cri`: the CRI proxy of a node, a process of its own so that the kubelet does not depend on the agent."""

import asyncio
import signal
from math import inf
from pathlib import Path

from trimtab.errors import TrimtabError
from trimtab.node.hooks.agent_socket import AgentClient
from trimtab.node.hooks.cri import CriProxy


def cri(
    *,
    listen: Path = Path("/run/trimtab/cri.sock"),
    runtime: Path = Path("/run/containerd/containerd.sock"),
    agent: Path = Path("/run/trimtab/agent.sock"),
    deadline: float = 1.0,
) -> None:
    """Run a CRI proxy for a runtime without NRI, so that the node agent can adjust containers when they start.

    As a service of the node that starts before the kubelet (containerRuntimeEndpoint: unix:///run/trimtab/cri.sock):

        trimtab cri --runtime /run/containerd/containerd.sock

    The agent on the same node: trimtab agent --cri /run/trimtab/agent.sock

    Parameters
    ----------
    listen
        The socket that the kubelet connects to.
    runtime
        The runtime's own socket, to which every call is forwarded.
    agent
        The node agent's socket. A call for which the agent does not answer is forwarded unchanged.
    deadline
        Seconds to wait for the agent's answer.
    """
    if not 0 < deadline < inf:
        raise TrimtabError(f"--deadline {deadline:g}: must be a number of seconds, and more than 0")
    try:
        asyncio.run(_serve(CriProxy(listen, runtime, AgentClient(agent, deadline=deadline))))
    except (OSError, RuntimeError) as error:
        raise TrimtabError(
            f"--listen {listen}: cannot listen there: {error}; choose another socket"
        ) from None


async def _serve(proxy: CriProxy) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with proxy:
        await stopped.wait()

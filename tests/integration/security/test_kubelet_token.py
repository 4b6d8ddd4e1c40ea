"""The agent's token, which may evict pods, goes only to a kubelet whose certificate was verified."""

import asyncio
import ssl
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from structlog.testing import capture_logs

from harness.builders.certificates import LOOPBACK, Authority
from harness.cluster.daemonset_sandbox import manifest
from harness.process import Process
from trimtab.kube.auth import Connection
from trimtab.kube.auth.credential_sources import FileCredentialSource, InlineCredentialSource
from trimtab.kube.auth.credentials import LocalCredentialProvider
from trimtab.kube.auth.tls import Trust
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.retry import RetryPolicy
from trimtab.node.agent import connect_to_kubelet
from trimtab.node.cgroups import Hierarchy
from trimtab.node.config import AgentSettings
from trimtab.node.informer import NodeInformer

ANSWER = b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\nConnection: close\r\n\r\n{"items":[]}'


@pytest.fixture
def informer(tmp_path: Path) -> NodeInformer:
    tree = tmp_path / "cgroups"
    (tree / "kubepods").mkdir(parents=True)
    (tree / "cgroup.controllers").touch()
    return NodeInformer("node", hierarchy=Hierarchy.detect(tree))


@pytest.mark.parametrize(
    ("scheme", "options", "gets_token", "lists_pods"),
    [
        ("https", {}, False, False),
        ("https", {"kubelet_insecure": True}, False, True),
        ("http", {}, False, True),
        ("https", {"kubelet_ca": "kubelet"}, True, True),
        ("https", {"kubelet_ca": "kubelet", "kubelet_insecure": True}, True, True),
        ("https", {"kubelet_ca": "cluster"}, False, False),
    ],
)
async def test_agent_sends_its_token_only_to_a_verified_kubelet(
    informer: NodeInformer,
    tmp_path: Path,
    scheme: str,
    options: dict[str, bool | str],
    *,
    gets_token: bool,
    lists_pods: bool,
) -> None:
    authorities = {name: Authority(tmp_path / name, name) for name in ("cluster", "kubelet")}
    pair = authorities["kubelet"].issue("node", hosts=("DNS:node",))
    received: list[bytes] = []

    async def kubelet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(ANSWER)
        await writer.drain()
        writer.close()

    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(pair.cert, pair.key)
    encrypted = serving if scheme == "https" else None
    async with await asyncio.start_server(kubelet, "127.0.0.1", 0, ssl=encrypted) as server:
        url = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        settings = AgentSettings(node="node", kubelet=url)
        if "kubelet_ca" in options:
            settings = replace(settings, kubelet_ca=authorities[str(options["kubelet_ca"])].cert)
        if options.get("kubelet_insecure"):
            settings = replace(settings, kubelet_insecure=True)
        cluster = Connection(
            server="https://127.0.0.1:1",
            context="",
            namespace="",
            credentials=LocalCredentialProvider(
                token=InlineCredentialSource(where="test", content=b"agent-token")
            ),
            trust=Trust(FileCredentialSource(authorities["cluster"].cert, where="test")),
        )
        async with Client(connect_to_kubelet(cluster, settings), retry=RetryPolicy(attempts=1)) as client:
            with capture_logs() as logs:
                polling = asyncio.create_task(informer.poll_kubelet(client, clock=lambda: 100.0))
                while not (logs or informer.has_kubelet):
                    await asyncio.sleep(0.01)
            polling.cancel()
            await asyncio.wait([polling])
    assert any(b"agent-token" in request for request in received) is gets_token
    assert informer.has_kubelet is lists_pods
    # The API server describes the pods instead, so the agent is ready.
    assert informer.errors_by_source() == {}


@pytest.mark.parametrize(
    ("authority", "hosts", "gets_token"),
    [
        ("tenant", ("IP:127.0.0.2",), False),  # its own, for the right address
        ("cluster", ("IP:127.0.0.9", "DNS:other-node"), False),  # stolen from another node
        ("cluster", (), False),  # of a client, such as a kubelet's own user
        ("cluster", LOOPBACK, False),
        ("cluster", ("IP:127.0.0.2",), True),  # the kubelet itself
    ],
)
async def test_agent_with_the_arguments_of_its_manifest_sends_its_token_to_its_kubelet_only(
    tmp_path: Path, authority: str, hosts: tuple[str, ...], *, gets_token: bool
) -> None:
    """A tenant's pod with the hostPort 10250 gets the agent's connections to the node's address."""
    authorities = {name: Authority(tmp_path / name, name) for name in ("cluster", "tenant")}
    pair = authorities[authority].issue("kubelet", hosts=hosts)
    tried, received = asyncio.Event(), list[bytes]()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(ANSWER)
        await writer.drain()
        writer.close()
        tried.set()

    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(pair.cert, pair.key)
    async with await asyncio.start_server(listen, "127.0.0.2", 0, ssl=serving) as server:
        [container] = manifest()["containers"]
        place = f"127.0.0.2:{server.sockets[0].getsockname()[1]}"
        kubelet = [flag for flag in container["args"] if flag.startswith("--kubelet")]
        flags = [flag.replace("$(NODE_IP):10250", place) for flag in kubelet]
        assert place in flags[0]
        agent = _start_agent(tmp_path, authorities["cluster"], *flags)
        try:
            while not tried.is_set() and "kubelet.unreachable" not in agent.log.read_text():
                assert agent.alive, agent.log.read_text()
                await asyncio.sleep(0.1)
        finally:
            await asyncio.to_thread(agent.kill)
    assert any(b"agent-token" in request for request in received) is gets_token
    assert bool(received) is gets_token


def _start_agent(folder: Path, cluster: Authority, *flags: str) -> Process:
    """Start an agent of a cluster whose API server does not answer."""
    server = {"server": "https://127.0.0.1:1", "certificate-authority": str(cluster.cert)}
    kubeconfig = {
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "agent"}}],
        "clusters": [{"name": "test", "cluster": server}],
        "users": [{"name": "agent", "user": {"token": "agent-token"}}],
    }
    (folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    settings = ("--kubeconfig", folder / "kubeconfig", "--state", folder / "state", "--node", "node")
    program = Path(sys.executable).with_name("trimtab")
    command: list[str | Path] = [program, "agent", *settings, "--address", "127.0.0.1:0"]
    agent = Process("agent", [*command, "--read-only", *flags], log=folder / "agent.log")
    agent.start()
    return agent

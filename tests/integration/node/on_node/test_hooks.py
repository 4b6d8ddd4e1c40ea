"""The ways into containers' lives on the real node: NRI with the real containerd, a CRI proxy for the real kubelet."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import grpc
import pytest

from harness.builders.busybox_workloads import size, template
from harness.cluster.cluster import Cluster
from harness.cluster.containerd import Containerd
from harness.cluster.node import NAME
from harness.e2e.agent import AgentProcess
from harness.process import Process, wait_for
from trimtab.node.arbiter import KnobRef
from trimtab.node.cgroups import CgroupLayout, Hierarchy, Knob, QosClass
from trimtab.node.cgroups.knobs import CPU_QUOTA, CPUSET_EFFECTIVE
from trimtab.node.executor import KnobFiles
from trimtab.node.hooks.adjustments import NO_ADJUSTMENT, Adjustment, DecideAdjustment, RuntimeContainer
from trimtab.node.hooks.agent_socket import AgentClient, serve_agent_socket
from trimtab.node.hooks.nri import NriPlugin
from trimtab.timing import Backoff

ROOT = Path("/sys/fs/cgroup")
POLICIES = "/apis/trimtab.io/v1alpha1/nodeqospolicies"
RUNTIME = "/runtime.v1.RuntimeService"
Events: TypeAlias = "grpc.aio.UnaryStreamMultiCallable[bytes, bytes]"
Ask: TypeAlias = "grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]"
LONG = "x" * 8192
"""More than fits into a frame of NRI's mux."""


class Pods:
    """Pods of one namespace, and what their containers' cgroups hold. Each call blocks, so tests use threads."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._surface = KnobFiles(Hierarchy.detect(ROOT))
        self._layout = CgroupLayout.detect(self._surface.hierarchy)

    def run(self, name: str, *, cpu_limit: str, **env: str) -> dict[str, Any]:
        """A pod that says what it finds in its environment and then sleeps; returned when it runs."""
        pod = template("env; exec sleep 3600", app=name, size=size("10m", "16Mi", cpu_limit=cpu_limit))
        pod["metadata"]["name"] = name
        pod["spec"]["containers"][0]["env"] = [{"name": key, "value": value} for key, value in env.items()]
        self._cluster.call("POST", self._path, pod)
        wait_for(lambda: self.now(name)["status"]["phase"] == "Running", what=f"pod {name}", timeout=120)
        return self.now(name)

    def now(self, name: str) -> dict[str, Any]:
        return self._cluster.call("GET", f"{self._path}/{name}")

    def resize(self, name: str, cpu_limit: str) -> None:
        patch = f'{{"spec": {{"containers": [{{"name": "main", "resources": {{"limits": {{"cpu": "{cpu_limit}"}}}}}}]}}}}'
        where = (
            f"--namespace={self._namespace}",
            "--subresource=resize",
            "--type=strategic",
            f"--patch={patch}",
        )
        self._cluster.kubectl("patch", "pod", name, *where)

    def held(self, pod: dict[str, Any], knob: Knob[Any]) -> Any:
        folder = self._layout.pod_path(pod["metadata"]["uid"], QosClass.BURSTABLE)
        return self._surface.read(KnobRef(self._layout.container_path(folder, container_of(pod)), knob))

    def said(self, name: str) -> str:
        return self._cluster.kubectl("logs", name, f"--namespace={self._namespace}")


def container_of(pod: dict[str, Any]) -> str:
    found: str = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    return found


@pytest.fixture
def pods(node_cluster: Cluster, namespace: str) -> Pods:
    return Pods(node_cluster, namespace)


@pytest.fixture
def containerd(node_cluster: Cluster) -> Containerd:
    assert node_cluster.node is not None
    return node_cluster.node.containerd


@pytest.fixture
async def plug(containerd: Containerd) -> AsyncIterator[Callable[[DecideAdjustment], Any]]:
    """Register a plugin that decides so, until the test ends."""
    running = []

    async def start(decide: DecideAdjustment) -> NriPlugin:
        backoff = Backoff(first=0.1, ceiling=0.5)
        plugin = NriPlugin(containerd.nri_socket, decide, deadline=0.5, backoff=backoff)
        running.append(asyncio.create_task(plugin.run()))
        await asyncio.wait_for(plugin.synchronized.wait(), 60)
        return plugin

    yield start
    for task in running:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def _asking(socket: Path) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(f"unix://{socket}", options=[("grpc.default_authority", "localhost")])


async def _collect(stream: AsyncIterator[bytes], seen: list[bytes]) -> None:
    async for event in stream:
        seen.append(event)  # noqa: PERF401 - to be looked at while it goes on


def _for(namespace: str, wanted: Adjustment) -> DecideAdjustment:
    async def decide(subject: RuntimeContainer) -> Adjustment:
        return wanted if subject.namespace == namespace else NO_ADJUSTMENT

    return decide


async def test_nri_plugin_adjusts_a_created_container(
    plug: Callable[[DecideAdjustment], Any], pods: Pods, namespace: str
) -> None:
    """With messages of more than a frame in both directions."""
    plugin = await plug(_for(namespace, Adjustment(cpus="0", quota=30_000, env={"OURS": LONG})))
    pod = await asyncio.to_thread(pods.run, "made", cpu_limit="500m", THEIRS=LONG)
    assert pods.held(pod, CPU_QUOTA) == 30_000
    assert pods.held(pod, CPUSET_EFFECTIVE) == {0}
    said = await asyncio.to_thread(pods.said, "made")
    assert {f"OURS={LONG}", f"THEIRS={LONG}"} <= set(said.splitlines())
    assert plugin.outcomes["adjusted"] == 1


async def test_nri_plugin_updates_cgroups_after_a_runtime_restart(
    plug: Callable[[DecideAdjustment], Any], pods: Pods, namespace: str, containerd: Containerd
) -> None:
    wanted = Adjustment()

    async def decide(subject: RuntimeContainer) -> Adjustment:
        return wanted if subject.namespace == namespace else NO_ADJUSTMENT

    plugin = await plug(decide)
    pod = await asyncio.to_thread(pods.run, "updated", cpu_limit="500m")
    assert pods.held(pod, CPU_QUOTA) == 50_000

    wanted = Adjustment(quota=45_000)  # whatever the kubelet will ask for
    await asyncio.to_thread(pods.resize, "updated", "600m")
    await asyncio.to_thread(
        wait_for, lambda: pods.held(pod, CPU_QUOTA) == 45_000, what="our quota instead of the kubelet's"
    )

    wanted = Adjustment(quota=35_000)
    containerd.kill()
    containerd.start()  # by this thread, with which it lives and dies
    await asyncio.to_thread(wait_for, lambda: plugin.outcomes["registered"] == 2, what="the plugin's return")
    await asyncio.to_thread(
        wait_for,
        lambda: pods.held(pod, CPU_QUOTA) == 35_000,
        what="the quota that it requested when it was synchronized",
    )


async def test_nri_plugin_that_never_answers_does_not_block_pods(
    plug: Callable[[DecideAdjustment], Any], pods: Pods, namespace: str
) -> None:
    async def decide(subject: RuntimeContainer) -> Adjustment:
        if subject.namespace == namespace:
            await asyncio.Event().wait()
        return NO_ADJUSTMENT

    plugin = await plug(decide)
    pod = await asyncio.to_thread(pods.run, "unhindered", cpu_limit="500m")
    assert pods.held(pod, CPU_QUOTA) == 50_000
    assert plugin.outcomes["failed"] == 1
    assert plugin.outcomes["registered"] == 1  # and the runtime has not dropped it


@dataclass(frozen=True)
class Proxy:
    """A proxy between kubelet and containerd, a process of its own."""

    process: Process
    sockets: Path
    """Their folder: its own, `cri`, and `agent`, where it asks."""


@pytest.fixture(scope="module")
def proxy(node_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    assert node_cluster.node is not None
    folder = tmp_path_factory.mktemp("cri")
    sockets = [
        f"--listen={folder}/cri",
        f"--agent={folder}/agent",
        f"--runtime={node_cluster.node.containerd.socket}",
    ]
    trimtab = Path(sys.executable).with_name("trimtab")
    # Generous: no container here is to go without its adjustment because a busy machine was slow.
    made = Process("cri", [trimtab, "cri", "--deadline=30", *sockets], log=folder / "log")
    made.start()
    made.wait_until((folder / "cri").exists)
    node_cluster.node.serve_kubelet_by(folder / "cri")()
    yield Proxy(made, folder)
    node_cluster.node.serve_kubelet_by(None)()
    made.stop()


async def test_cri_proxy_runs_a_pod_between_kubelet_and_containerd(
    proxy: Proxy, pods: Pods, namespace: str
) -> None:
    """The agent adjusts a container at its creation and at a resize, also after a kill in between. It passes on
    streams and rejections, and lets pods run when the decision fails.
    """
    wanted = Adjustment(cpus="0", quota=30_000, env={"OURS": "here"})

    async def decide(subject: RuntimeContainer) -> Adjustment:
        if subject.pod == "hopeless":
            raise ValueError("no idea")
        return wanted if subject.namespace == namespace else NO_ADJUSTMENT

    async with serve_agent_socket(proxy.sockets / "agent", decide):
        pod = await asyncio.to_thread(pods.run, "through", cpu_limit="500m")
        assert pods.held(pod, CPU_QUOTA) == 30_000
        assert pods.held(pod, CPUSET_EFFECTIVE) == {0}
        assert "OURS=here" in (await asyncio.to_thread(pods.said, "through")).splitlines()

        proxy.process.kill()
        proxy.process.start()
        wanted = Adjustment(quota=45_000)
        await asyncio.to_thread(pods.resize, "through", "600m")
        await asyncio.to_thread(
            wait_for,
            lambda: pods.held(pod, CPU_QUOTA) == 45_000,
            what="our quota instead of the kubelet's",
            timeout=180,
        )

        async with _asking(proxy.sockets / "cri") as channel:
            events: Events = channel.unary_stream(f"{RUNTIME}/GetContainerEvents")
            seen: list[bytes] = []
            collecting = asyncio.create_task(_collect(aiter(events(b"")), seen))
            other = await asyncio.to_thread(pods.run, "hopeless", cpu_limit="500m")
            started = container_of(other).encode()
            await asyncio.to_thread(
                wait_for, lambda: any(started in event for event in seen), what="the event of its start"
            )
            collecting.cancel()
            unknown: Ask = channel.unary_unary(f"{RUNTIME}/NoSuchCall")
            for _ in range(20):
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await unknown(b"")
                assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert pods.held(other, CPU_QUOTA) == 50_000


async def _answers(agent: AgentClient, subject: RuntimeContainer) -> Adjustment:
    """The adjustment once a policy exists."""
    async with asyncio.timeout(180):
        while True:
            with suppress(OSError):
                if wanted := await agent(subject):
                    return wanted
            await asyncio.sleep(0.1)


async def test_cri_proxy_runs_pods_while_the_agent_is_down(
    node_cluster: Cluster, proxy: Proxy, pods: Pods, tmp_path: Path
) -> None:
    """And carry its adjustment again once it is back; the kubelet notices nothing."""
    node_cluster.learn()
    policy = {
        "apiVersion": "trimtab.io/v1alpha1",
        "kind": "NodeQoSPolicy",
        "metadata": {"name": "hooked"},
        "spec": {},
    }
    node_cluster.call("POST", POLICIES, policy)
    agent = AgentProcess(node_cluster, tmp_path, f"--cri={proxy.sockets}/agent", node=NAME)
    like = RuntimeContainer(
        namespace="", pod="", uid="", container="", cgroup_parent="/kubepods/burstable/pod1"
    )

    async def has_tier_in_environment(name: str) -> bool:
        await asyncio.to_thread(pods.run, name, cpu_limit="500m")
        return "TRIMTAB_QOS=LS" in (await asyncio.to_thread(pods.said, name)).splitlines()

    try:
        agent.start()
        await _answers(AgentClient(proxy.sockets / "agent"), like)
        assert await has_tier_in_environment("before")
        agent.kill()
        assert not await has_tier_in_environment("meanwhile")
        agent.start()
        await _answers(AgentClient(proxy.sockets / "agent"), like)
        assert await has_tier_in_environment("after")
    finally:
        agent.stop()
        node_cluster.call("DELETE", f"{POLICIES}/hooked")

"""The plugin against a runtime that a test plays: what the real one does only with thousands of containers, or never."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from google.protobuf.message import Message
from prometheus_client import CollectorRegistry

from trimtab.node.hooks import ttrpc
from trimtab.node.hooks.adjustments import Adjustment, CountResult, RuntimeContainer, ignore_result
from trimtab.node.hooks.messages import nri_pb2 as pb
from trimtab.node.hooks.mux import Mux
from trimtab.node.hooks.nri import PLUGIN, RUNTIME, NriPlugin
from trimtab.node.metrics import QosMetrics
from trimtab.timing import Backoff

POD = pb.PodSandbox(
    id="s", name="p", namespace="ns", linux=pb.LinuxPodSandbox(cgroup_parent="/kubepods/pod1")
)
CONTAINER = pb.Container(id="c", pod_sandbox_id="s", name="main", state=pb.ContainerState.CONTAINER_RUNNING)


class Runtime:
    """One plugin's connection, from the other end."""

    def __init__(self, mux: Mux) -> None:
        self.registered: asyncio.Future[pb.RegisterPluginRequest] = asyncio.get_running_loop().create_future()
        self._plugin = ttrpc.TtrpcClient(ttrpc.Channel(mux, 1))
        mux.open_stream(1)
        mux.open_stream(2)
        handlers = {f"{RUNTIME}/RegisterPlugin": self._register}
        self.loops = [mux.run(), self._plugin.run(), ttrpc.serve(ttrpc.Channel(mux, 2), handlers)]

    async def _register(self, payload: bytes) -> bytes:
        self.registered.set_result(pb.RegisterPluginRequest.FromString(payload))
        return b""

    async def ask(self, method: str, message: Message) -> bytes:
        return await self._plugin.call(PLUGIN, method, message.SerializeToString(), timeout=30)


@asynccontextmanager
async def _runtime(plugin: NriPlugin, socket: Path) -> AsyncIterator[Runtime]:
    """A runtime with which the plugin has registered."""
    ended = asyncio.Event()
    connected: asyncio.Future[Runtime] = asyncio.get_running_loop().create_future()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        mux = Mux(reader, writer)
        runtime = Runtime(mux)
        tasks = asyncio.gather(*runtime.loops)
        connected.set_result(runtime)
        await tasks
        await mux.close()
        ended.set()

    server = await asyncio.start_unix_server(accept, socket)
    running = asyncio.create_task(plugin.run())
    try:
        runtime = await asyncio.wait_for(connected, 30)
        await runtime.registered
        yield runtime
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await ended.wait()
        server.close()
        await server.wait_closed()


def _plugin(
    socket: Path, wanted: Adjustment | Exception, *, count_result: CountResult = ignore_result
) -> NriPlugin:
    async def decide(subject: RuntimeContainer) -> Adjustment:
        if isinstance(wanted, Exception):
            raise wanted
        assert subject.cgroup_parent == "/kubepods/pod1"
        return wanted

    return NriPlugin(socket, decide, backoff=Backoff(first=0.05), count_result=count_result)


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "nri.sock"


async def test_nri_plugin_registers_and_subscribes_only_to_handled_events(socket: Path) -> None:
    async with _runtime(_plugin(socket, Adjustment()), socket) as runtime:
        registration = runtime.registered.result()
        assert (registration.plugin_name, registration.plugin_idx) == ("trimtab", "50")
        answer = pb.ConfigureResponse.FromString(await runtime.ask("Configure", pb.ConfigureRequest()))
        assert answer.events == 1 << (pb.Event.CREATE_CONTAINER - 1) | 1 << (pb.Event.UPDATE_CONTAINER - 1)


async def test_nri_plugin_answers_synchronize_after_the_last_part(socket: Path) -> None:
    plugin = _plugin(socket, Adjustment(quota=5000))
    async with _runtime(plugin, socket) as runtime:
        pieces = [
            pb.SynchronizeRequest(containers=[CONTAINER], more=True),
            pb.SynchronizeRequest(pods=[POD], more=True),
            pb.SynchronizeRequest(),
        ]
        answers = [
            pb.SynchronizeResponse.FromString(await runtime.ask("Synchronize", piece)) for piece in pieces
        ]
        assert [(answer.more, len(answer.update)) for answer in answers] == [(True, 0), (True, 0), (False, 1)]
        assert answers[2].update[0].container_id == "c"
        assert answers[2].update[0].linux.resources.cpu.quota.value == 5000
        assert plugin.synchronized.is_set()


async def test_nri_plugin_updates_only_running_containers_that_change(socket: Path) -> None:
    """An environment is only for those that are made."""
    async with _runtime(_plugin(socket, Adjustment(env={"TRIMTAB_QOS": "LS"})), socket) as runtime:
        everything = pb.SynchronizeRequest(pods=[POD], containers=[CONTAINER])
        answer = pb.SynchronizeResponse.FromString(await runtime.ask("Synchronize", everything))
        assert not answer.update
        change = pb.UpdateContainerRequest(pod=POD, container=CONTAINER)
        changed = pb.UpdateContainerResponse.FromString(await runtime.ask("UpdateContainer", change))
        assert not changed.update


async def test_nri_plugin_changes_nothing_when_the_decision_fails(socket: Path) -> None:
    plugin = _plugin(socket, ValueError("no idea"))
    async with _runtime(plugin, socket) as runtime:
        request = pb.CreateContainerRequest(pod=POD, container=CONTAINER)
        assert await runtime.ask("CreateContainer", request) == b""
        assert plugin.outcomes["failed"] == 1


@pytest.mark.parametrize(
    ("wanted", "result"),
    [(Adjustment(quota=5000), "adjusted"), (Adjustment(), "unchanged"), (ValueError("no idea"), "failed")],
)
async def test_nri_plugin_exposes_results_as_metrics(
    socket: Path, wanted: Adjustment | Exception, result: str
) -> None:
    registry = CollectorRegistry()
    count_result = QosMetrics(registry).count_hook_results("nri")
    async with _runtime(_plugin(socket, wanted, count_result=count_result), socket) as runtime:
        await runtime.ask("CreateContainer", pb.CreateContainerRequest(pod=POD, container=CONTAINER))
        labels = {"hook": "nri", "result": result}
        assert registry.get_sample_value("trimtab_node_hook_results_total", labels) == 1


async def test_nri_plugin_rejects_unknown_calls_of_newer_runtimes(socket: Path) -> None:
    async with _runtime(_plugin(socket, Adjustment()), socket) as runtime:
        with pytest.raises(ttrpc.TtrpcError, match="code 12"):
            await runtime.ask("SomethingNew", pb.Empty())

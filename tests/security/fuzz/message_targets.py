"""Targets: messages of container runtimes, plugins and Prometheus, and kubeconfigs."""

from __future__ import annotations

import asyncio
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
from google.protobuf.message import DecodeError, Message
from structlog.testing import capture_logs

from intents.services import goal, latency, service
from security.fuzz.engine import RunInput, Target
from trimtab.errors import TrimtabError
from trimtab.intents.planner import Plan, Purpose
from trimtab.intents.plugins.codec import (
    plan_from_message,
    plan_to_message,
    state_from_message,
    state_to_message,
)
from trimtab.intents.plugins.messages import plugin_pb2 as plugins
from trimtab.kube.auth.kubeconfig import read_kubeconfig
from trimtab.kube.auth.kubeconfig_entries import parse_server_url
from trimtab.node.hooks import cri, ttrpc
from trimtab.node.hooks.adjustments import Adjustment, RuntimeContainer
from trimtab.node.hooks.messages import cri_pb2, nri_pb2
from trimtab.node.hooks.messages.ttrpc_pb2 import Request
from trimtab.node.hooks.mux import FRAME, Mux, split_frames
from trimtab.node.hooks.nri import PLUGIN, PLUGIN_CONNECTION, NriPlugin
from trimtab.usage.errors import UsageResponseError
from trimtab.usage.prometheus.remote_read.chunks import PADDING_BYTES
from trimtab.usage.prometheus.remote_read.framing import _CRC_TABLE, _crc
from trimtab.usage.prometheus.remote_read.protocol import decode_response
from trimtab.usage.prometheus.remote_read.range_functions import evaluate_windows


class _Sink:
    """Takes the place of a StreamWriter; counts what is written."""

    def __init__(self) -> None:
        self.size = 0

    def write(self, data: bytes) -> None:
        self.size += len(data)

    async def drain(self) -> None:
        pass


async def _decide(subject: RuntimeContainer) -> Adjustment:
    """Adjust whatever the request says, so that it is written into the answer."""
    assert all(isinstance(text, str) for text in (subject.pod, subject.cgroup_parent, subject.cpus))
    return Adjustment(cpus=subject.cpus or "0", quota=subject.quota, cache_class="be", env={"A": subject.pod})


_POD = nri_pb2.PodSandbox(
    id="s", name="web", namespace="shop", uid="u", labels={"a": "b"}, annotations={"c": "d"},
    linux=nri_pb2.LinuxPodSandbox(cgroup_parent="/kubepods/pod1"),
)  # fmt: skip
_CONTAINER = nri_pb2.Container(
    id="c", pod_sandbox_id="s", name="main", state=nri_pb2.ContainerState.CONTAINER_RUNNING
)
_NRI_MESSAGES: dict[str, Message] = {
    "Configure": nri_pb2.ConfigureRequest(runtime_name="containerd", runtime_version="2"),
    "Synchronize": nri_pb2.SynchronizeRequest(pods=[_POD], containers=[_CONTAINER]),
    "CreateContainer": nri_pb2.CreateContainerRequest(pod=_POD, container=_CONTAINER),
    "UpdateContainer": nri_pb2.UpdateContainerRequest(pod=_POD, container=_CONTAINER),
    "Shutdown": nri_pb2.Empty(),
}


def _build_request(method: str, message: Message) -> bytes:
    return Request(
        service=PLUGIN, method=method, payload=message.SerializeToString(), timeout_nano=10**9
    ).SerializeToString()


def _build_frames(content: bytes) -> bytes:
    head = ttrpc.HEADER.pack(len(content), 1, ttrpc.REQUEST, 0)
    return b"".join(split_frames(PLUGIN_CONNECTION, head + content))


def _run_in_loop(handle: Callable[[bytes], Any]) -> Callable[[], Any]:
    """Return a starter whose inputs run in one event loop."""

    @contextmanager
    def start() -> Iterator[RunInput]:
        # A line of the log for each input would hide the findings.
        with asyncio.Runner() as runner, capture_logs():
            yield lambda data: cast("str", runner.run(handle(data)))

    return start


async def _read_frames(data: bytes) -> str:
    """Read a connection of the runtime until its end, and answer its requests."""
    reader, sink = asyncio.StreamReader(), _Sink()
    mux = Mux(reader, cast("asyncio.StreamWriter", sink))
    channel = ttrpc.Channel(mux, PLUGIN_CONNECTION)
    mux.open_stream(PLUGIN_CONNECTION)
    reader.feed_data(data)
    reader.feed_eof()
    handlers = NriPlugin(Path("nri.sock"), _decide)._build_handlers()
    await asyncio.gather(mux.run(), ttrpc.serve(channel, handlers))
    assert sink.size <= 64 * len(data) + 1024, "the answer is much longer than the request"
    return "answered" if sink.size else "ignored"


async def _answer_nri_request(data: bytes) -> str:
    handlers = NriPlugin(Path("nri.sock"), _decide)._build_handlers()
    response = await ttrpc._build_response(data, handlers)
    return f"code {response.status.code}"


async def _adjust_cri_request(data: bytes) -> str:
    """Adjust a request of the kubelet; whatever cannot be read is forwarded as it is."""
    proxy = cri.CriProxy(Path("listen.sock"), Path("runtime.sock"), _decide)
    adjusted = await proxy._adjust(cri.CREATE, data)
    if adjusted == data:
        return "forwarded"
    cri_pb2.CreateContainerRequest.FromString(adjusted)
    return "adjusted"


_STATE = service()
_GOAL = goal(latency(0.1))


def _read_plugin_message(data: bytes) -> str:
    plan = plan_from_message(plugins.PlanResponse.FromString(data), goal=_GOAL, before=_STATE)
    assert all(len(words) <= 4096 for words in plan.why)
    assert len(plan_to_message(plan).SerializeToString()) <= 64 * len(data) + (64 << 10)
    return plan.purpose.value


def _read_state_message(data: bytes) -> str:
    state = state_from_message(plugins.State.FromString(data))
    assert state.replicas >= 0
    return "state"


_WHOLE = b"\xff"


def _frame(content: bytes) -> bytes:
    """Return a frame with the right length and checksum, so that inputs reach what is behind those checks."""
    length, rest = b"", len(content)
    while rest > 0x7F:
        length, rest = length + bytes([rest & 0x7F | 0x80]), rest >> 7
    crc = _crc(np.frombuffer(content, np.uint8), _CRC_TABLE)
    return length + bytes([rest]) + struct.pack(">I", crc) + content


def _read_samples(data: bytes) -> str:
    # Whole responses begin with this byte here, the contents of single frames with another.
    body = data[1:] if data[:1] == _WHOLE else _frame(data)
    labels, chunks = decode_response(body + bytes(PADDING_BYTES))
    values = np.empty((len(labels), 10))
    if not evaluate_windows(chunks, 0, 60_000, 300_000, True, values):
        raise UsageResponseError("the response has a damaged chunk of samples")
    return f"{min(3, len(labels))} series"


def _build_samples() -> bytes:
    """Return a frame of a remote read with one series of three samples in an XOR chunk."""

    def field(number: int, content: bytes) -> bytes:
        return bytes([number << 3 | 2, len(content)]) + content

    label = field(1, field(1, b"__name__") + field(2, b"up"))
    chunk = b"\x08\x00" + b"\x10\x80\x01" + b"\x18\x01" + field(4, b"\x00\x01\x00" + struct.pack(">d", 1.0))
    return field(1, label + field(2, chunk)) + b"\x10\x00"


@contextmanager
def _open_folder() -> Iterator[RunInput]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config"

        def read(data: bytes) -> str:
            path.write_bytes(data)
            found = read_kubeconfig(path, environ={})
            name, context = found.select_context(None)
            parse_server_url(found.get_cluster(context))
            found.get_user(context)
            return "context" if name else "none"

        yield read


_KUBECONFIG = b"""apiVersion: v1
kind: Config
current-context: kind
clusters: [{name: c, cluster: {server: "https://127.0.0.1:6443", certificate-authority-data: QUJD}}]
users:
- name: u
  user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, args: [a], env: [{name: A, value: b}]}}
contexts:
- {name: kind, context: {cluster: c, user: u, namespace: shop}}
"""

TARGETS = (
    Target(
        name="nri-frames",
        seeds=[_build_frames(_build_request(method, message)) for method, message in _NRI_MESSAGES.items()]
        + [FRAME.pack(PLUGIN_CONNECTION, 1 << 22), FRAME.pack(7, 3) + b"abc"],
        start=_run_in_loop(_read_frames),
        errors=(),
    ),
    Target(
        name="nri-messages",
        seeds=[_build_request(method, message) for method, message in _NRI_MESSAGES.items()],
        start=_run_in_loop(_answer_nri_request),
        errors=(),
    ),
    Target(
        name="cri-messages",
        seeds=[
            cri_pb2.CreateContainerRequest(
                pod_sandbox_id="s",
                config=cri_pb2.ContainerConfig(metadata=cri_pb2.ContainerMetadata(name="app")),
                sandbox_config=cri_pb2.PodSandboxConfig(
                    metadata=cri_pb2.PodSandboxMetadata(name="web", namespace="shop", uid="u"),
                    annotations={"a": "b"},
                ),
            ).SerializeToString()
        ],
        start=_run_in_loop(_adjust_cri_request),
        errors=(),
    ),
    Target(
        name="plugin-plans",
        seeds=[
            plan_to_message(
                Plan(intent="default/shop", purpose=Purpose.KEEP, why=("fine",))
            ).SerializeToString(),
            plugins.PlanResponse(purpose="Reach", why=["a"], cost=1.0).SerializeToString(),
        ],
        run=_read_plugin_message,
        errors=(TrimtabError, DecodeError),
    ),
    Target(
        name="plugin-states",
        seeds=[state_to_message(_STATE).SerializeToString()],
        run=_read_state_message,
        errors=(TrimtabError, DecodeError),
    ),
    Target(
        name="remote-read",
        seeds=[_build_samples(), _build_samples() * 3, _WHOLE + _frame(_build_samples()) * 2],
        run=_read_samples,
        errors=(UsageResponseError,),
    ),
    Target(name="kubeconfigs", seeds=[_KUBECONFIG], start=_open_folder, errors=(TrimtabError,)),
)

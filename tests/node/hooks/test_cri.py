"""The CRI proxy before a runtime that a test plays: it says back what it is asked, knows a container, refuses, streams."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TypeAlias

import grpc
import pytest

from trimtab.node.hooks.adjustments import Adjustment, RuntimeContainer
from trimtab.node.hooks.cri import CONTAINERS, CREATE, SANDBOXES, UNLIMITED_LENGTH, UPDATE, CriProxy
from trimtab.node.hooks.messages import cri_pb2 as pb

Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"
Call: TypeAlias = "grpc.aio.UnaryStreamMultiCallable[bytes, bytes]"


def _calls_by_message() -> dict[str, dict[bytes, bytes]]:
    """A container, and its pod: what is answered to which question of which name."""
    metadata = pb.PodSandboxMetadata(name="web", uid="1", namespace="shop")
    pod = pb.PodSandbox(metadata=metadata, labels={"app": "web"}, annotations={"a": "b"})
    container = pb.Container(pod_sandbox_id="s", metadata=pb.ContainerMetadata(name="main"))
    answers = {
        CONTAINERS: (
            pb.ListContainersRequest(filter=pb.ContainerFilter(id="old")),
            pb.ListContainersResponse(containers=[container]),
        ),
        SANDBOXES: (
            pb.ListPodSandboxRequest(filter=pb.PodSandboxFilter(id="s")),
            pb.ListPodSandboxResponse(items=[pod]),
        ),
    }
    return {
        method: {asked.SerializeToString(): answer.SerializeToString()}
        for method, (asked, answer) in answers.items()
    }


KNOWN = _calls_by_message()


class Echo(grpc.GenericRpcHandler):
    """Every call is answered with its own message and then with its name, but for whose a container is."""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        method = handler_call_details.method

        async def answer(request: bytes, context: Context) -> AsyncIterator[bytes]:
            if method.endswith("Refused"):
                await context.abort(grpc.StatusCode.NOT_FOUND, "no such container", (("why", "gone"),))
            if method == CREATE and b"RDT" in request:
                await context.abort(grpc.StatusCode.UNKNOWN, "RDT disabled, refusing to set RDT class")
            if method in KNOWN:
                yield KNOWN[method].get(request, b"")
                return
            yield request
            yield method.encode()

        return grpc.unary_stream_rpc_method_handler(answer)


async def _decide(subject: RuntimeContainer) -> Adjustment:
    if subject.pod == "hopeless":
        raise ValueError("no idea")
    if subject.container == "main":
        assert (subject.pod, subject.uid, subject.labels) == ("web", "1", {"app": "web"})
    return Adjustment(quota=5000, cache_class="RDT" if subject.pod == "cached" else None)


@pytest.fixture
async def channel(tmp_path: Path) -> AsyncIterator[grpc.aio.Channel]:
    """To a proxy before such a runtime."""
    runtime = grpc.aio.server(options=UNLIMITED_LENGTH)
    runtime.add_generic_rpc_handlers((Echo(),))
    runtime.add_insecure_port(f"unix://{tmp_path}/runtime")
    await runtime.start()
    async with (
        CriProxy(tmp_path / "proxy", tmp_path / "runtime", _decide),
        grpc.aio.insecure_channel(f"unix://{tmp_path}/proxy", options=UNLIMITED_LENGTH) as made,
    ):
        yield made
    await runtime.stop(0)


async def _ask(channel: grpc.aio.Channel, method: str, message: bytes) -> list[bytes]:
    call: Call = channel.unary_stream(method)
    return [answer async for answer in call(message)]


async def test_cri_proxy_adjusts_container_creation(channel: grpc.aio.Channel) -> None:
    request = pb.CreateContainerRequest(pod_sandbox_id="s")
    passed, _ = await _ask(channel, CREATE, request.SerializeToString())
    request.config.linux.resources.cpu_quota = 5000
    assert pb.CreateContainerRequest.FromString(passed) == request


async def test_cri_proxy_adjusts_updates_of_containers_from_before_its_start(
    channel: grpc.aio.Channel,
) -> None:
    request = pb.UpdateContainerResourcesRequest(container_id="old")
    request.linux.cpu_quota = 7000
    passed, _ = await _ask(channel, UPDATE, request.SerializeToString())
    request.linux.cpu_quota = 5000
    assert pb.UpdateContainerResourcesRequest.FromString(passed) == request


async def test_cri_proxy_forwards_updates_of_unknown_containers_unchanged(channel: grpc.aio.Channel) -> None:
    request = pb.UpdateContainerResourcesRequest(container_id="gone").SerializeToString()
    assert (await _ask(channel, UPDATE, request))[0] == request


@pytest.mark.parametrize(
    "request_", [b"\xff not protobuf", b"\x1a\x0c\n\n\n\x08hopeless"], ids=["garbage", "no decision"]
)
async def test_cri_proxy_forwards_unchanged_when_the_decision_fails(
    channel: grpc.aio.Channel, request_: bytes
) -> None:
    assert (await _ask(channel, CREATE, request_))[0] == request_


async def test_cri_proxy_forwards_unchanged_when_the_runtime_rejects_the_adjustment(
    channel: grpc.aio.Channel,
) -> None:
    request = pb.CreateContainerRequest(pod_sandbox_id="s")
    request.sandbox_config.metadata.name = "cached"
    assert (await _ask(channel, CREATE, request.SerializeToString()))[0] == request.SerializeToString()
    request.config.annotations["mine"] = "RDT"  # which the kubelet itself asks for
    with pytest.raises(grpc.aio.AioRpcError, match="refusing to set RDT class"):
        await _ask(channel, CREATE, request.SerializeToString())


async def test_cri_proxy_forwards_unknown_calls_of_any_length(channel: grpc.aio.Channel) -> None:
    message = b"z" * (5 << 20)  # more than gRPC takes by itself
    assert await _ask(channel, "/next.Service/Call", message) == [message, b"/next.Service/Call"]


@pytest.mark.parametrize("length", [0, 1 << 20], ids=["short", "long"])
async def test_cri_proxy_returns_the_runtimes_own_error(channel: grpc.aio.Channel, length: int) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await _ask(channel, "/runtime.v1.RuntimeService/Refused", b"x" * length)
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    assert refused.value.details() == "no such container"
    assert ("why", "gone") in tuple(refused.value.trailing_metadata())

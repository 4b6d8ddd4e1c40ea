"""A CRI proxy between the kubelet and a runtime without NRI.

Every call is forwarded as bytes; only the two that create or update a container are decoded. A call that
cannot be decided in time is forwarded unchanged. The proxy is a process of its own, `trimtab cri`, that must
run as long as the kubelet, so NRI is preferred. It keeps no state: it asks the runtime for the container of
an update, so that a restarted proxy knows no less.

Client-streaming calls are not supported; CRI has none.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self, TypeAlias

import grpc
import structlog

from trimtab.node.hooks import cri_codec as terms
from trimtab.node.hooks.adjustments import DecideAdjustment, RuntimeContainer
from trimtab.node.hooks.messages import cri_pb2 as pb

CREATE = "/runtime.v1.RuntimeService/CreateContainer"
UPDATE = "/runtime.v1.RuntimeService/UpdateContainerResources"
CONTAINERS = "/runtime.v1.RuntimeService/ListContainers"
SANDBOXES = "/runtime.v1.RuntimeService/ListPodSandbox"
RUNTIME_TIMEOUT = 10.0
"""The timeout in seconds for questions about a container that is to be updated."""
NO_ANSWER = (grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)
"""The status codes after which the runtime's outcome is unknown."""
UNLIMITED_LENGTH = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))

RelayCall: TypeAlias = "grpc.aio.UnaryStreamMultiCallable[bytes, bytes]"
RuntimeCall: TypeAlias = "grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]"

log = structlog.get_logger(__name__)


class CriProxy:
    """Listens on one socket and forwards to another, as an async context manager."""

    def __init__(self, listen: Path, runtime: Path, decide: DecideAdjustment) -> None:
        self._listen = listen
        self._runtime_socket = runtime
        self._decide = decide

    async def __aenter__(self) -> Self:
        self._listen.parent.mkdir(parents=True, exist_ok=True)
        self._listen.unlink(missing_ok=True)
        # containerd rejects the default authority, which is the path of the socket.
        options = (*UNLIMITED_LENGTH, ("grpc.default_authority", "localhost"))
        self._channel = grpc.aio.insecure_channel(f"unix://{self._runtime_socket}", options=options)
        self._server = grpc.aio.server(options=UNLIMITED_LENGTH)
        self._server.add_generic_rpc_handlers((_RelayHandler(self),))
        self._server.add_insecure_port(f"unix://{self._listen}")
        await self._server.start()
        self._listen.chmod(0o600)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(grace=1.0)
        await self._channel.close()

    async def relay(
        self, method: str, request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]
    ) -> AsyncIterator[bytes]:
        """Forward one call; responses of one or many messages are the same on the wire.

        If the runtime rejects an adjusted request, as one without RDT rejects a cache class, the original is
        sent.
        """
        start: RelayCall = self._channel.unary_stream(method)
        adjusted = await self._adjust(method, request)
        for asked in dict.fromkeys((adjusted, request)):
            call = start(asked, timeout=context.time_remaining())
            try:
                async for answer in call:
                    yield answer
            except grpc.aio.AioRpcError as error:
                if asked == request or error.code() in NO_ANSWER:
                    await context.abort(error.code(), error.details() or "", tuple(error.trailing_metadata()))
                log.warning("cri.adjustment_rejected", method=method, reason=error.details())
            else:
                return
            finally:
                call.cancel()

    async def _adjust(self, method: str, request: bytes) -> bytes:
        """Return the request to forward."""
        try:
            if method == CREATE:
                return await self._adjust_create(request)
            if method == UPDATE:
                return await self._adjust_update(request)
        except Exception as error:  # noqa: BLE001 - fail-open: the kubelet must get its container
            log.warning("cri.adjustment_failed", method=method, reason=repr(error))
        return request

    async def _adjust_create(self, request: bytes) -> bytes:
        creation = pb.CreateContainerRequest.FromString(request)
        if wanted := await self._decide(terms.parse_create_request(creation)):
            terms.adjust_create_request(creation, wanted)
            return creation.SerializeToString()
        return request

    async def _adjust_update(self, request: bytes) -> bytes:
        update = pb.UpdateContainerResourcesRequest.FromString(request)
        if wanted := await self._decide(await self._find_container(update)):
            terms.adjust_resources(update.linux, wanted)
            return update.SerializeToString()
        return request

    async def _find_container(self, update: pb.UpdateContainerResourcesRequest) -> RuntimeContainer:
        """Return the container to update; raise ValueError if the runtime does not know it."""
        wanted = pb.ListContainersRequest(filter=pb.ContainerFilter(id=update.container_id))
        answer = await self._call_runtime(CONTAINERS, wanted.SerializeToString())
        [container] = pb.ListContainersResponse.FromString(answer).containers
        around = pb.ListPodSandboxRequest(filter=pb.PodSandboxFilter(id=container.pod_sandbox_id))
        answer = await self._call_runtime(SANDBOXES, around.SerializeToString())
        [pod] = pb.ListPodSandboxResponse.FromString(answer).items
        return terms.parse_update_request(pod, container.metadata.name, update.linux)

    async def _call_runtime(self, method: str, request: bytes) -> bytes:
        ask: RuntimeCall = self._channel.unary_unary(method)
        return await ask(request, timeout=RUNTIME_TIMEOUT)


class _RelayHandler(grpc.GenericRpcHandler):
    """Handles every method of every service as bytes."""

    def __init__(self, proxy: CriProxy) -> None:
        self._proxy = proxy

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[bytes, bytes]:
        method = handler_call_details.method

        async def handle(
            request: bytes, context: grpc.aio.ServicerContext[bytes, bytes]
        ) -> AsyncIterator[bytes]:
            async for answer in self._proxy.relay(method, request, context):
                yield answer

        return grpc.unary_stream_rpc_method_handler(handle)

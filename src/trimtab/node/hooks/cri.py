"""A proxy between the kubelet and its runtime, for runtimes without NRI: CRI's calls pass through it.

Every call is passed on as bytes, whatever its name: only the two that make or change a container are looked into. What
cannot be decided on, or not in time, passes as it is. It is a process of its own, `trimtab cri`, which has to live as long
as the kubelet wants anything; so it is the second choice after NRI, and remembers nothing: whose a container is that is to
change, the runtime tells, so that a proxy which was started anew knows no less.

Left out: calls with more than one request. CRI has none, and a call whose only request is sent along with its
beginning has but one outcome, the runtime's; of a stream gRPC says INTERNAL when the runtime refuses before all is sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self, TypeAlias

import grpc
import structlog

from trimtab.node.hooks import cri_codec as terms
from trimtab.node.hooks.adjustments import Adjustment, DecideAdjustment, RuntimeContainer
from trimtab.node.hooks.messages import cri_pb2 as pb

CREATE = "/runtime.v1.RuntimeService/CreateContainer"
UPDATE = "/runtime.v1.RuntimeService/UpdateContainerResources"
CONTAINERS = "/runtime.v1.RuntimeService/ListContainers"
SANDBOXES = "/runtime.v1.RuntimeService/ListPodSandbox"
RUNTIME_TIMEOUT = 10.0
"""Seconds in which the runtime is to tell of a container that it is about to change anyway."""
NO_ANSWER = (grpc.StatusCode.CANCELLED, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE)
"""Of these nobody knows what the runtime would have said, or what it has done."""
UNLIMITED_LENGTH = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))

RelayCall: TypeAlias = "grpc.aio.UnaryStreamMultiCallable[bytes, bytes]"
UnaryCall: TypeAlias = "grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]"

log = structlog.get_logger(__name__)


class CriProxy:
    """Listens on one socket and asks at another. `async with` it."""

    def __init__(self, listen: Path, runtime: Path, decide: DecideAdjustment) -> None:
        self.outcomes: Counter[str] = Counter()
        """How often what happened: adjusted, unchanged, failed (and so passed on unchanged)."""
        self._listen = listen
        self._runtime_socket = runtime
        self._decide = decide

    async def __aenter__(self) -> Self:
        self._listen.parent.mkdir(parents=True, exist_ok=True)
        self._listen.unlink(missing_ok=True)
        # The name of a socket's host means nothing, but containerd refuses the path of the socket as one.
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
        """One call, of one answer or many: on the wire they are the same.

        What the runtime does not take as we have adjusted it, as one without RDT a class of the cache, is asked for as it was.
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
                log.warning("cri.adjustment_refused", method=method, why=error.details())
                self.outcomes["failed"] += 1
            else:
                return
            finally:
                call.cancel()

    async def _adjust(self, method: str, request: bytes) -> bytes:
        """The request to pass on."""
        try:
            if method == CREATE:
                return await self._adjust_create(request)
            if method == UPDATE:
                return await self._adjust_update(request)
        except Exception as error:  # noqa: BLE001 - fail-open: the kubelet gets its container, whatever goes wrong here
            log.warning("cri.failed", method=method, why=repr(error))
            self.outcomes["failed"] += 1
        return request

    async def _adjust_create(self, request: bytes) -> bytes:
        creation = pb.CreateContainerRequest.FromString(request)
        if wanted := await self._decide_adjustment(terms.parse_create_request(creation)):
            terms.adjust_create_request(creation, wanted)
            return creation.SerializeToString()
        return request

    async def _adjust_update(self, request: bytes) -> bytes:
        update = pb.UpdateContainerResourcesRequest.FromString(request)
        if wanted := await self._decide_adjustment(await self._find_container(update)):
            terms.adjust_resources(update.linux, wanted)
            return update.SerializeToString()
        return request

    async def _find_container(self, update: pb.UpdateContainerResourcesRequest) -> RuntimeContainer:
        """The container that is to change; ValueError where the runtime knows of none."""
        wanted = pb.ListContainersRequest(filter=pb.ContainerFilter(id=update.container_id))
        answer = await self._call_runtime(CONTAINERS, wanted.SerializeToString())
        [container] = pb.ListContainersResponse.FromString(answer).containers
        around = pb.ListPodSandboxRequest(filter=pb.PodSandboxFilter(id=container.pod_sandbox_id))
        answer = await self._call_runtime(SANDBOXES, around.SerializeToString())
        [pod] = pb.ListPodSandboxResponse.FromString(answer).items
        return terms.parse_update_request(pod, container.metadata.name, update.linux)

    async def _call_runtime(self, method: str, request: bytes) -> bytes:
        ask: UnaryCall = self._channel.unary_unary(method)
        return await ask(request, timeout=RUNTIME_TIMEOUT)

    async def _decide_adjustment(self, subject: RuntimeContainer) -> Adjustment:
        wanted = await self._decide(subject)
        self.outcomes["adjusted" if wanted else "unchanged"] += 1
        return wanted


class _RelayHandler(grpc.GenericRpcHandler):
    """Every method of every service, known or not, as bytes."""

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

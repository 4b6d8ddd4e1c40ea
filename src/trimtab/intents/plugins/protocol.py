"""The calls of the protocol, typed: each is one value that both sides use, to call and to answer.

It stands in the place of code that gRPC's compiler would make, which is untyped and bound to one release of gRPC.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import grpc
from google.protobuf.message import Message

from trimtab.errors import TrimtabError
from trimtab.intents.plugins.messages import plugin_pb2 as pb

VERSION = "v1"
_PACKAGE = "trimtab.plugin.v1"
_MAX_MESSAGE_BYTES = 8 << 20

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)


@dataclass(frozen=True, slots=True)
class UnaryCall(Generic[Q, A]):
    """One question with one answer."""

    service: str
    name: str
    request_type: type[Q]
    response_type: type[A]

    def invoke(self, channel: grpc.Channel, request: Q, *, timeout: float) -> A:
        """The answer; grpc.RpcError when there is none in time."""
        path = f"/{_PACKAGE}.{self.service}/{self.name}"
        ask = channel.unary_unary(
            path, request_serializer=_serialize, response_deserializer=self.response_type.FromString
        )
        answer: A = ask(request, timeout=timeout)
        return answer

    def handler(self, answer: Callable[[Q], A]) -> grpc.RpcMethodHandler[Q, A]:
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: _answer_or_abort(answer, request, context),
            request_deserializer=self.request_type.FromString,
            response_serializer=_serialize,
        )


@dataclass(frozen=True, slots=True)
class StreamCall(Generic[Q, A]):
    """One question with many answers."""

    service: str
    name: str
    request_type: type[Q]
    response_type: type[A]

    def invoke(self, channel: grpc.Channel, request: Q, *, timeout: float) -> Iterator[A]:
        """The answers as they come; grpc.RpcError when they do not in time."""
        path = f"/{_PACKAGE}.{self.service}/{self.name}"
        ask = channel.unary_stream(
            path, request_serializer=_serialize, response_deserializer=self.response_type.FromString
        )
        yield from ask(request, timeout=timeout)

    def handler(self, answer: Callable[[Q], Sequence[A]]) -> grpc.RpcMethodHandler[Q, A]:
        return grpc.unary_stream_rpc_method_handler(
            lambda request, context: iter(_answer_or_abort(answer, request, context)),
            request_deserializer=self.request_type.FromString,
            response_serializer=_serialize,
        )


class CallRefusedError(Exception):
    """What was asked cannot be answered, and why: a server's answer to whoever asked."""


REGISTER = UnaryCall("Registration", "Register", pb.PluginInfo, pb.RegisterResponse)
INFO = UnaryCall("Plugin", "Info", pb.InfoRequest, pb.PluginInfo)
CANDIDATES = StreamCall("ActuatorPlugin", "Candidates", pb.CandidatesRequest, pb.Action)
PERFORM = UnaryCall("ActuatorPlugin", "Perform", pb.PerformRequest, pb.PerformResponse)
OBSERVE = UnaryCall("ActuatorPlugin", "Observe", pb.ObserveRequest, pb.ObserveResponse)
PLAN = UnaryCall("PlannerPlugin", "Plan", pb.PlanRequest, pb.PlanResponse)


@dataclass(frozen=True, slots=True)
class PluginTls:
    """Who we are and whom we believe, PEM: each side shows its certificate to the other. Files may be renewed: a server
    shows what they hold at the time, a channel what they held when it was dialled.
    """

    certificate: Path
    key: Path
    authority: Path

    def server_credentials(self) -> grpc.ServerCredentials:
        # Asked at every handshake; while files are being replaced and cannot be read, what was shown last stays.
        return grpc.dynamic_ssl_server_credentials(
            self._load_server_certificate(), self._load_server_certificate, require_client_authentication=True
        )

    def _load_server_certificate(self) -> grpc.ServerCertificateConfiguration:
        pair = (self.key.read_bytes(), self.certificate.read_bytes())
        return grpc.ssl_server_certificate_configuration([pair], self.authority.read_bytes())

    def client_credentials(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(
            self.authority.read_bytes(), self.key.read_bytes(), self.certificate.read_bytes()
        )


def dial(endpoint: str, tls: PluginTls | None) -> grpc.Channel:
    """A channel to an endpoint; nothing is said on it yet. It comes back by itself when the other side does."""
    options = [
        ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 5_000),
        ("grpc.enable_http_proxy", 0),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    if tls is None:
        return grpc.insecure_channel(endpoint, options=options)
    return grpc.secure_channel(endpoint, tls.client_credentials(), options=options)


def listen(
    address: str,
    tls: PluginTls | None,
    calls: Sequence[tuple[UnaryCall[Any, Any] | StreamCall[Any, Any], Any]],
) -> tuple[grpc.Server, int]:
    """A server that answers these calls, started, and its port. Without a host it is every address that there is."""
    server = grpc.server(
        ThreadPoolExecutor(max_workers=8, thread_name_prefix="plugin"),
        options=[("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES), ("grpc.so_reuseport", 0)],
    )
    services: dict[str, dict[str, grpc.RpcMethodHandler[Any, Any]]] = {}
    for call, answer in calls:
        services.setdefault(call.service, {})[call.name] = call.handler(answer)
    for service, handlers in services.items():
        handler = grpc.method_handlers_generic_handler(f"{_PACKAGE}.{service}", handlers)
        server.add_generic_rpc_handlers((handler,))
    shown = tls.server_credentials() if tls else None
    place = f"[::]{address}" if address.startswith(":") else address  # which gRPC takes for IPv4 too
    try:
        port = server.add_secure_port(place, shown) if shown else server.add_insecure_port(place)
    except RuntimeError:  # all that gRPC says is that it failed
        raise TrimtabError(f"address {address}: plugins cannot be listened for there; name another") from None
    server.start()
    return server, port


def describe_rpc_error(error: Exception) -> str:
    """What went wrong, in a line."""
    code, details = getattr(error, "code", None), getattr(error, "details", None)
    if code is None or details is None:
        return str(error) or type(error).__name__
    return f"{code().name}: {' '.join((details() or '').split())}".rstrip(": ")


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()


def _answer_or_abort(answer: Callable[[Any], Any], request: Any, context: grpc.ServicerContext) -> Any:
    try:
        return answer(request)
    except CallRefusedError as refused:
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(refused))

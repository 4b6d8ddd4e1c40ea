"""The calls of the plugin protocol, as typed values for both client and server.

They replace the generated code of gRPC, which is untyped and bound to one release.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import unquote

from google.protobuf.message import Message

from trimtab.errors import TrimtabError
from trimtab.intents.plugins.messages import plugin_pb2 as pb
from trimtab.lazy import LazyModule

if TYPE_CHECKING:
    import grpc
else:  # only plugins need it, and it takes 9 MiB
    grpc = LazyModule("grpc")

VERSION = "v1"
_PACKAGE = "trimtab.plugin.v1"
_MAX_MESSAGE_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Caller:
    """The other side of a call that a server receives."""

    address: str
    """The IP address that the call comes from; empty for a socket in the file system."""
    names: frozenset[str] | None
    """The names that the caller's certificate is valid for; None without TLS."""


Authorize = Callable[[Any, Caller], None]
"""Raise CallRefusedError if a caller may not send a request."""

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)


@dataclass(frozen=True, slots=True)
class UnaryCall(Generic[Q, A]):
    """A call with one response."""

    service: str
    name: str
    request_type: type[Q]
    response_type: type[A]

    def invoke(self, channel: grpc.Channel, request: Q, *, timeout: float) -> A:
        """Call and return the response; raise grpc.RpcError if there is none in time."""
        path = f"/{_PACKAGE}.{self.service}/{self.name}"
        ask = channel.unary_unary(
            path, request_serializer=_serialize, response_deserializer=self.response_type.FromString
        )
        answer: A = ask(request, timeout=timeout)
        return answer

    def handler(self, answer: Callable[[Q], A], authorize: Authorize) -> grpc.RpcMethodHandler[Q, A]:
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: _answer_or_abort(answer, authorize, request, context),
            request_deserializer=self.request_type.FromString,
            response_serializer=_serialize,
        )


@dataclass(frozen=True, slots=True)
class StreamCall(Generic[Q, A]):
    """A call with a stream of responses."""

    service: str
    name: str
    request_type: type[Q]
    response_type: type[A]

    def invoke(self, channel: grpc.Channel, request: Q, *, timeout: float) -> Iterator[A]:
        """Call and yield the responses; raise grpc.RpcError if they are not in time."""
        path = f"/{_PACKAGE}.{self.service}/{self.name}"
        ask = channel.unary_stream(
            path, request_serializer=_serialize, response_deserializer=self.response_type.FromString
        )
        yield from ask(request, timeout=timeout)

    def handler(
        self, answer: Callable[[Q], Sequence[A]], authorize: Authorize
    ) -> grpc.RpcMethodHandler[Q, A]:
        return grpc.unary_stream_rpc_method_handler(
            lambda request, context: iter(_answer_or_abort(answer, authorize, request, context)),
            request_deserializer=self.request_type.FromString,
            response_serializer=_serialize,
        )


class CallRefusedError(Exception):
    """The server refuses a call; the message is the reason for the client."""


REGISTER = UnaryCall("Registration", "Register", pb.PluginInfo, pb.RegisterResponse)
INFO = UnaryCall("Plugin", "Info", pb.InfoRequest, pb.PluginInfo)
CANDIDATES = StreamCall("ActuatorPlugin", "Candidates", pb.CandidatesRequest, pb.Action)
PERFORM = UnaryCall("ActuatorPlugin", "Perform", pb.PerformRequest, pb.PerformResponse)
OBSERVE = UnaryCall("ActuatorPlugin", "Observe", pb.ObserveRequest, pb.ObserveResponse)
PLAN = UnaryCall("PlannerPlugin", "Plan", pb.PlanRequest, pb.PlanResponse)


@dataclass(frozen=True, slots=True)
class PluginTls:
    """The certificates for mutual TLS, as PEM files. Files may be renewed: a server uses their current content, a
    channel their content when it was created.
    """

    certificate: Path
    key: Path
    authority: Path

    def server_credentials(self) -> grpc.ServerCredentials:
        # gRPC asks at every handshake; while files are being replaced, it keeps the last certificate.
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


def dial(endpoint: str, tls: PluginTls | None, *, server_name: str = "") -> grpc.Channel:
    """Create a channel to an endpoint. It connects on the first call and reconnects by itself. With TLS, the server's
    certificate must be valid for `server_name`, or else for the host of the endpoint.
    """
    options: list[tuple[str, int | str]] = [
        ("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES),
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.max_reconnect_backoff_ms", 5_000),
        ("grpc.enable_http_proxy", 0),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    if tls is None:
        return grpc.insecure_channel(endpoint, options=options)
    if server_name:
        options.append(("grpc.ssl_target_name_override", server_name))
    return grpc.secure_channel(endpoint, tls.client_credentials(), options=options)


def listen(
    address: str,
    tls: PluginTls | None,
    calls: Sequence[tuple[UnaryCall[Any, Any] | StreamCall[Any, Any], Any]],
    *,
    authorize: Authorize = lambda _request, _caller: None,
) -> tuple[grpc.Server, int]:
    """Start a server for these calls and return it with its port. Without a host it listens on all addresses."""
    server = grpc.server(
        ThreadPoolExecutor(max_workers=8, thread_name_prefix="plugin"),
        options=[("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES), ("grpc.so_reuseport", 0)],
    )
    services: dict[str, dict[str, grpc.RpcMethodHandler[Any, Any]]] = {}
    for call, answer in calls:
        services.setdefault(call.service, {})[call.name] = call.handler(answer, authorize)
    for service, handlers in services.items():
        handler = grpc.method_handlers_generic_handler(f"{_PACKAGE}.{service}", handlers)
        server.add_generic_rpc_handlers((handler,))
    shown = tls.server_credentials() if tls else None
    place = f"[::]{address}" if address.startswith(":") else address  # gRPC then listens on IPv4 too
    try:
        port = server.add_secure_port(place, shown) if shown else server.add_insecure_port(place)
    except RuntimeError:  # gRPC does not report the cause
        raise TrimtabError(
            f"address {address}: the operator cannot listen for plugins there; choose another address"
        ) from None
    server.start()
    return server, port


def describe_rpc_error(error: Exception) -> str:
    """Describe an error in one line."""
    code, details = getattr(error, "code", None), getattr(error, "details", None)
    if code is None or details is None:
        return str(error) or type(error).__name__
    return f"{code().name}: {' '.join((details() or '').split())}".rstrip(": ")


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()


def _answer_or_abort(
    answer: Callable[[Any], Any], authorize: Authorize, request: Any, context: grpc.ServicerContext
) -> Any:
    try:
        authorize(request, _identify_caller(context.peer(), context.auth_context()))
        return answer(request)
    except CallRefusedError as refused:
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(refused))


def _identify_caller(peer: str, auth: Mapping[str, Any]) -> Caller:
    """Read gRPC's words for a caller: ipv4:10.0.0.7:41000, ipv6:%5B::1%5D:41000 or unix:PATH."""
    scheme, _, rest = unquote(peer).partition(":")
    address = rest.rpartition(":")[0].strip("[]").partition("%")[0] if scheme in {"ipv4", "ipv6"} else ""
    if b"ssl" not in auth.get("transport_security_type", ()):
        return Caller(address, names=None)
    # As TLS clients do for servers: the common name counts only where there are no alternative names.
    names = [*auth.get("x509_subject_alternative_name", ())] or [*auth.get("x509_common_name", ())]
    return Caller(address, names=frozenset(each.decode(errors="replace") for each in names))

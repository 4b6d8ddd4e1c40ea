"""The registry of plugins: they register, the operator connects back, and then checks their health.

A plugin proves its name by its certificate, when it registers and when the operator connects to it, so that nobody can
take the name of another. It may name the address that it calls from, and others only if the configuration allows them:
otherwise it could have the operator connect to any server.

A plugin that does not answer is checked less and less often, and is not used meanwhile. If it stays away, a
registered plugin is removed; a configured one is not. Calls come from planning threads, so everything here is
thread-safe. Time is an argument.
"""

from __future__ import annotations

import ipaddress
import re
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, TypeVar

import structlog

from trimtab.intents.plugins.messages import plugin_pb2 as pb
from trimtab.intents.plugins.protocol import (
    INFO,
    REGISTER,
    VERSION,
    Caller,
    CallRefusedError,
    PluginTls,
    describe_rpc_error,
    dial,
    listen,
)
from trimtab.lazy import LazyModule
from trimtab.printable import shorten
from trimtab.timing import Backoff

if TYPE_CHECKING:
    import grpc
else:  # only plugins need it, and it takes 9 MiB
    grpc = LazyModule("grpc")

log = structlog.get_logger(__name__)

T = TypeVar("T")

CHECK_INTERVAL = 5.0
"""The seconds between two health checks."""
CHECK_BACKOFF = Backoff(first=CHECK_INTERVAL, ceiling=300.0)
"""The delays of the health checks of a plugin, which grow while it is unavailable."""
MAX_FAILURES = 3
"""The failed health checks in a row after which a registered plugin is removed."""
REGISTER_INTERVAL = 30.0
"""The seconds after which a plugin should register again."""
MAX_PLUGINS = 64
"""The most plugins, because each has a channel and is called for every plan."""

MAX_NAME_LENGTH = 63
MAX_ERROR_LENGTH = 1000

MAX_ENDPOINT = 300
"""The most characters of an endpoint: a DNS name has at most 253."""

_NAME = re.compile("[a-z]([-a-z0-9]*[a-z0-9])?")
# gRPC reads more as a URI: dns:other.example:443#name.allowed:9000 connects to the first server.
_ENDPOINT = re.compile(r"unix:/?[^?#]+|([-_.A-Za-z0-9]+|\[[.:0-9A-Fa-f]+\]):\d{1,5}")

PluginKey = tuple[int, str]


@dataclass(slots=True)
class RegisteredPlugin:
    """One plugin and its health."""

    info: pb.PluginInfo
    channel: grpc.Channel
    is_configured: bool
    """True if the configuration names the plugin."""
    failures: int = 0
    check_at: float = 0.0
    last_error: str = "the plugin was not contacted yet"
    """The reason why the plugin is unavailable; empty if it is available."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def call(self, request: Callable[[grpc.Channel], T]) -> T | None:
        """Call the plugin and return its answer; on failure return None and mark it unavailable until its next
        health check.
        """
        if self.last_error:
            return None
        try:
            return request(self.channel)
        except (grpc.RpcError, ValueError) as error:  # ValueError: the channel was closed meanwhile
            self.mark_failed(describe_rpc_error(error))
            return None

    def mark_failed(self, why: str) -> None:
        why = shorten(why, MAX_ERROR_LENGTH)  # it quotes the plugin, and goes into logs and statuses
        with self._lock:
            if not self.last_error:
                log.warning("plugin.unavailable", plugin=self.info.name, reason=why)
            self.last_error = why

    def mark_available(self) -> None:
        with self._lock:
            if self.last_error:
                log.info("plugin.available", plugin=self.info.name, endpoint=self.info.endpoint)
            self.last_error, self.failures = "", 0


class PluginRegistry:
    """All plugins; `serve` accepts registrations, `check` must be called regularly."""

    def __init__(
        self, *, tls: PluginTls | None = None, timeout: float = 2.0, allowed_endpoints: Collection[str] = ()
    ) -> None:
        self._tls = tls
        self._allowed_endpoints = allowed_endpoints
        self._timeout = timeout
        self._plugins: dict[PluginKey, RegisteredPlugin] = {}
        self._lock = threading.Lock()

    @contextmanager
    def serve(self, address: str) -> Iterator[int]:
        """Accept registrations at this address; yield the port."""
        server, port = listen(address, self._tls, [(REGISTER, self.register)], authorize=self._authorize)
        try:
            yield port
        finally:
            server.stop(grace=0.5).wait()
            self.close()

    def _authorize(self, info: pb.PluginInfo, caller: Caller) -> None:
        if problem := find_registration_problem(info, caller, self._allowed_endpoints):
            problem = shorten(problem, MAX_ERROR_LENGTH)
            log.warning("plugin.registration_rejected", reason=problem, caller=caller.address)
            raise CallRefusedError(problem)

    def register(self, info: pb.PluginInfo) -> pb.RegisterResponse:
        """Add a plugin after it has answered; raise CallRefusedError with the reason if it cannot be added."""
        if wrong := find_plugin_problem(info):
            raise CallRefusedError(wrong)
        plugin = self._find_at_endpoint(info) or RegisteredPlugin(
            info, self._dial(info, is_configured=False), is_configured=False
        )
        # Called before it is added: otherwise anyone could displace a working plugin by registering its name
        # with an address that does not answer.
        self._check_plugin(plugin, now=0.0)
        if plugin.last_error:
            # The channel of a plugin that was registered before belongs to the registry.
            if self.get(info.type, info.name) is not plugin:
                plugin.channel.close()
            raise CallRefusedError(f"{info.endpoint} does not answer as {info.name}: {plugin.last_error}")
        self._add(plugin)
        return pb.RegisterResponse(version=VERSION, register_again_seconds=REGISTER_INTERVAL)

    def add_configured(self, info: pb.PluginInfo) -> None:
        """Add a plugin that the configuration names; it is available whenever it answers."""
        if wrong := find_plugin_problem(info):
            raise CallRefusedError(wrong)
        self._add(RegisteredPlugin(info, self._dial(info, is_configured=True), is_configured=True))

    def list_all(self) -> list[RegisteredPlugin]:
        with self._lock:
            return list(self._plugins.values())

    def list_available(self, type_: int) -> list[RegisteredPlugin]:
        """List the available plugins of a type, by name."""
        found = [plugin for plugin in self.list_all() if plugin.info.type == type_ and not plugin.last_error]
        return sorted(found, key=lambda plugin: plugin.info.name)

    def get(self, type_: int, name: str) -> RegisteredPlugin | None:
        with self._lock:
            return self._plugins.get((type_, name))

    def check(self, now: float) -> None:
        """Check the health of plugins that are due."""
        for plugin in self.list_all():
            if now >= plugin.check_at:
                self._check_plugin(plugin, now=now)
                # A configured plugin stays, because nothing would register it again.
                if plugin.last_error and plugin.failures >= MAX_FAILURES and not plugin.is_configured:
                    self._forget(plugin)

    def close(self) -> None:
        for plugin in self.list_all():
            plugin.channel.close()
        with self._lock:
            self._plugins.clear()

    def _find_at_endpoint(self, info: pb.PluginInfo) -> RegisteredPlugin | None:
        """Return the plugin with this name at the same endpoint; None if a new one may be added."""
        with self._lock:
            before = self._plugins.get((info.type, info.name))
            if before is None and len(self._plugins) >= MAX_PLUGINS:
                raise CallRefusedError(f"there are {MAX_PLUGINS} plugins already")
            if before is None or before.info.endpoint == info.endpoint:
                return before
            if before.is_configured:
                raise CallRefusedError(
                    f"the operator's configuration sets the endpoint of {info.name} to {before.info.endpoint}"
                )
            return None

    def _add(self, plugin: RegisteredPlugin) -> None:
        """Add a plugin in place of one that moved. It must have answered before, so that nothing else can displace
        the old one.
        """
        with self._lock:
            before = self._plugins.get((plugin.info.type, plugin.info.name))
            self._plugins[plugin.info.type, plugin.info.name] = plugin
        if before is not None and before is not plugin:
            before.channel.close()

    def _check_plugin(self, plugin: RegisteredPlugin, *, now: float) -> None:
        info = plugin.info
        try:
            reply = INFO.invoke(plugin.channel, pb.InfoRequest(), timeout=self._timeout)
        except (grpc.RpcError, ValueError) as error:
            plugin.failures += 1
            plugin.mark_failed(describe_rpc_error(error))
            self._redial(plugin)
        else:
            if (reply.type, reply.name) != (info.type, info.name) or VERSION not in reply.versions:
                plugin.failures += 1
                plugin.mark_failed(
                    f"the plugin reports that it is {reply.name!r} and speaks {', '.join(reply.versions)}"
                )
            else:
                info.group = shorten(reply.group, MAX_NAME_LENGTH) or info.name
                plugin.mark_available()
        plugin.check_at = now + CHECK_BACKOFF.delay(plugin.failures + 1)

    def _dial(self, info: pb.PluginInfo, *, is_configured: bool) -> grpc.Channel:
        """Connect. A registered plugin has to prove its name, a configured one the host of its endpoint."""
        return dial(info.endpoint, self._tls, server_name="" if is_configured else info.name)

    def _redial(self, plugin: RegisteredPlugin) -> None:
        """Reconnect, because our own certificate may have been renewed and a channel keeps the one that it was
        created with.
        """
        if self._tls is None or self.get(plugin.info.type, plugin.info.name) is not plugin:
            return
        with suppress(OSError):  # the files are being replaced
            old, plugin.channel = plugin.channel, self._dial(plugin.info, is_configured=plugin.is_configured)
            old.close()

    def _forget(self, plugin: RegisteredPlugin) -> None:
        log.warning("plugin.removed", plugin=plugin.info.name, reason=plugin.last_error)
        with self._lock:
            key = plugin.info.type, plugin.info.name
            if self._plugins.get(key) is plugin:  # not a plugin that took its place meanwhile
                del self._plugins[key]
        plugin.channel.close()


def find_plugin_problem(info: pb.PluginInfo) -> str:
    """Describe the problem of a plugin's info; empty if there is none."""
    if info.type not in {pb.PLUGIN_TYPE_ACTUATOR, pb.PLUGIN_TYPE_PLANNER}:
        return "type: must be an actuator or a planner"
    if not _NAME.fullmatch(info.name) or len(info.name) > MAX_NAME_LENGTH:
        return f"name: {info.name[:MAX_NAME_LENGTH]!r} must be lower-case letters, digits and dashes"
    if len(info.endpoint) > MAX_ENDPOINT or not _ENDPOINT.fullmatch(info.endpoint):
        return f"endpoint: {info.endpoint[:MAX_ENDPOINT]!r} must be HOST:PORT or unix:PATH"
    if VERSION not in info.versions:
        return f"versions: this operator speaks {VERSION}, not {', '.join(info.versions) or 'any of none'}"
    return ""


def find_registration_problem(info: pb.PluginInfo, caller: Caller, allowed_endpoints: Collection[str]) -> str:
    """Describe why a caller may not register this plugin; empty if it may."""
    if problem := find_plugin_problem(info):
        return problem
    if caller.names is not None and info.name not in caller.names:
        names = ", ".join(sorted(caller.names)) or "nobody"
        return (
            f"name: the certificate is for {names[:256]!r}, not for {info.name}; issue one with that DNS name"
        )
    host = info.endpoint.rpartition(":")[0].strip("[]")
    if _is_loopback(caller.address):  # in the operator's own pod
        is_own = info.endpoint.startswith("unix:") or _is_loopback(host)
    else:
        is_own = _parse_address(host) is not None and _parse_address(host) == _parse_address(caller.address)
    if is_own or any(fnmatchcase(info.endpoint, pattern) for pattern in allowed_endpoints):
        return ""
    return (
        f"endpoint: {info.endpoint!r} is not at {caller.address or 'the socket'}, from which the plugin registers; "
        "register that address, or allow the endpoint in intents.plugins.endpoints"
    )


def _parse_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return address.ipv4_mapped
    return address


def _is_loopback(host: str) -> bool:
    """Tell if a host is in this pod, as the other end of a socket in the file system is, which has no address."""
    address = _parse_address(host)
    return host in {"", "localhost"} or (address is not None and address.is_loopback)

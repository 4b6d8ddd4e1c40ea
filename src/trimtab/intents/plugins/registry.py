"""The plugins that are there: they register, are dialled back, and are asked for a sign of life from then on.

A plugin that does not answer is asked less and less often, and meanwhile left out of everything; one that registered
and stays away is forgotten, one that the configuration names is not. Calls come from threads that plan, so all here
is for threads. Time is passed in.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeVar

import grpc
import structlog

from trimtab.intents.plugins.messages import plugin_pb2 as pb
from trimtab.intents.plugins.protocol import INFO, REGISTER, VERSION, Refused, Tls, describe, dial, listen

log = structlog.get_logger(__name__)

T = TypeVar("T")

CHECK = 5.0
"""Seconds between two signs of life,"""
SLOWEST_CHECK = 300.0
"""and at most so many, for one that is away."""
FORGOTTEN = 3
"""Checks that one that registered may fail in a row."""
AGAIN = 30.0
"""Seconds after which a plugin should register again."""
MOST = 64
"""Plugins that are taken in: each has a channel, and is asked for every plan."""

_NAME = re.compile("[a-z]([-a-z0-9]*[a-z0-9])?")
_ENDPOINT = re.compile(r"unix:/?.+|[^\s/]+:\d{1,5}")

Key = tuple[int, str]


@dataclass(slots=True)
class Known:
    """One plugin."""

    info: pb.PluginInfo
    channel: grpc.Channel
    fixed: bool
    """Whether the configuration names it."""
    failures: int = 0
    check_at: float = 0.0
    trouble: str = "it was not asked yet"
    """Why it is left out; empty when it is not."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def asked(self, question: Callable[[grpc.Channel], T]) -> T | None:
        """The answer; None, and it is left out until its next sign of life, when there is none."""
        if self.trouble:
            return None
        try:
            return question(self.channel)
        except (grpc.RpcError, ValueError) as error:  # the latter: its channel was closed meanwhile
            self.failed(describe(error))
            return None

    def failed(self, why: str) -> None:
        with self._lock:
            if not self.trouble:
                log.warning("plugin.away", plugin=self.info.name, why=why)
            self.trouble = why

    def came(self) -> None:
        with self._lock:
            if self.trouble:
                log.info("plugin.there", plugin=self.info.name, endpoint=self.info.endpoint)
            self.trouble, self.failures = "", 0


class Registry:
    """All plugins; `listening` lets them register, `check` is to be called every now and then."""

    def __init__(self, *, tls: Tls | None = None, patience: float = 2.0) -> None:
        self._tls = tls
        self._patience = patience
        self._known: dict[Key, Known] = {}
        self._lock = threading.Lock()

    @contextmanager
    def listening(self, address: str) -> Iterator[int]:
        """Let plugins register at this address; the port."""
        server, port = listen(address, self._tls, [(REGISTER, self.register)])
        try:
            yield port
        finally:
            server.stop(grace=0.5).wait()
            self.close()

    def register(self, info: pb.PluginInfo) -> pb.Registered:
        """Take a plugin in once it has answered; `Refused` says why it is not."""
        if wrong := problem_of(info):
            raise Refused(wrong)
        known = self._at_its_place(info) or Known(info, dial(info.endpoint, self._tls), fixed=False)
        self._look(known, now=0.0)
        if known.trouble:
            if self.get(info.type, info.name) is not known:
                known.channel.close()
            raise Refused(f"{info.endpoint} does not answer as {info.name}: {known.trouble}")
        self._take(known)
        return pb.Registered(version=VERSION, again=AGAIN)

    def expect(self, info: pb.PluginInfo) -> None:
        """One that the configuration names: it is there whenever it answers."""
        if wrong := problem_of(info):
            raise Refused(wrong)
        self._take(Known(info, dial(info.endpoint, self._tls), fixed=True))

    def all(self) -> list[Known]:
        with self._lock:
            return list(self._known.values())

    def present(self, type_: int) -> list[Known]:
        """Those of a type that answer, by name."""
        found = [known for known in self.all() if known.info.type == type_ and not known.trouble]
        return sorted(found, key=lambda known: known.info.name)

    def get(self, type_: int, name: str) -> Known | None:
        with self._lock:
            return self._known.get((type_, name))

    def check(self, now: float) -> None:
        """Ask those for a sign of life whose time it is."""
        for known in self.all():
            if now >= known.check_at:
                self._look(known, now=now)
                if known.trouble and known.failures >= FORGOTTEN and not known.fixed:
                    self._forget(known)

    def close(self) -> None:
        for known in self.all():
            known.channel.close()
        with self._lock:
            self._known.clear()

    def _at_its_place(self, info: pb.PluginInfo) -> Known | None:
        """The one that is known under this name, where it is at the same endpoint; None where one may come."""
        with self._lock:
            before = self._known.get((info.type, info.name))
            if before is None and len(self._known) >= MOST:
                raise Refused(f"there are {MOST} plugins already")
            if before is None or before.info.endpoint == info.endpoint:
                return before
            if before.fixed:
                raise Refused(f"the configuration says that {info.name} is at {before.info.endpoint}")
            return None

    def _take(self, known: Known) -> None:
        """In the place of one that has moved: only once it has answered, or whoever cannot would push it out."""
        with self._lock:
            before = self._known.get((known.info.type, known.info.name))
            self._known[known.info.type, known.info.name] = known
        if before is not None and before is not known:
            before.channel.close()

    def _look(self, known: Known, *, now: float) -> None:
        info = known.info
        try:
            told = INFO.of(known.channel, pb.InfoRequest(), timeout=self._patience)
        except (grpc.RpcError, ValueError) as error:
            known.failures += 1
            known.failed(describe(error))
            self._dial_anew(known)
        else:
            if (told.type, told.name) != (info.type, info.name) or VERSION not in told.versions:
                known.failures += 1
                known.failed(f"it says that it is {told.name!r} and speaks {', '.join(told.versions)}")
            else:
                info.group = told.group or info.name
                known.came()
        known.check_at = now + min(SLOWEST_CHECK, CHECK * 2 ** min(known.failures, 10))

    def _dial_anew(self, known: Known) -> None:
        """Since our own certificate may have been renewed: a channel shows the one that it was made with."""
        if self._tls is None or self.get(known.info.type, known.info.name) is not known:
            return
        with suppress(OSError):  # its files are being replaced
            old, known.channel = known.channel, dial(known.info.endpoint, self._tls)
            old.close()

    def _forget(self, known: Known) -> None:
        log.warning("plugin.forgotten", plugin=known.info.name, why=known.trouble)
        with self._lock:
            key = known.info.type, known.info.name
            if self._known.get(key) is known:  # and not the one that took its place meanwhile
                del self._known[key]
        known.channel.close()


def problem_of(info: pb.PluginInfo) -> str:
    """What is wrong with what a plugin says of itself; empty when nothing is."""
    if info.type not in {pb.PLUGIN_TYPE_ACTUATOR, pb.PLUGIN_TYPE_PLANNER}:
        return "type: must be an actuator or a planner"
    if not _NAME.fullmatch(info.name) or len(info.name) > 63:
        return f"name: {info.name!r} must be lower-case letters, digits and dashes"
    if not _ENDPOINT.fullmatch(info.endpoint):
        return f"endpoint: {info.endpoint!r} must be HOST:PORT or unix:PATH"
    if VERSION not in info.versions:
        return f"versions: this operator speaks {VERSION}, not {', '.join(info.versions) or 'any of none'}"
    return ""

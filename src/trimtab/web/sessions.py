"""Sessions of viewers: a cookie that scripts cannot read, and a CSRF token that only the dashboard's pages know.

Sessions are only in memory: after a restart every viewer logs in again. A session ends at logout, after some hours, and
when its viewer loses the right to view; with it end its streams.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network

from aiohttp import web

from trimtab.web.auth import Access, Viewer

COOKIE = "trimtab-session"
HEADER = "X-CSRF-Token"
SESSION_SECONDS = 8 * 3600.0
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}
"""The port by scheme that browsers leave out of an origin, and proxies may add to the header Host."""
MAX_SESSIONS = 10_000
"""The number of sessions at a time; beyond it the oldest is dropped."""
MAX_SESSIONS_PER_VIEWER = 100
"""The number of sessions of one viewer, so that none can end those of others by logging in again and again."""


RECHECK_SECONDS = 180.0
"""The seconds after which the rights of a viewer are reviewed again."""
MAX_UNVERIFIED_SECONDS = 900.0
"""The seconds for which a session goes on while the API server does not answer the review."""
MAX_STREAMS_PER_SESSION = 12
"""The event streams of one session at a time: one for each open page."""
MAX_STREAMS_PER_VIEWER = 60
"""The event streams of one viewer at a time, in all sessions: none may use up those of others."""
MAX_STREAMS = 500
"""The event streams of all sessions at a time; each costs a task and a connection."""
LOGIN_WINDOW = 60.0
"""The seconds over which failed logins are counted."""
MAX_FAILED_LOGINS = 20
"""The failed logins of one address per window, after which it must wait."""
MAX_ADDRESSES = 10_000
"""The number of addresses whose failed logins are counted; beyond it the oldest is dropped."""


@dataclass(eq=False, slots=True)
class Session:
    """One viewer, and the CSRF token that their pages send with every action."""

    viewer: Viewer
    cookie: str
    csrf: str
    expires_at: float
    verified_at: float
    """The time at which the right to view was last reviewed."""
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    """Is set when the session ends, so that its streams end at once."""
    streams: int = 0


current_session: ContextVar[Session] = ContextVar("current_session")
"""The session of the request that this task answers. Requests of aiohttp take keys only from 3.14 on without a warning."""


class SessionStore:
    def __init__(self, access: Access, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._access = access
        self._clock = clock
        self._sessions: dict[str, Session] = {}
        self._streams: Counter[Viewer] = Counter()

    async def find(self, request: web.Request) -> Session | None:
        """Return the session of a request, if its viewer may still view."""
        found = self._sessions.get(request.cookies.get(cookie_name(request), ""))
        return found if found and await self.verify(found) else None

    async def verify(self, session: Session) -> bool:
        """Return whether a session goes on; end it if it has expired or its viewer may no longer view."""
        now = self._clock()
        if now >= session.expires_at:
            session.ended.set()
        # The token is not kept, so its expiry cannot be reviewed; what the viewer's groups may do can.
        elif now - session.verified_at >= RECHECK_SECONDS and not session.ended.is_set():
            may_view = await self._access.may_view(session.viewer)
            if may_view:
                session.verified_at = now
            elif may_view is False or now - session.verified_at >= MAX_UNVERIFIED_SECONDS:
                session.ended.set()
        return not session.ended.is_set()

    def may_open_stream(self, session: Session) -> bool:
        return (
            session.streams < MAX_STREAMS_PER_SESSION
            and self._streams[session.viewer] < MAX_STREAMS_PER_VIEWER
            and self._streams.total() < MAX_STREAMS
        )

    @contextmanager
    def count_stream(self, session: Session) -> Iterator[None]:
        session.streams += 1
        self._streams[session.viewer] += 1
        try:
            yield
        finally:
            session.streams -= 1
            self._streams[session.viewer] -= 1
            self._streams += Counter()  # forget viewers without streams

    def start(self, viewer: Viewer) -> Session:
        """Start a session; it lasts only for viewers whose browser gets its cookie."""
        now = self._clock()
        # The oldest session is first, as a dict keeps the order of insertion.
        own = [cookie for cookie, each in self._sessions.items() if each.viewer == viewer]
        if len(own) >= MAX_SESSIONS_PER_VIEWER:
            self._sessions.pop(own[0]).ended.set()
        elif len(self._sessions) >= MAX_SESSIONS:
            self._sessions.pop(next(iter(self._sessions))).ended.set()
        session = Session(
            viewer,
            cookie=secrets.token_urlsafe(32),
            csrf=secrets.token_urlsafe(32),
            expires_at=now + SESSION_SECONDS,
            verified_at=now,
        )
        self._sessions[session.cookie] = session
        return session

    def end(self, request: web.Request, response: web.Response) -> None:
        if session := self._sessions.pop(request.cookies.get(cookie_name(request), ""), None):
            session.ended.set()
        response.del_cookie(cookie_name(request), path="/")


class LoginLimiter:
    """Limits the failed logins of an address, because each costs the API server a review of a token."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: dict[str, list[float]] = {}

    def may_try(self, address: str) -> bool:
        """Return whether an address may log in now; the attempt counts as failed until `forgive` is called."""
        now, address = self._clock(), _sender(address)
        recent = [at for at in self._failures.pop(address, ()) if now - at < LOGIN_WINDOW]
        is_allowed = len(recent) < MAX_FAILED_LOGINS
        # Count it before the token is reviewed: attempts in parallel must not all find the count below the limit.
        self._failures[address] = [*recent, now] if is_allowed else recent
        while len(self._failures) > MAX_ADDRESSES:
            del self._failures[next(iter(self._failures))]
        return is_allowed

    def forgive(self, address: str) -> None:
        """Forget the failures of an address that logged in."""
        self._failures.pop(_sender(address), None)


def _sender(address: str) -> str:
    """Return what stands for the sender: the network of an IPv6 address, in which each sender has 2⁶⁴ addresses."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 6 and not found.ipv4_mapped:
        return str(ip_network((found, 64), strict=False))
    return address


def set_session_cookie(
    response: web.StreamResponse, request: web.Request, session: Session, *, secure: bool
) -> None:
    response.set_cookie(
        cookie_name(request),
        session.cookie,
        max_age=int(SESSION_SECONDS),
        httponly=True,
        samesite="strict",
        secure=secure,
        path="/",
    )


def cookie_name(request: web.Request) -> str:
    """Return the cookie name for this address.

    Browsers share cookies between the ports of a host, and the user of two clusters forwards two ports.
    """
    port = request.url.explicit_port
    return f"{COOKIE}-{port}" if port else COOKIE


def is_from_own_page(request: web.Request) -> bool:
    """Return whether a browser says that the request comes from a page of this dashboard, or no browser sent it."""
    # Old browsers send the origin only.
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if site is None and origin is not None:
        scheme, _, place = origin.partition("://")
        port = _DEFAULT_PORTS.get(scheme, "")
        return place.removesuffix(port) == request.host.removesuffix(port)
    return site in {None, "same-origin"}


def is_same_origin(request: web.Request, session: Session) -> bool:
    """Return whether an action comes from a page of this dashboard."""
    shown = request.headers.get(HEADER, "")
    return secrets.compare_digest(shown.encode(), session.csrf.encode()) and is_from_own_page(request)

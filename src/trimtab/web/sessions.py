"""Sessions of viewers: a cookie that scripts cannot read, and a CSRF token that only the dashboard's pages know.

Sessions are only in memory: after a restart every viewer logs in again.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from trimtab.web.auth import Viewer

COOKIE = "trimtab-session"
HEADER = "X-CSRF-Token"
SESSION_SECONDS = 8 * 3600.0
MAX_SESSIONS = 10_000
"""The number of sessions at a time; beyond it the oldest is dropped."""


@dataclass(frozen=True, slots=True)
class Session:
    """One viewer, and the CSRF token that their pages send with every action."""

    viewer: Viewer
    csrf: str
    expires_at: float


class SessionStore:
    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sessions: dict[str, Session] = {}

    def find(self, request: Request) -> Session | None:
        found = self._sessions.get(request.cookies.get(cookie_name(request), ""))
        return found if found and found.expires_at > self._clock() else None

    def start(self, viewer: Viewer, request: Request, response: Response, *, secure: bool) -> Session:
        """Start a session and set its cookie on the response."""
        number = secrets.token_urlsafe(32)
        while len(self._sessions) >= MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        session = self._sessions[number] = Session(
            viewer, secrets.token_urlsafe(32), self._clock() + SESSION_SECONDS
        )
        response.set_cookie(
            cookie_name(request),
            number,
            max_age=int(SESSION_SECONDS),
            httponly=True,
            samesite="strict",
            secure=secure,
            path="/",
        )
        return session

    def end(self, request: Request, response: Response) -> None:
        self._sessions.pop(request.cookies.get(cookie_name(request), ""), None)
        response.delete_cookie(cookie_name(request), path="/")


def cookie_name(request: Request) -> str:
    """Return the cookie name for this address.

    Browsers share cookies between the ports of a host, and the user of two clusters forwards two ports.
    """
    port = request.url.port
    return f"{COOKIE}-{port}" if port else COOKIE


def is_same_origin(request: Request, session: Session) -> bool:
    """Return whether an action comes from a page of this dashboard."""
    shown = request.headers.get(HEADER, "")
    site = request.headers.get("Sec-Fetch-Site", "same-origin")
    return secrets.compare_digest(shown.encode(), session.csrf.encode()) and site == "same-origin"

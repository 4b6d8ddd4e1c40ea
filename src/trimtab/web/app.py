"""The dashboard as a web application: its routes, and the security headers of every response.

No page loads anything from another site, runs foreign scripts, or can be framed. An action needs a session, its CSRF
token, and a viewer with the right to patch the workload.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trimtab.errors import TrimtabError
from trimtab.web.actions.handlers import ActionHandlers, read_form
from trimtab.web.auth import LINK_PARAMETER, Access, AccessDenied
from trimtab.web.backends.backend import DashboardBackend
from trimtab.web.pages import Pages
from trimtab.web.rendering import TemplateRenderer
from trimtab.web.sessions import (
    LOGIN_WINDOW,
    MAX_FAILED_LOGINS,
    LoginLimiter,
    Session,
    SessionStore,
    is_same_origin,
)

MAX_CONCURRENT_REVIEWS = 4
"""The tokens that are reviewed at a time: the operator's own requests share the rate limit of its client."""
STATIC = Path(__file__).parent / "static"
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
"""The host names of a browser on this machine; rejecting other names prevents DNS rebinding."""

_SECURITY_HEADERS = {
    b"content-security-policy": (
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
}
_NO_STORE = b"no-store"
_IMMUTABLE = b"public, max-age=31536000, immutable"

Handler = Callable[[Request], Awaitable[Response]]


def build_app(
    backend: DashboardBackend,
    access: Access,
    *,
    hosts: Collection[str] = LOOPBACK_HOSTS,
    secure: bool = False,
) -> ASGIApp:
    """Build the dashboard of a backend; `secure` means it is served by TLS, `hosts` are the host names it accepts."""
    sessions = SessionStore(access)
    rendering = TemplateRenderer(backend, access)
    pages = Pages(backend, access, rendering, sessions)
    handlers = ActionHandlers(backend, access, rendering)
    guard = _SessionGuard(access, sessions, rendering, secure=secure)

    def page(path: str, handler: Handler) -> Route:
        return Route(path, guard.wrap_page(handler), methods=["GET"])

    def action(path: str, handler: Handler) -> Route:
        return Route(path, guard.wrap_action(handler), methods=["POST"])

    workload = "/workloads/{namespace}/{kind}/{name}"
    app = Starlette(
        routes=[
            page("/", pages.overview),
            page("/parts/overview", pages.overview_part),
            page("/plots/overview", pages.overview_plots),
            page("/workloads", pages.workloads),
            page("/parts/workloads", pages.workloads_part),
            page(workload, pages.workload),
            page(f"/parts{workload}", pages.workload_part),
            page(f"/plots{workload}", pages.workload_plots),
            page("/intents", pages.intents),
            page("/parts/intents", pages.intents_part),
            page("/plots/intents", pages.intents_plots),
            page("/nodes", pages.nodes),
            page("/parts/nodes", pages.nodes_part),
            page("/history", pages.history),
            page("/parts/history", pages.history_part),
            page("/changes", pages.changes),
            page("/snapshot.json", pages.snapshot),
            action(f"{workload}/{{action}}", handlers.run_workload_action),
            action("/history/{number:int}/undo", handlers.undo),
            Route("/login", guard.login, methods=["GET", "POST"]),
            action("/logout", guard.logout),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts)),
            # Responses over TLS are not compressed: their length would leak the secrets in a page (BREACH).
            *([] if secure else [Middleware(GZipMiddleware, minimum_size=1000, compresslevel=5)]),
        ],
        # Unexpected exceptions are also logged by the server itself.
        exception_handlers={
            HTTPException: rendering.render_error,
            TrimtabError: rendering.render_error,
            Exception: rendering.render_error,
        },
    )
    return _SecurityHeaders(app)  # the outermost layer, so that error responses have the headers too


class _SessionGuard:
    """Requires a session for pages, and a session with its CSRF token for actions."""

    def __init__(
        self, access: Access, sessions: SessionStore, rendering: TemplateRenderer, *, secure: bool
    ) -> None:
        self._access = access
        self._sessions = sessions
        self._rendering = rendering
        self._secure = secure
        self._logins = LoginLimiter()
        self._reviews = asyncio.Semaphore(MAX_CONCURRENT_REVIEWS)

    def wrap_page(self, handler: Handler) -> Handler:
        async def answer(request: Request) -> Response:
            session = await self._sessions.find(request)
            if session is not None:
                request.state.session = session
                return await handler(request)
            if self._access.requires_token:
                # A redirect would have htmx put the login page into the fragment that it refreshes.
                if request.headers.get("HX-Request"):
                    return Response(status_code=401, headers={"HX-Redirect": "/login"})
                return RedirectResponse("/login", 303)
            token = request.query_params.get(LINK_PARAMETER, "")
            entered = await self._access.authenticate(token)
            if isinstance(entered, AccessDenied):
                raise HTTPException(403, entered.reason)
            if token:  # keep it out of the address bar and the history of the browser
                redirect = RedirectResponse(request.url.path, 303)
                self._sessions.start(entered, request, redirect, secure=self._secure)
                return redirect
            # The handler renders the CSRF token of the session, so the session starts first, and its cookie is moved afterwards.
            cookie_response = Response()
            request.state.session = self._sessions.start(
                entered, request, cookie_response, secure=self._secure
            )
            response = await handler(request)
            response.raw_headers += [
                header for header in cookie_response.raw_headers if header[0] == b"set-cookie"
            ]
            return response

        return answer

    def wrap_action(self, handler: Handler) -> Handler:
        async def answer(request: Request) -> Response:
            session: Session | None = await self._sessions.find(request)
            if session is None:
                raise HTTPException(401, "the session has expired; reload the page")
            if not is_same_origin(request, session):
                raise HTTPException(
                    403, "this request did not come from a page of this dashboard; reload the page"
                )
            request.state.session = session
            return await handler(request)

        return answer

    async def login(self, request: Request) -> Response:
        if not self._access.requires_token:
            return RedirectResponse("/", 303)
        if request.method == "GET":
            return self._rendering.render_login(request, "")
        # Another site could log the viewer in under an account of its own, and read what the viewer then does.
        if request.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            raise HTTPException(
                403, "this request did not come from a page of this dashboard; reload the page"
            )
        form = await read_form(request)
        address = request.client.host if request.client else ""
        if not self._logins.may_try(address):
            raise HTTPException(
                429,
                f"{MAX_FAILED_LOGINS} logins from {address} failed within a minute; wait a minute, then log in again",
                headers={"Retry-After": f"{LOGIN_WINDOW:.0f}"},
            )
        async with self._reviews:
            entered = await self._access.authenticate(form.get("token", "").strip())
        if isinstance(entered, AccessDenied):
            return self._rendering.render_login(request, entered.reason)
        self._logins.forgive(address)
        response = RedirectResponse("/", 303)
        self._sessions.start(entered, request, response, secure=self._secure)
        return response

    async def logout(self, request: Request) -> Response:
        response = Response(headers={"HX-Redirect": "/login"})
        self._sessions.end(request, response)
        return response


class _SecurityHeaders:
    """Adds the security and cache headers to every response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Vendored files have their version in the name, so they never change; ours may change with an update.
        immutable = scope.get("path", "").startswith("/static/vendor/")

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message.setdefault("headers", [])
                headers += [
                    *_SECURITY_HEADERS.items(),
                    (b"cache-control", _IMMUTABLE if immutable else _NO_STORE),
                ]
            await send(message)

        await self._app(scope, receive, send_with_headers)

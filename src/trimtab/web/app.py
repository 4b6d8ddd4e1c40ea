"""The dashboard as a web application: its routes, and the security headers of every response.

No page loads anything from another site, runs foreign scripts, or can be framed. An action needs a session, its CSRF
token, and a viewer with the right to patch the workload.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Middleware

from trimtab.web.action_handlers import ActionHandlers, read_form
from trimtab.web.auth import LINK_PARAMETER, Access, AccessDenied
from trimtab.web.backends.backend import DashboardBackend
from trimtab.web.pages import Pages
from trimtab.web.rendering import PageError, TemplateRenderer
from trimtab.web.sessions import (
    LOGIN_WINDOW,
    MAX_FAILED_LOGINS,
    LoginLimiter,
    Session,
    SessionStore,
    current_session,
    is_from_own_page,
    is_same_origin,
    set_session_cookie,
)

MAX_CONCURRENT_REVIEWS = 4
"""The tokens that are reviewed at a time: the operator's own requests share the rate limit of its client."""
STATIC = Path(__file__).parent / "static"
_FOREIGN_REQUEST = (
    "this request did not come from a page of this dashboard; reload the page; "
    "a proxy in front must keep the header Host"
)
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
"""The host names of a browser on this machine; rejecting other names prevents DNS rebinding."""

_SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_NO_STORE = "no-store"
_IMMUTABLE = "public, max-age=31536000, immutable"
_MIN_COMPRESSED_BYTES = 1000
"""The size of a response from which compressing it is worth the work."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def build_app(
    backend: DashboardBackend,
    access: Access,
    *,
    hosts: Collection[str] = LOOPBACK_HOSTS,
    secure: bool = False,
) -> web.Application:
    """Build the dashboard of a backend; `secure` means it is served by TLS, `hosts` are the host names it accepts."""
    sessions = SessionStore(access)
    rendering = TemplateRenderer(backend, access)
    pages = Pages(backend, access, rendering, sessions)
    handlers = ActionHandlers(backend, access, rendering)
    guard = _SessionGuard(access, sessions, rendering, secure=secure)

    def page(path: str, handler: Handler) -> web.RouteDef:
        return web.get(path, guard.wrap_page(handler))

    def action(path: str, handler: Handler) -> web.RouteDef:
        return web.post(path, guard.wrap_action(handler))

    workload = "/workloads/{namespace}/{kind}/{name}"
    # Responses over TLS are not compressed: their length would leak the secrets in a page (BREACH).
    compressing = [] if secure else [_compress]
    app = web.Application(middlewares=[_check_host(hosts), *compressing, _render_errors(rendering)])
    app.add_routes(
        [
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
            page("/nodes/{name}", pages.node),
            page("/parts/nodes/{name}", pages.node_part),
            page("/costs", pages.costs),
            page("/costs.json", pages.costs_document),
            page("/history", pages.history),
            page("/parts/history", pages.history_part),
            page("/changes", pages.changes),
            page("/snapshot.json", pages.snapshot),
            action(f"{workload}/{{action}}", handlers.run_workload_action),
            action(r"/history/{number:\d+}/undo", handlers.undo),
            web.get("/login", guard.show_login),
            web.post("/login", guard.login),
            action("/logout", guard.logout),
            web.static("/static", STATIC),
        ]
    )
    app.on_response_prepare.append(_add_security_headers)
    return app


def _check_host(hosts: Collection[str]) -> Middleware:
    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        host = request.host[: request.host.rfind("]") + 1] or request.host.partition(":")[0]
        if "*" in hosts or host in hosts:
            return await handler(request)
        return web.Response(text="the dashboard does not have this host name", status=400)

    return check


@web.middleware
async def _compress(request: web.Request, handler: Handler) -> web.StreamResponse:
    response = await handler(request)
    is_large = isinstance(response, web.FileResponse) or (
        isinstance(response, web.Response) and (response.content_length or 0) >= _MIN_COMPRESSED_BYTES
    )
    if is_large and "gzip" in request.headers.get("Accept-Encoding", "") and "Range" not in request.headers:
        response.enable_compression(web.ContentCoding.gzip)
        response.headers["Vary"] = "Accept-Encoding"
    return response


def _render_errors(rendering: TemplateRenderer) -> Middleware:
    @web.middleware
    async def render(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except Exception as error:  # noqa: BLE001 - every failure gets a page, and a defect a line in the log
            return rendering.render_error(request, error)

    return render


async def _add_security_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Add the security and cache headers to every response, errors and streams included."""
    response.headers.update(_SECURITY_HEADERS)
    # Vendored files have their version in the name, so they never change; ours may change with an update.
    immutable = request.path.startswith("/static/vendor/")
    response.headers["Cache-Control"] = _IMMUTABLE if immutable else _NO_STORE
    response.headers.popall("Server", None)  # it names the versions of Python and aiohttp


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
        async def answer(request: web.Request) -> web.StreamResponse:
            session = await self._sessions.find(request)
            if session is not None:
                return await _run_in_session(handler, request, session)
            if self._access.requires_token:
                # A redirect would have htmx put the login page into the fragment that it refreshes.
                if request.headers.get("HX-Request"):
                    return web.Response(status=401, headers={"HX-Redirect": "/login"})
                return _redirect("/login")
            token = request.query.get(LINK_PARAMETER, "")
            entered = await self._access.authenticate(token)
            if isinstance(entered, AccessDenied):
                raise PageError(403, entered.reason)
            session = self._sessions.start(entered)
            if token:  # keep it out of the address bar and the history of the browser
                redirect = _redirect(request.path)
                set_session_cookie(redirect, request, session, secure=self._secure)
                return redirect
            # The handler renders the CSRF token of the session, so the session starts first, and its cookie is set afterwards.
            response = await _run_in_session(handler, request, session)
            if not response.prepared:  # a stream is, but every page that opens one has a session
                set_session_cookie(response, request, session, secure=self._secure)
            return response

        return answer

    def wrap_action(self, handler: Handler) -> Handler:
        async def answer(request: web.Request) -> web.StreamResponse:
            session: Session | None = await self._sessions.find(request)
            if session is None:
                raise PageError(401, "the session has expired; reload the page")
            if not is_same_origin(request, session):
                raise PageError(403, _FOREIGN_REQUEST)
            # An action that has begun is finished and recorded, although its viewer closed the page.
            return await asyncio.shield(_run_in_session(handler, request, session))

        return answer

    async def show_login(self, request: web.Request) -> web.Response:
        if not self._access.requires_token:
            return _redirect("/")
        return self._rendering.render_login(request, "")

    async def login(self, request: web.Request) -> web.Response:
        if not self._access.requires_token:
            return _redirect("/")
        # Another site could log the viewer in under an account of its own, and read what the viewer then does.
        if not is_from_own_page(request):
            raise PageError(403, _FOREIGN_REQUEST)
        form = await read_form(request)
        address = request.remote or ""
        if not self._logins.may_try(address):
            raise PageError(
                429,
                f"{MAX_FAILED_LOGINS} logins from {address} failed within a minute; wait a minute, then log in again",
                headers={"Retry-After": f"{LOGIN_WINDOW:.0f}"},
            )
        async with self._reviews:
            entered = await self._access.authenticate(form.get("token", "").strip())
        if isinstance(entered, AccessDenied):
            return self._rendering.render_login(request, entered.reason)
        self._logins.forgive(address)
        response = _redirect("/")
        set_session_cookie(response, request, self._sessions.start(entered), secure=self._secure)
        return response

    async def logout(self, request: web.Request) -> web.Response:
        response = web.Response(headers={"HX-Redirect": "/login"})
        self._sessions.end(request, response)
        return response


async def _run_in_session(handler: Handler, request: web.Request, session: Session) -> web.StreamResponse:
    token = current_session.set(session)
    try:
        return await handler(request)
    finally:
        # A connection, and with it this task, may carry requests of several viewers: those of a proxy.
        current_session.reset(token)


def _redirect(path: str) -> web.Response:
    return web.Response(status=303, headers={"Location": path})

"""The dashboard as a web application: which page is at which address, and what every answer promises.

No page fetches anything from elsewhere, runs a script that is not ours, or can be shown inside another; an act needs a
session, its secret, and a viewer who may.
"""

from __future__ import annotations

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
from trimtab.web.actions.forms import said
from trimtab.web.actions.handlers import Acts
from trimtab.web.auth import Access, Refused
from trimtab.web.backends.backend import Board
from trimtab.web.pages import Pages
from trimtab.web.rendering import Rendering
from trimtab.web.sessions import Session, Sessions, is_ours

STATIC = Path(__file__).parent / "static"
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
"""What a browser on this machine calls us: a page elsewhere that gives its own name our address is turned away."""

_PROMISES = {
    b"content-security-policy": (
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
}
_FRESH = b"no-store"
_KEPT = b"public, max-age=31536000, immutable"

Handler = Callable[[Request], Awaitable[Response]]


def application(
    board: Board, access: Access, *, hosts: Collection[str] = LOOPBACK_HOSTS, secure: bool = False
) -> ASGIApp:
    """The dashboard of a board; `secure` where it is reached by TLS, `hosts` are the names that it answers to."""
    sessions = Sessions()
    rendering = Rendering(board, access)
    pages, acts = Pages(board, access, rendering), Acts(board, access, rendering)
    door = _Door(access, sessions, rendering, secure=secure)

    def page(path: str, handler: Handler) -> Route:
        return Route(path, door.looked_at(handler), methods=["GET"])

    def act(path: str, handler: Handler) -> Route:
        return Route(path, door.acted(handler), methods=["POST"])

    workload = "/workloads/{namespace}/{kind}/{name}"
    pages_and_acts = Starlette(
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
            act(f"{workload}/{{act}}", acts.on_workload),
            act("/history/{number:int}/undo", acts.undo),
            Route("/login", door.login, methods=["GET", "POST"]),
            act("/logout", door.logout),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=list(hosts)),
            # Over TLS nothing is compressed: its length would tell of the secrets in a page (BREACH).
            *([] if secure else [Middleware(GZipMiddleware, minimum_size=1000, compresslevel=5)]),
        ],
        # Of the last, for what nobody foresaw, the server's own log tells as well.
        exception_handlers={
            HTTPException: rendering.failed,
            TrimtabError: rendering.failed,
            Exception: rendering.failed,
        },
    )
    return _Promises(pages_and_acts)  # around it all: what fails keeps them too


class _Door:
    """Lets viewers in, and in to what they may."""

    def __init__(self, access: Access, sessions: Sessions, rendering: Rendering, *, secure: bool) -> None:
        self._access = access
        self._sessions = sessions
        self._rendering = rendering
        self._secure = secure

    def looked_at(self, handler: Handler) -> Handler:
        async def answer(request: Request) -> Response:
            session = self._sessions.of(request)
            if session is not None:
                request.state.session = session
                return await handler(request)
            if self._access.asks_for_token:
                if request.headers.get("HX-Request"):
                    return Response(status_code=401, headers={"HX-Redirect": "/login"})
                return RedirectResponse("/login", 303)
            entered = await self._access.enter("")
            if isinstance(entered, Refused):
                raise HTTPException(403, entered.why)
            kept = Response()
            request.state.session = self._sessions.begin(entered, request, kept, secure=self._secure)
            response = await handler(request)
            response.raw_headers += [header for header in kept.raw_headers if header[0] == b"set-cookie"]
            return response

        return answer

    def acted(self, handler: Handler) -> Handler:
        async def answer(request: Request) -> Response:
            session: Session | None = self._sessions.of(request)
            if session is None:
                raise HTTPException(401, "the session is over: load the page again")
            if not is_ours(request, session):
                raise HTTPException(403, "this did not come from a page of ours: load the page again")
            request.state.session = session
            return await handler(request)

        return answer

    async def login(self, request: Request) -> Response:
        if not self._access.asks_for_token:
            return RedirectResponse("/", 303)
        if request.method == "GET":
            return self._rendering.login(request, "")
        if request.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            raise HTTPException(403, "this did not come from a page of ours: load the page again")
        form = await said(request)
        entered = await self._access.enter(form.get("token", "").strip())
        if isinstance(entered, Refused):
            return self._rendering.login(request, entered.why)
        response = RedirectResponse("/", 303)
        self._sessions.begin(entered, request, response, secure=self._secure)
        return response

    async def logout(self, request: Request) -> Response:
        response = Response(headers={"HX-Redirect": "/login"})
        self._sessions.end(request, response)
        return response


class _Promises:
    """What every answer says of itself."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # What is vendored has its version in its name; ours may be another after an update.
        kept = scope.get("path", "").startswith("/static/vendor/")

        async def promise(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = message.setdefault("headers", [])
                headers += [*_PROMISES.items(), (b"cache-control", _KEPT if kept else _FRESH)]
            await send(message)

        await self._app(scope, receive, promise)

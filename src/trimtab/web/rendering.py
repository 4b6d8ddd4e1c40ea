"""Render the templates with the values that all of them share."""

from __future__ import annotations

from collections.abc import Mapping

import structlog
from aiohttp import web
from jinja2 import Environment, PackageLoader, StrictUndefined

from trimtab import __version__
from trimtab.errors import TrimtabError
from trimtab.web.auth import Access
from trimtab.web.backends.backend import DashboardBackend
from trimtab.web.sessions import current_session
from trimtab.web.views.formatting import FILTERS

log = structlog.get_logger(__name__)

THEMES = ("light", "dark")


class PageError(Exception):
    """A request that is answered with this status, and with the reason as its text."""

    def __init__(self, status: int, reason: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.headers = headers


class TemplateRenderer:
    def __init__(self, backend: DashboardBackend, access: Access) -> None:
        self._backend = backend
        self._access = access
        self._templates = Environment(
            loader=PackageLoader("trimtab.web"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(FILTERS)

    def render_page(self, name: str, request: web.Request, **context: object) -> web.Response:
        """Render a page or a fragment of one."""
        session = current_session.get()
        text = self._render(
            name,
            request,
            path=request.path,
            viewer=session.viewer,
            csrf=session.csrf,
            can_log_out=self._access.requires_token,
            **context,
        )
        return _build_page(text)

    def render_login(self, request: web.Request, reason: str) -> web.Response:
        return _build_page(self._render("login.html", request, reason=reason), status=403 if reason else 200)

    def render_error(self, request: web.Request, error: Exception) -> web.Response:
        """Render an error as one line of text for scripts, and as a page for people."""
        headers: Mapping[str, str] | None = None
        if isinstance(error, PageError):
            code, reason, headers = error.status, str(error), error.headers
        elif isinstance(error, web.HTTPException):  # by the router, as for a path that does not exist
            code, reason = error.status, error.reason
        elif isinstance(error, TrimtabError):
            code, reason = 503, str(error)
        else:
            log.error("dashboard.request_failed", path=request.path, exc_info=error)
            code, reason = 500, "the dashboard failed to render this page; see its log for the cause"
        if request.headers.get("HX-Request") or "text/html" not in request.headers.get("Accept", ""):
            return web.Response(text=reason, status=code, headers=headers)
        page = self._render("failed.html", request, code=code, reason=reason)
        return _build_page(page, status=code, headers=headers)

    def _render(self, name: str, request: web.Request, **context: object) -> str:
        theme = request.cookies.get("trimtab-theme", "")
        return self._templates.get_template(name).render(
            backend=self._backend, version=__version__, theme=theme if theme in THEMES else "", **context
        )


def _build_page(text: str, *, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(text=text, status=status, content_type="text/html", headers=headers)

"""Render the templates with the values that all of them share."""

from __future__ import annotations

from collections.abc import Mapping

import structlog
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from trimtab import __version__
from trimtab.errors import TrimtabError
from trimtab.web.auth import Access
from trimtab.web.backends.backend import DashboardBackend
from trimtab.web.views.formatting import FILTERS

log = structlog.get_logger(__name__)

THEMES = ("light", "dark")


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

    def render_page(self, name: str, request: Request, **context: object) -> Response:
        """Render a page or a fragment of one."""
        session = request.state.session
        text = self._render(
            name,
            request,
            path=request.url.path,
            viewer=session.viewer,
            csrf=session.csrf,
            can_log_out=self._access.requires_token,
            **context,
        )
        return HTMLResponse(text)

    def render_login(self, request: Request, reason: str) -> Response:
        return HTMLResponse(
            self._render("login.html", request, reason=reason), status_code=403 if reason else 200
        )

    async def render_error(self, request: Request, error: Exception) -> Response:
        """Render an error as one line of text for scripts, and as a page for people."""
        headers: Mapping[str, str] | None = None
        if isinstance(error, HTTPException):
            code, reason, headers = error.status_code, str(error.detail), error.headers
        elif isinstance(error, TrimtabError):
            code, reason = 503, str(error)
        else:
            log.error("dashboard.request_failed", path=request.url.path, exc_info=error)
            code, reason = 500, "the dashboard failed to render this page; see its log for the cause"
        if request.headers.get("HX-Request") or "text/html" not in request.headers.get("Accept", ""):
            return PlainTextResponse(reason, status_code=code, headers=headers)
        return HTMLResponse(
            self._render("failed.html", request, code=code, reason=reason), status_code=code, headers=headers
        )

    def _render(self, name: str, request: Request, **context: object) -> str:
        theme = request.cookies.get("trimtab-theme", "")
        return self._templates.get_template(name).render(
            backend=self._backend, version=__version__, theme=theme if theme in THEMES else "", **context
        )

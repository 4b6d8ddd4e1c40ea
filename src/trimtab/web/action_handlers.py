"""Handle the actions of viewers: authorize them, run them on the backend, and answer with one line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import parse_qsl

from aiohttp import web

from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.web.auth import Access, Viewer
from trimtab.web.backends.backend import DashboardBackend
from trimtab.web.model import ActionError, WorkloadAction
from trimtab.web.rendering import PageError, TemplateRenderer
from trimtab.web.sessions import current_session

MAX_REASON_LENGTH = 200
MAX_FORM_BYTES = 64 * 1024
"""The maximum size of a form; only a token with many groups is long."""

RunAction = Callable[[], Awaitable[str]]


class ActionHandlers:
    def __init__(self, backend: DashboardBackend, access: Access, rendering: TemplateRenderer) -> None:
        self._backend = backend
        self._access = access
        self._rendering = rendering

    async def run_workload_action(self, request: web.Request) -> web.Response:
        params = request.match_info
        if params["action"] not in set(WorkloadAction):
            raise PageError(
                404, f"unknown action {params['action']}; choose one of {', '.join(WorkloadAction)}"
            )
        key = WorkloadKey(params["kind"], params["namespace"], params["name"])
        viewer = await self._authorize(key)
        why = await _read_reason(request)
        return await self._respond(
            request,
            lambda: self._backend.run_action(WorkloadAction(params["action"]), key, who=viewer.name, why=why),
        )

    async def undo(self, request: web.Request) -> web.Response:
        number = int(request.match_info["number"])
        entry = await self._backend.entry(number)
        if entry is None:
            raise PageError(404, f"history entry {number} does not exist any more")
        viewer = await self._authorize(entry.key)
        why = await _read_reason(request)
        return await self._respond(request, lambda: self._backend.undo(number, who=viewer.name, why=why))

    async def _authorize(self, key: WorkloadKey) -> Viewer:
        viewer: Viewer = current_session.get().viewer
        if self._backend.read_only_reason:
            raise PageError(403, self._backend.read_only_reason)
        if not await self._access.may_act(viewer, key):
            raise PageError(
                403,
                f"{viewer.name} may not patch {key}: RBAC grants read access only; ask an administrator for the right to patch it",
            )
        return viewer

    async def _respond(self, request: web.Request, run_action: RunAction) -> web.Response:
        try:
            message = await run_action()
        except ActionError as error:
            raise PageError(409, str(error)) from None
        return self._rendering.render_page("action_result.html", request, message=message)


async def _read_reason(request: web.Request) -> str:
    return " ".join((await read_form(request)).get("why", "").split())[:MAX_REASON_LENGTH]


async def read_form(request: web.Request) -> dict[str, str]:
    """Read the fields of a form; the last value wins."""
    # Without a limit, whoever reaches the login page could fill the memory of the operator.
    body = b""
    async for part in request.content.iter_any():
        body += part
        if len(body) > MAX_FORM_BYTES:
            raise PageError(413, f"the form is larger than {MAX_FORM_BYTES} bytes; shorten it")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=20))
    except ValueError:
        raise PageError(400, "the request body is not a URL-encoded form") from None

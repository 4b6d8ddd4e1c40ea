"""Handle the actions of viewers: authorize them, run them on the backend, and answer with one line."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.web.auth import Access, Viewer
from trimtab.web.backends.backend import ActionError, DashboardBackend
from trimtab.web.model import WorkloadAction
from trimtab.web.rendering import TemplateRenderer

MAX_REASON_LENGTH = 200
MAX_FORM_BYTES = 64 * 1024
"""The maximum size of a form; only a token with many groups is long."""

RunAction = Callable[[], Awaitable[str]]


class ActionHandlers:
    def __init__(self, backend: DashboardBackend, access: Access, rendering: TemplateRenderer) -> None:
        self._backend = backend
        self._access = access
        self._rendering = rendering

    async def run_workload_action(self, request: Request) -> Response:
        params = request.path_params
        if params["action"] not in set(WorkloadAction):
            raise HTTPException(
                404, f"unknown action {params['action']}; choose one of {', '.join(WorkloadAction)}"
            )
        key = WorkloadKey(params["kind"], params["namespace"], params["name"])
        viewer = await self._authorize(request, key)
        why = await _read_reason(request)
        return await self._respond(
            request,
            lambda: self._backend.run_action(WorkloadAction(params["action"]), key, who=viewer.name, why=why),
        )

    async def undo(self, request: Request) -> Response:
        number = request.path_params["number"]
        entry = await self._backend.entry(number)
        if entry is None:
            raise HTTPException(404, f"history entry {number} does not exist any more")
        viewer = await self._authorize(request, entry.key)
        why = await _read_reason(request)
        return await self._respond(request, lambda: self._backend.undo(number, who=viewer.name, why=why))

    async def _authorize(self, request: Request, key: WorkloadKey) -> Viewer:
        viewer: Viewer = request.state.session.viewer
        if self._backend.read_only_reason:
            raise HTTPException(403, self._backend.read_only_reason)
        if not await self._access.may_act(viewer, key):
            raise HTTPException(
                403,
                f"{viewer.name} may not patch {key}: RBAC grants read access only; ask an administrator for the right to patch it",
            )
        return viewer

    async def _respond(self, request: Request, run_action: RunAction) -> Response:
        try:
            message = await run_action()
        except ActionError as error:
            raise HTTPException(409, str(error)) from None
        return self._rendering.render_page("action_result.html", request, message=message)


async def _read_reason(request: Request) -> str:
    return " ".join((await read_form(request)).get("why", "").split())[:MAX_REASON_LENGTH]


async def read_form(request: Request) -> dict[str, str]:
    """Read the fields of a form; the last value wins."""
    # Starlette reads a form of any size: whoever reaches the login page could fill the memory of the operator.
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_FORM_BYTES:
            raise HTTPException(413, f"the form is larger than {MAX_FORM_BYTES} bytes; shorten it")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=20))
    except ValueError:
        raise HTTPException(400, "the request body is not a URL-encoded form") from None

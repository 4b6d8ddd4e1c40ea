"""What viewers do: put to the board in their name, if they may; every answer is one line for them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.web.actions.forms import said
from trimtab.web.auth import Access, Viewer
from trimtab.web.backends.backend import ActError, Board
from trimtab.web.model import Act
from trimtab.web.rendering import Rendering

LONGEST_REASON = 200

Deed = Callable[[], Awaitable[str]]


class Acts:
    def __init__(self, board: Board, access: Access, rendering: Rendering) -> None:
        self._board = board
        self._access = access
        self._rendering = rendering

    async def on_workload(self, request: Request) -> Response:
        asked = request.path_params
        if asked["act"] not in set(Act):
            raise HTTPException(404, f"there is no {asked['act']}; there are {', '.join(Act)}")
        key = WorkloadKey(asked["kind"], asked["namespace"], asked["name"])
        viewer = await self._allowed(request, key)
        why = await _reason(request)
        return await self._told(
            request, lambda: self._board.act(Act(asked["act"]), key, who=viewer.name, why=why)
        )

    async def undo(self, request: Request) -> Response:
        number = request.path_params["number"]
        entry = await self._board.entry(number)
        if entry is None:
            raise HTTPException(404, f"the history has no entry {number} any more")
        viewer = await self._allowed(request, entry.key)
        why = await _reason(request)
        return await self._told(request, lambda: self._board.undo(number, who=viewer.name, why=why))

    async def _allowed(self, request: Request, key: WorkloadKey) -> Viewer:
        viewer: Viewer = request.state.session.viewer
        if self._board.read_only:
            raise HTTPException(403, self._board.read_only)
        if not await self._access.may_act(viewer, key):
            raise HTTPException(403, f"{viewer.name} may not patch {key}: looking is all that RBAC grants")
        return viewer

    async def _told(self, request: Request, deed: Deed) -> Response:
        try:
            told = await deed()
        except ActError as error:
            raise HTTPException(409, str(error)) from None
        return self._rendering.page("told.html", request, told=told)


async def _reason(request: Request) -> str:
    return " ".join((await said(request)).get("why", "").split())[:LONGEST_REASON]

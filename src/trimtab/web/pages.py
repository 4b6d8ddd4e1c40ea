"""Each page, its parts that are renewed while it is open, and the numbers of its charts."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Iterable, Sequence

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.web.actions.permissions import Offering
from trimtab.web.auth import Access
from trimtab.web.backends.backend import Board
from trimtab.web.backends.snapshot import take
from trimtab.web.model import HistoryEntry, Plot, WorkloadDetail, WorkloadRow
from trimtab.web.rendering import Rendering
from trimtab.web.views.table_query import Listing, Query

KEEP_ALIVE = 15.0
"""Seconds after which a quiet stream says that it lives."""
LEAST_BETWEEN = 0.5
"""Seconds between two tellings of news: nobody looks more often."""
MOST_POINTS = 1500
"""Of a curve that are sent: a screen has no more."""
HISTORY_PAGE = 50
_NUMBER = re.compile(r"-?[0-9]{1,18}")
"""Of a history entry: what the store gave it, or below 0 that of a kill."""


class Pages:
    def __init__(self, board: Board, access: Access, rendering: Rendering) -> None:
        self._board = board
        self._offering = Offering(access)
        self._page = rendering.page
        self._listing = Listing(())

    async def overview(self, request: Request) -> Response:
        return self._page("overview.html", request, part=False, **await self._glance())

    async def overview_part(self, request: Request) -> Response:
        return self._page("parts/overview.html", request, part=True, **await self._glance())

    async def _glance(self) -> dict[str, object]:
        return {"overview": await self._board.overview(), "listing": await self._all()}

    async def overview_plots(self, _: Request) -> Response:
        found = await self._board.overview()
        loud = [entry for entry in found.latest if entry.what in {"killed", "reverted"}]
        return _plots({"cpu": found.cpu, "memory": found.memory}, loud)

    async def workloads(self, request: Request) -> Response:
        return self._page("workloads.html", request, **await self._listed(request))

    async def workloads_part(self, request: Request) -> Response:
        return self._page("parts/workloads.html", request, **await self._listed(request))

    async def _listed(self, request: Request) -> dict[str, object]:
        listing, query = await self._all(), Query.of(request.query_params)
        return {
            "listing": listing,
            "query": query,
            "page": listing.page(query),
            "now": self._board.at,
            "currency": self._board.currency,
        }

    async def _all(self) -> Listing:
        rows: Sequence[WorkloadRow] = await self._board.workloads()
        if rows is not self._listing.rows:
            self._listing = Listing(rows)
        return self._listing

    async def workload(self, request: Request) -> Response:
        return self._page("workload.html", request, part=False, **await self._detail(request))

    async def workload_part(self, request: Request) -> Response:
        return self._page("parts/workload.html", request, part=True, **await self._detail(request))

    async def workload_plots(self, request: Request) -> Response:
        found = await self._found(request)
        plots: dict[str, Plot] = {}
        for each in found.containers:
            plots |= {f"{each.name}/cpu": each.cpu, f"{each.name}/memory": each.memory}
        return _plots(plots, [entry for entry in found.events if entry.what != "recommended"])

    async def _detail(self, request: Request) -> dict[str, object]:
        found = await self._found(request)
        return {
            "found": found,
            "may": await self._offered(request, [found.row.key]),
            "now": self._board.at,
            "currency": self._board.currency,
        }

    async def _offered(self, request: Request, keys: Iterable[WorkloadKey]) -> frozenset[WorkloadKey]:
        if self._board.read_only:
            return frozenset()
        return await self._offering.of(request.state.session.viewer, keys)

    async def _found(self, request: Request) -> WorkloadDetail:
        asked = request.path_params
        key = WorkloadKey(asked["kind"], asked["namespace"], asked["name"])
        found = await self._board.workload(key)
        if found is None:
            why = "; ".join(filter(None, ["there is no such workload, or it is gone", self._board.trouble]))
            raise HTTPException(404, f"{key}: {why}")
        return found

    async def intents(self, request: Request) -> Response:
        return self._page("intents.html", request, intents=await self._board.intents(), now=self._board.at)

    async def intents_part(self, request: Request) -> Response:
        intents = await self._board.intents()
        return self._page("parts/intents.html", request, intents=intents, now=self._board.at)

    async def intents_plots(self, _: Request) -> Response:
        plots: dict[str, Plot] = {}
        for intent in await self._board.intents():
            name = f"{intent.namespace}/{intent.name}"
            plots |= {f"{name}/{each.name}": each.plot for each in intent.objectives if each.plot}
            plots |= {f"{name}/{each.name}": each.plot for each in intent.effects}
        return _plots(plots)

    async def nodes(self, request: Request) -> Response:
        return self._page("nodes.html", request, nodes=await self._board.nodes(), now=self._board.at)

    async def nodes_part(self, request: Request) -> Response:
        return self._page("parts/nodes.html", request, nodes=await self._board.nodes(), now=self._board.at)

    async def history(self, request: Request) -> Response:
        return self._page("history.html", request, **await self._told(request))

    async def history_part(self, request: Request) -> Response:
        return self._page("parts/history.html", request, **await self._told(request))

    async def _told(self, request: Request) -> dict[str, object]:
        before, what = request.query_params.get("before", ""), request.query_params.get("what", "")
        entries = await self._board.history(
            what=what, before=int(before) if _NUMBER.fullmatch(before) else None, limit=HISTORY_PAGE
        )
        return {
            "entries": entries,
            "may": await self._offered(request, (entry.key for entry in entries if entry.undo)),
            "what": what,
            "more": len(entries) == HISTORY_PAGE,
            "now": self._board.at,
        }

    async def changes(self, _: Request) -> Response:
        """A stream of server-sent events, one whenever there is something new to see."""
        headers = {"X-Accel-Buffering": "no"}
        return StreamingResponse(self._news(), media_type="text/event-stream", headers=headers)

    async def _news(self) -> AsyncIterator[bytes]:
        version = self._board.version
        yield f"retry: 2000\nevent: now\ndata: {version}\n\n".encode()
        while True:
            waiting = asyncio.create_task(self._board.changed(version))
            try:
                version = await asyncio.wait_for(waiting, KEEP_ALIVE)
                yield f"event: news\ndata: {version}\n\n".encode()
                await asyncio.sleep(LEAST_BETWEEN)
            except TimeoutError:
                yield b": still here\n\n"
            finally:
                waiting.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await waiting

    async def snapshot(self, _: Request) -> Response:
        """All of it as a file, for `trimtab demo --snapshot FILE`."""
        headers = {"Content-Disposition": 'attachment; filename="trimtab-snapshot.json"'}
        return Response((await take(self._board)).encode(), media_type="application/json", headers=headers)


def _plots(plots: dict[str, Plot], events: Iterable[HistoryEntry] = ()) -> Response:
    marks = [{"at": entry.at, "what": entry.what, "text": entry.why} for entry in events]
    body = {"plots": {name: _thinned(plot) for name, plot in plots.items()}, "events": marks}
    return Response(msgspec.json.encode(body), media_type="application/json")


def _thinned(plot: Plot) -> Plot:
    """With no more points than a screen shows: of what lies between, the highest, as that is what sizes are for."""
    many = len(plot.times)
    if many <= MOST_POINTS:
        return plot
    wide = -(-many // MOST_POINTS)

    def highest(values: Sequence[float | None]) -> float | None:
        return max((value for value in values if value is not None), default=None)

    return msgspec.structs.replace(
        plot,
        times=plot.times[::wide],
        curves=tuple(
            msgspec.structs.replace(
                curve,
                values=tuple(highest(curve.values[place : place + wide]) for place in range(0, many, wide)),
            )
            for curve in plot.curves
        ),
    )

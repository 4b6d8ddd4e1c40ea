"""The pages, the fragments that refresh while a page is open, and the data of the charts."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncGenerator, Iterable, Sequence

import msgspec
from aiohttp import web

from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.web.auth import Access, PermissionCache
from trimtab.web.backends.backend import DashboardBackend
from trimtab.web.backends.snapshot import take_snapshot
from trimtab.web.model import HistoryEntry, Plot, WorkloadDetail, WorkloadRow
from trimtab.web.rendering import PageError, TemplateRenderer
from trimtab.web.sessions import Session, SessionStore, current_session
from trimtab.web.views.costs import CostGroups
from trimtab.web.views.node_table import COLUMNS, NodeQuery, select_page
from trimtab.web.views.table_query import TableQuery, WorkloadTable

KEEP_ALIVE = 15.0
"""The seconds after which an idle stream sends a keep-alive."""
MIN_NEWS_INTERVAL = 0.5
"""The minimum seconds between two change notifications."""
MAX_POINTS = 1500
"""The number of points of a curve that are sent at most; a screen shows no more."""
HISTORY_PAGE_SIZE = 50
_NUMBER = re.compile(r"-?[0-9]{1,18}")
"""The pattern of a history entry's number; in snapshots of earlier versions OOM kills have negative ones."""


class Pages:
    def __init__(
        self,
        backend: DashboardBackend,
        access: Access,
        rendering: TemplateRenderer,
        sessions: SessionStore,
    ) -> None:
        self._backend = backend
        self._sessions = sessions
        self._permissions = PermissionCache(access)
        self._render_page = rendering.render_page
        self._table = WorkloadTable(())

    async def overview(self, request: web.Request) -> web.Response:
        return self._render_page("overview.html", request, part=False, **await self._overview_context())

    async def overview_part(self, request: web.Request) -> web.Response:
        return self._render_page("parts/overview.html", request, part=True, **await self._overview_context())

    async def _overview_context(self) -> dict[str, object]:
        return {"overview": await self._backend.overview(), "listing": await self._get_table()}

    async def overview_plots(self, _: web.Request) -> web.Response:
        found = await self._backend.overview()
        notable = [entry for entry in found.latest if entry.what in {"killed", "reverted"}]
        return _render_plots(
            {
                "cpu": found.cpu,
                "memory": found.memory,
                **({"cost": found.cost} if found.cost else {}),
                **({"savings": found.savings} if found.savings else {}),
            },
            notable,
        )

    async def workloads(self, request: web.Request) -> web.Response:
        return self._render_page("workloads.html", request, **await self._table_context(request))

    async def workloads_part(self, request: web.Request) -> web.Response:
        return self._render_page("parts/workloads.html", request, **await self._table_context(request))

    async def _table_context(self, request: web.Request) -> dict[str, object]:
        listing, query = await self._get_table(), TableQuery.parse(_read_query(request))
        return {
            "listing": listing,
            "query": query,
            "page": listing.page(query),
            "now": self._backend.observed_at,
            "currency": self._backend.currency,
        }

    async def _get_table(self) -> WorkloadTable:
        rows: Sequence[WorkloadRow] = await self._backend.workloads()
        # Backends return the same object until something changed, so the search texts are built once per version.
        if rows is not self._table.rows:
            self._table = WorkloadTable(rows)
        return self._table

    async def costs(self, request: web.Request) -> web.Response:
        return self._render_page(
            "costs.html", request, found=await self._group_costs(request), currency=self._backend.currency
        )

    async def costs_document(self, request: web.Request) -> web.Response:
        found = await self._group_costs(request)
        groups = [
            {
                "name": each.name,
                "workloads": each.workloads,
                "costMonth": round(each.cost, 2),
                "savingMonth": round(each.saving, 2),
            }
            for each in found.groups
        ]
        body = {"groupBy": found.key, "currency": self._backend.currency, "groups": groups}
        return web.Response(body=msgspec.json.encode(body), content_type="application/json")

    async def _group_costs(self, request: web.Request) -> CostGroups:
        return CostGroups.build(await self._backend.workloads(), _read_query(request))

    async def workload(self, request: web.Request) -> web.Response:
        return self._render_page(
            "workload.html", request, part=False, **await self._workload_context(request, wait=False)
        )

    async def workload_part(self, request: web.Request) -> web.Response:
        return self._render_page(
            "parts/workload.html", request, part=True, **await self._workload_context(request)
        )

    async def workload_plots(self, request: web.Request) -> web.Response:
        found = await self._require_workload(request)
        plots: dict[str, Plot] = {}
        for each in found.containers:
            plots |= {f"{each.name}/cpu": each.cpu, f"{each.name}/memory": each.memory}
        return _render_plots(plots, [entry for entry in found.events if entry.what != "recommended"])

    async def _workload_context(self, request: web.Request, *, wait: bool = True) -> dict[str, object]:
        found = await self._require_workload(request, wait=wait)
        return {
            "found": found,
            "may": await self._list_allowed([found.row.key]),
            "now": self._backend.observed_at,
            "currency": self._backend.currency,
        }

    async def _list_allowed(self, keys: Iterable[WorkloadKey]) -> frozenset[WorkloadKey]:
        if self._backend.read_only_reason:
            return frozenset()
        return await self._permissions.filter_allowed(current_session.get().viewer, keys)

    async def _require_workload(self, request: web.Request, *, wait: bool = True) -> WorkloadDetail:
        params = request.match_info
        key = WorkloadKey(params["kind"], params["namespace"], params["name"])
        found = await self._backend.workload(key, wait=wait)
        if found is None:
            reason = "; ".join(filter(None, ["this workload does not exist", self._backend.problem]))
            raise PageError(404, f"{key}: {reason}")
        return found

    async def intents(self, request: web.Request) -> web.Response:
        return self._render_page(
            "intents.html", request, intents=await self._backend.intents(), now=self._backend.observed_at
        )

    async def intents_part(self, request: web.Request) -> web.Response:
        intents = await self._backend.intents()
        return self._render_page(
            "parts/intents.html", request, intents=intents, now=self._backend.observed_at
        )

    async def intents_plots(self, _: web.Request) -> web.Response:
        plots: dict[str, Plot] = {}
        for intent in await self._backend.intents():
            name = f"{intent.namespace}/{intent.name}"
            plots |= {f"{name}/{each.name}": each.plot for each in intent.objectives if each.plot}
            plots |= {f"{name}/{each.name}": each.plot for each in intent.effects}
        return _render_plots(plots)

    async def nodes(self, request: web.Request) -> web.Response:
        return self._render_page("nodes.html", request, **await self._nodes_context(request))

    async def nodes_part(self, request: web.Request) -> web.Response:
        return self._render_page("parts/nodes.html", request, **await self._nodes_context(request))

    async def _nodes_context(self, request: web.Request) -> dict[str, object]:
        nodes, query = await self._backend.nodes(), NodeQuery.parse(_read_query(request))
        return {
            "nodes": nodes,
            "query": query,
            "page": select_page(nodes, query),
            "columns": COLUMNS,
            "now": self._backend.observed_at,
        }

    async def node(self, request: web.Request) -> web.Response:
        return self._render_page("node.html", request, **await self._node_context(request))

    async def node_part(self, request: web.Request) -> web.Response:
        return self._render_page("parts/node.html", request, **await self._node_context(request))

    async def _node_context(self, request: web.Request) -> dict[str, object]:
        name = request.match_info["name"]
        found = next((node for node in await self._backend.nodes() if node.name == name), None)
        if found is None:
            reason = "; ".join(filter(None, ["the cluster has no such node", self._backend.problem]))
            raise PageError(404, f"Node {name}: {reason}")
        return {"node": found, "now": self._backend.observed_at}

    async def history(self, request: web.Request) -> web.Response:
        return self._render_page("history.html", request, **await self._history_context(request))

    async def history_part(self, request: web.Request) -> web.Response:
        return self._render_page("parts/history.html", request, **await self._history_context(request))

    async def _history_context(self, request: web.Request) -> dict[str, object]:
        query = _read_query(request)
        before, what = query.get("before", ""), query.get("what", "")
        entries = await self._backend.history(
            what=what, before=int(before) if _NUMBER.fullmatch(before) else None, limit=HISTORY_PAGE_SIZE
        )
        return {
            "entries": entries,
            "may": await self._list_allowed(entry.key for entry in entries if entry.undo),
            "what": what,
            "more": len(entries) == HISTORY_PAGE_SIZE,
            "now": self._backend.observed_at,
        }

    async def changes(self, request: web.Request) -> web.StreamResponse:
        """Stream server-sent events, one for each change of the backend, until the session ends."""
        session = current_session.get()
        if not self._sessions.may_open_stream(session):
            raise PageError(
                429, "too many pages of this dashboard are open; close some, then reload this one"
            )
        # A proxy such as nginx holds events back until its buffer is full.
        response = web.StreamResponse(headers={"X-Accel-Buffering": "no"})
        response.content_type = "text/event-stream"
        await response.prepare(request)
        async with contextlib.aclosing(self._stream_news(session)) as stream:
            with contextlib.suppress(ConnectionResetError):  # the viewer closed the page
                async for news in stream:
                    await response.write(news)
        return response

    async def _stream_news(self, session: Session) -> AsyncGenerator[bytes]:
        if not self._sessions.may_open_stream(session):
            return  # requests in parallel may all have been admitted before the first one counted
        with self._sessions.count_stream(session):
            version = self._backend.version
            yield f"retry: 2000\nevent: now\ndata: {version}\n\n".encode()
            while await self._sessions.verify(session):
                changed = await self._wait_news(version, session)
                if changed is None:
                    yield b": keep-alive\n\n"
                    continue
                version = changed
                yield f"event: news\ndata: {version}\n\n".encode()
                await asyncio.sleep(MIN_NEWS_INTERVAL)

    async def _wait_news(self, version: int, session: Session) -> int | None:
        """Wait for another version and return it; None if there was none for a while, or the session ended."""
        news = asyncio.create_task(self._backend.wait_changed(version))
        ended = asyncio.create_task(session.ended.wait())
        try:
            done, _ = await asyncio.wait(
                {news, ended}, timeout=KEEP_ALIVE, return_when=asyncio.FIRST_COMPLETED
            )
            return news.result() if news in done and ended not in done else None
        finally:
            for task in (news, ended):
                task.cancel()
            await asyncio.gather(news, ended, return_exceptions=True)

    async def snapshot(self, _: web.Request) -> web.Response:
        """Return the whole dashboard as a file for `trimtab demo --snapshot FILE`."""
        headers = {"Content-Disposition": 'attachment; filename="trimtab-snapshot.json"'}
        return web.Response(
            body=(await take_snapshot(self._backend)).encode(),
            content_type="application/json",
            headers=headers,
        )


def _read_query(request: web.Request) -> dict[str, str]:
    """Return the query's parameters; the last value wins: the button that was pressed comes after the form's own field."""
    return dict(request.query.items())


def _render_plots(plots: dict[str, Plot], events: Iterable[HistoryEntry] = ()) -> web.Response:
    markers = [{"at": entry.at, "what": entry.what, "text": entry.why} for entry in events]
    body = {"plots": {name: _downsample(plot) for name, plot in plots.items()}, "events": markers}
    return web.Response(body=msgspec.json.encode(body), content_type="application/json")


def _downsample(plot: Plot) -> Plot:
    """Reduce a plot to the points that a screen shows, keeping the maximum of each interval, which sizes must cover."""
    many = len(plot.times)
    if many <= MAX_POINTS:
        return plot
    wide = -(-many // MAX_POINTS)

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

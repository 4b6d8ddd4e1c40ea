"""The queries that a PromQL server answers: range queries, remote read and label lookups."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from trimtab.usage.http_client import UsageHttpClient
from trimtab.usage.prometheus.remote_read.protocol import HEADERS, STREAMED_CONTENT_TYPE
from trimtab.usage.prometheus.response import MatrixSeries, TimeGrid, decode_matrix, decode_strings

T = TypeVar("T")

_STRICT_OPTIONS = {"dedup": "true", "partial_response": "false", "nocache": "1"}
"""Query options that demand complete responses; servers ignore those they do not know.

Thanos returns an error instead of a partial response, and VictoriaMetrics evaluates at the exact times.
"""


class PrometheusApi:
    """The query API of one server."""

    def __init__(self, transport: UsageHttpClient) -> None:
        self._transport = transport

    @property
    def address(self) -> str:
        return self._transport.address

    async def query_range(self, promql: str, grid: TimeGrid, read: Callable[[list[MatrixSeries]], T]) -> T:
        """Send a range query and return what `read` makes of its series at the grid's times."""
        times = {"start": f"{grid.start:.3f}", "end": f"{grid.end:.3f}", "step": f"{grid.step:.3f}"}
        form = {"query": promql, **times, **_STRICT_OPTIONS}
        return await self._transport.post_form(
            "/api/v1/query_range", form, lambda body: read(decode_matrix(body))
        )

    @property
    def supports_remote_read(self) -> bool:
        """Return whether raw samples can be requested at all; the server may still refuse."""
        return self._transport.can_post

    async def remote_read(self, request: bytes, read: Callable[[bytes], T]) -> T:
        """Send a remote read request and return what `read` makes of the raw samples."""
        return await self._transport.post_body(
            "/api/v1/read", request, HEADERS, read, expected=STREAMED_CONTENT_TYPE
        )

    async def label_names(self, match: str, grid: TimeGrid) -> list[str]:
        """Return the label names of the matching series at about these times."""
        return await self._transport.post_form(
            "/api/v1/labels", {"match[]": match, **_format_time_range(grid)}, decode_strings
        )

    async def label_values(self, label: str, match: str, grid: TimeGrid) -> list[str]:
        """Return the values of one label."""
        path = f"/api/v1/label/{label}/values"
        return await self._transport.get(path, {"match[]": match, **_format_time_range(grid)}, decode_strings)


def _format_time_range(grid: TimeGrid) -> dict[str, str]:
    return {"start": f"{grid.start:.3f}", "end": f"{grid.end:.3f}", "partial_response": "false"}

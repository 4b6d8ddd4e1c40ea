"""What can be asked of a PromQL server: range queries, and its index of labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from trimtab.usage.prometheus.http_transport import HttpTransport
from trimtab.usage.prometheus.remote_read.protocol import HEADERS, STREAMED_CONTENT_TYPE
from trimtab.usage.prometheus.response import MatrixSeries, TimeGrid, decode_matrix, decode_strings

T = TypeVar("T")

_STRICT_OPTIONS = {"dedup": "true", "partial_response": "false", "nocache": "1"}
"""To Thanos: rather no answer than half of one. To VictoriaMetrics: at these times, not at rounded ones. Others pass it
over."""


class PrometheusApi:
    """The query API, spoken over a wire."""

    def __init__(self, transport: HttpTransport) -> None:
        self._transport = transport

    @property
    def address(self) -> str:
        return self._transport.address

    async def query_range(self, promql: str, grid: TimeGrid, read: Callable[[list[MatrixSeries]], T]) -> T:
        """What `read` makes of the series that a query gives at the times of a grid."""
        times = {"start": f"{grid.start:.3f}", "end": f"{grid.end:.3f}", "step": f"{grid.step:.3f}"}
        form = {"query": promql, **times, **_STRICT_OPTIONS}
        return await self._transport.post("/api/v1/query_range", form, lambda body: read(decode_matrix(body)))

    @property
    def supports_remote_read(self) -> bool:
        """Whether it can be asked for raw samples at all; whether it answers is another question."""
        return self._transport.can_post

    async def remote_read(self, request: bytes, read: Callable[[bytes], T]) -> T:
        """What `read` makes of the raw samples that a request of the remote read protocol asks for."""
        return await self._transport.post_body(
            "/api/v1/read", request, HEADERS, read, expected=STREAMED_CONTENT_TYPE
        )

    async def label_names(self, match: str, grid: TimeGrid) -> list[str]:
        """The labels of the series that match, at about these times."""
        return await self._transport.post(
            "/api/v1/labels", {"match[]": match, **_format_time_range(grid)}, decode_strings
        )

    async def label_values(self, label: str, match: str, grid: TimeGrid) -> list[str]:
        """The values of one label."""
        path = f"/api/v1/label/{label}/values"
        return await self._transport.get(path, {"match[]": match, **_format_time_range(grid)}, decode_strings)


def _format_time_range(grid: TimeGrid) -> dict[str, str]:
    return {"start": f"{grid.start:.3f}", "end": f"{grid.end:.3f}", "partial_response": "false"}

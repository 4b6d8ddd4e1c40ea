"""What can be asked of a PromQL server: range queries, and its index of labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from trimtab.usage.prometheus.http_transport import Wire
from trimtab.usage.prometheus.remote_read.protocol import HEADERS, STREAMED
from trimtab.usage.prometheus.response import Grid, Series, matrix, strings

T = TypeVar("T")

_EXACTLY = {"dedup": "true", "partial_response": "false", "nocache": "1"}
"""To Thanos: rather no answer than half of one. To VictoriaMetrics: at these times, not at rounded ones. Others pass it
over."""


class Server:
    """The query API, spoken over a wire."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    @property
    def address(self) -> str:
        return self._wire.address

    async def range(self, promql: str, grid: Grid, read: Callable[[list[Series]], T]) -> T:
        """What `read` makes of the series that a query gives at the times of a grid."""
        times = {"start": f"{grid.start:.3f}", "end": f"{grid.end:.3f}", "step": f"{grid.step:.3f}"}
        form = {"query": promql, **times, **_EXACTLY}
        return await self._wire.post("/api/v1/query_range", form, lambda body: read(matrix(body)))

    @property
    def hands_out_samples(self) -> bool:
        """Whether it can be asked for raw samples at all; whether it answers is another question."""
        return self._wire.posts

    async def raw(self, request: bytes, read: Callable[[bytes], T]) -> T:
        """What `read` makes of the raw samples that a request of the remote read protocol asks for."""
        return await self._wire.send("/api/v1/read", request, HEADERS, read, expected=STREAMED)

    async def label_names(self, match: str, grid: Grid) -> list[str]:
        """The labels of the series that match, at about these times."""
        return await self._wire.post("/api/v1/labels", {"match[]": match, **_between(grid)}, strings)

    async def label_values(self, label: str, match: str, grid: Grid) -> list[str]:
        """The values of one label."""
        path = f"/api/v1/label/{label}/values"
        return await self._wire.get(path, {"match[]": match, **_between(grid)}, strings)


def _between(grid: Grid) -> dict[str, str]:
    return {"start": f"{grid.start:.3f}", "end": f"{grid.end:.3f}", "partial_response": "false"}

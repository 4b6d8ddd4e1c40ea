"""The dashboard beside an operator, in its process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import structlog

from trimtab.errors import TrimtabError
from trimtab.kube.cache.informer_set import InformerSet
from trimtab.kube.kinds.custom import node_report_projection
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import NODE_METRICS
from trimtab.operator.app import EmbeddedService
from trimtab.operator.state import OperatorState
from trimtab.web.app import LOOPBACK_HOSTS, build_app
from trimtab.web.auth import Access, ClusterAccess, LocalAccess
from trimtab.web.backends.live import LiveBackend
from trimtab.web.server import DashboardCertificate, is_loopback, serve_dashboard

log = structlog.get_logger(__name__)


def embed_dashboard(
    address: str, *, certificate: DashboardCertificate | None = None, in_pod: bool = False
) -> EmbeddedService:
    """The dashboard of whoever leads, at this address; what would be unsafe is refused at once.

    On the loopback of somebody's own machine whoever looks is that somebody. The loopback of a pod is anybody's who may
    forward a port to it, so that viewers are asked for a token there, as at every other address.
    """
    here = is_loopback(address)
    if not here and certificate is None:
        raise TrimtabError(
            f"--dashboard {address}: others can reach it, so it needs TLS: give --dashboard-certificate and "
            "--dashboard-key, or a loopback address to which you forward a port"
        )

    @asynccontextmanager
    async def beside(client: Client, desk: Callable[[], OperatorState | None]) -> AsyncIterator[None]:
        following = InformerSet(client)
        reports = following.watch_resource(NODE_METRICS, node_report_projection(), optional=True)
        board = LiveBackend(desk, name=client.connection.context, reports=lambda: reports)
        access: Access = LocalAccess() if here and not in_pod else ClusterAccess(client)
        hosts = LOOPBACK_HOSTS if here else ("*",)
        pages = build_app(board, access, hosts=hosts, secure=certificate is not None)
        async with serve_dashboard(pages, address, certificate=certificate) as url:
            log.info("dashboard.listening", url=url)
            tasks = [asyncio.create_task(each) for each in (board.run(), following.run())]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    return beside

"""Run the dashboard inside the operator's process."""

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
from trimtab.operator.config.model import PriceSettings
from trimtab.operator.views import OperatorViews
from trimtab.scan.pricing import build_prices
from trimtab.web.app import LOOPBACK_HOSTS, build_app
from trimtab.web.auth import Access, ClusterAccess, LocalAccess, OneTimeLinks
from trimtab.web.backends.live import LiveBackend
from trimtab.web.server import DashboardCertificate, is_loopback, serve_dashboard

log = structlog.get_logger(__name__)


def embed_dashboard(
    address: str,
    *,
    certificate: DashboardCertificate | None = None,
    in_pod: bool = False,
    prices: Callable[[], PriceSettings] = PriceSettings,
) -> EmbeddedService:
    """Build the service that serves the leader's dashboard at this address; rejects unsafe settings at once.

    On the loopback of a user's own machine, the viewer is that user, who sees the one-time link in the log. Anybody with port-forward rights reaches the loopback
    of a pod, so viewers need a token there, as at every other address.
    """
    is_local = is_loopback(address)
    if not is_local and certificate is None:
        raise TrimtabError(
            f"--dashboard {address}: other hosts can reach this address, so it needs TLS; give --dashboard-certificate and "
            "--dashboard-key, or a loopback address to which you forward a port"
        )

    @asynccontextmanager
    async def serve(client: Client, views: Callable[[], OperatorViews | None]) -> AsyncIterator[None]:
        informers = InformerSet(client)
        # Only the dashboard shows the reports of node agents, so an operator without one does not cache them.
        reports = informers.watch_resource(NODE_METRICS, node_report_projection(), optional=True)
        backend = LiveBackend(
            views,
            name=client.connection.context,
            prices=lambda: build_prices(prices()),
            reports=lambda: reports,
        )
        links = OneTimeLinks() if is_local and not in_pod else None
        access: Access = LocalAccess(links=links) if links else ClusterAccess(client)
        hosts = LOOPBACK_HOSTS if is_local else ("*",)
        pages = build_app(backend, access, hosts=hosts, secure=certificate is not None)
        async with serve_dashboard(pages, address, certificate=certificate) as url:
            log.info("dashboard.listening", url=links.build_url(url) if links else url)
            if links:
                links.on_redeemed = lambda: log.info("dashboard.next_link", url=links.build_url(url))
            tasks = [asyncio.create_task(each) for each in (backend.run(), informers.run())]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    return serve

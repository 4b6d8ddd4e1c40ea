"""Price nodes, as the bill does: by OpenCost, by a price list, or else by what a node has.

Requests that became smaller save nothing while the same nodes run. The cost of the nodes is what the bill shows.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Never

import aiohttp
import msgspec
import structlog

from trimtab.api.quantity import GIB
from trimtab.kube.errors import DECODE_ERRORS
from trimtab.kube.kinds.nodes import Node
from trimtab.operator.config.model import PriceSettings
from trimtab.prices import MONTH_HOURS

log = structlog.get_logger(__name__)

REFRESH_INTERVAL = 3600.0
_RETRY_INTERVAL = 60.0
_TIMEOUT = aiohttp.ClientTimeout(total=30)
INSTANCE_TYPE = "node.kubernetes.io/instance-type"


class _Assets(msgspec.Struct, frozen=True):
    data: Any = None


_DECODER = msgspec.json.Decoder(_Assets)


class OpenCostError(Exception):
    """Raised if OpenCost does not answer with the costs of nodes."""


class NodePrices:
    """The monthly cost of each node; `run` it to follow the prices of OpenCost."""

    def __init__(self, settings: Callable[[], PriceSettings]) -> None:
        self._settings = settings
        self._hourly: Mapping[str, float] = {}
        """The hourly cost by node name, as OpenCost has it."""

    def monthly_cost(self, node: Node) -> float:
        """Return what a node costs a month."""
        settings = self._settings()
        known = self._hourly.get(node.name)
        if known is not None:  # OpenCost knows the discounts itself
            return MONTH_HOURS * known
        return MONTH_HOURS * settings.paid_share * price_node(node, settings)

    def sum_by_instance_type(self, nodes: Iterable[Node]) -> dict[str, float]:
        """Return the monthly cost of the nodes of each instance type; its name is empty for nodes without the label."""
        found: dict[str, float] = {}
        for node in nodes:
            name = dict(node.labels).get(INSTANCE_TYPE, "")
            found[name] = found.get(name, 0.0) + self.monthly_cost(node)
        return found

    async def refresh(self) -> None:
        """Read the costs of nodes from OpenCost, if it is configured; raise `OpenCostError` and keep the known ones."""
        url = self._settings().open_cost
        if url:
            self._hourly = parse_node_costs(await _fetch(f"{url.rstrip('/')}/assets?window=1d"))

    async def run(self) -> Never:
        """Refresh the prices every hour."""
        last = ""
        while True:
            interval = REFRESH_INTERVAL
            try:
                await self.refresh()
                last = ""
            except OpenCostError as error:
                interval = _RETRY_INTERVAL
                if str(error) != last:
                    log.warning("prices.opencost_failed", error=str(error))
                last = str(error)
            await asyncio.sleep(interval)


def price_node(node: Node, settings: PriceSettings) -> float:
    """Return the hourly list price of a node: that of the first entry whose labels it has, or else of its capacity."""
    labels = set(node.labels)
    for entry in settings.nodes:
        if entry.labels.items() <= labels:
            return entry.hour
    return settings.cpu * node.capacity.cpu / 1000 + settings.memory * node.capacity.memory / GIB


def parse_node_costs(body: bytes) -> dict[str, float]:
    """Return the hourly cost of each node in a response of OpenCost's assets API."""
    try:
        data = _DECODER.decode(body).data
        # OpenCost returns one map of assets, and Kubecost a list of them, one for each part of the window.
        parts = data if isinstance(data, list) else [data]
        assets = [each for part in parts if part for each in part.values()]
        found: dict[str, float] = {}
        for asset in assets:
            if asset["type"] == "Node" and float(asset["minutes"]) > 0:
                hourly = float(asset["totalCost"]) * 60 / float(asset["minutes"])
                if math.isfinite(hourly) and hourly >= 0:
                    found[asset["properties"]["name"]] = hourly
    except (*DECODE_ERRORS, AttributeError, KeyError, TypeError, ValueError) as error:
        raise OpenCostError(f"the response is not one of the assets API of OpenCost: {error!r}") from None
    return found


async def _fetch(url: str) -> bytes:
    try:
        async with aiohttp.ClientSession(timeout=_TIMEOUT) as session, session.get(url) as response:
            if response.status != 200:
                raise OpenCostError(f"{url}: HTTP {response.status}; check prices.openCost")
            body = await response.read()
    except (aiohttp.ClientError, TimeoutError) as error:
        raise OpenCostError(f"{url}: {error!r}; check prices.openCost") from None
    return body

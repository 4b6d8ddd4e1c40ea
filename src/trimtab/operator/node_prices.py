"""Price nodes, as the bill does: by OpenCost, by a price list, or else by what a node has.

Requests that became smaller save nothing while the same nodes run. The cost of the nodes is what the bill shows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Never

import aiohttp
import msgspec
import structlog

from trimtab.api.quantity import GIB
from trimtab.errors import TrimtabError
from trimtab.kube.auth import Connection
from trimtab.kube.auth.credentials import LocalCredentialProvider
from trimtab.kube.errors import DECODE_ERRORS
from trimtab.kube.kinds.nodes import Node
from trimtab.kube.rest.http_transport import HttpFailure, HttpTransport, read_body
from trimtab.operator.config.model import PriceSettings
from trimtab.prices import MAX_PRICE, MONTH_HOURS

log = structlog.get_logger(__name__)

_POLL_INTERVAL = 60.0
"""The seconds after which a changed URL is noticed, and a failed request is sent again."""
_POLLS = 60
"""The number of these intervals for which prices are kept."""
_TIMEOUT = aiohttp.ClientTimeout(total=30)
_MAX_BYTES = 32 << 20
_MAX_NAMED = 10
"""The maximum number of nodes or clusters that a message names."""
INSTANCE_TYPE = "node.kubernetes.io/instance-type"


class _Assets(msgspec.Struct, frozen=True):
    data: Any = None


_DECODER = msgspec.json.Decoder(_Assets)


@dataclass(frozen=True, slots=True)
class NodeCosts:
    """The costs of nodes that OpenCost has."""

    hourly: Mapping[str, float] = field(default_factory=dict)
    """The hourly cost by node name."""
    ambiguous: tuple[str, ...] = ()
    """The names that several nodes have, as in several clusters; which of their costs is meant is unknown."""


class _Origin(NamedTuple):
    """The OpenCost that costs come from, and the cluster there; None for all clusters."""

    url: str | None = None
    cluster: str | None = None


def _origin(settings: PriceSettings) -> _Origin:
    return _Origin(settings.open_cost, settings.open_cost_cluster)


class OpenCostError(TrimtabError):
    """Raised if OpenCost does not answer with the costs of nodes."""


class NodePrices:
    """The monthly cost of each node; `run` it to follow the prices of OpenCost."""

    def __init__(self, settings: Callable[[], PriceSettings]) -> None:
        self._settings = settings
        self._hourly: Mapping[str, float] = {}
        """The hourly cost by node name, as OpenCost has it."""
        self._origin = _Origin()
        """The OpenCost, and the cluster there, that have these costs."""

    def monthly_cost(self, node: Node) -> float:
        """Return what a node costs a month."""
        settings = self._settings()
        known = self._hourly.get(node.name) if _origin(settings) == self._origin else None
        if known is not None:  # OpenCost knows the discounts itself
            return MONTH_HOURS * known
        return MONTH_HOURS * price_node(node, settings)

    def sum_by_instance_type(self, nodes: Iterable[Node]) -> dict[str, float]:
        """Return the monthly cost of the nodes of each instance type; its name is empty for nodes without the label."""
        found: dict[str, float] = {}
        for node in nodes:
            name = dict(node.labels).get(INSTANCE_TYPE, "")
            found[name] = found.get(name, 0.0) + self.monthly_cost(node)
        return found

    async def refresh(self) -> None:
        """Read the costs of nodes from OpenCost, if it is configured; raise `OpenCostError` and keep the known ones."""
        origin = _origin(self._settings())
        costs = (
            parse_node_costs(await _fetch(origin.url), cluster=origin.cluster) if origin.url else NodeCosts()
        )
        self._hourly, self._origin = costs.hourly, origin
        if costs.ambiguous:
            log.warning(
                "prices.opencost_ambiguous",
                nodes=", ".join(costs.ambiguous[:_MAX_NAMED]),
                count=len(costs.ambiguous),
                fix="If several clusters have nodes of these names, set prices.openCostCluster to the name of this one",
            )

    async def run(self) -> Never:
        """Refresh the prices every hour, and soon after a failure or another URL."""
        last, polls = "", 0
        while True:
            if not polls or _origin(self._settings()) != self._origin:
                problem = await self._try_refresh()
                if problem and problem != last:
                    log.warning("prices.opencost_failed", error=problem)
                last, polls = problem, 1 if problem else _POLLS
            polls -= 1
            await asyncio.sleep(_POLL_INTERVAL)

    async def _try_refresh(self) -> str:
        """Refresh the prices; return why that failed, empty if it did not."""
        try:
            await self.refresh()
        except OpenCostError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - the session of the leader must go on without prices
            return repr(error)
        return ""


def price_node(node: Node, settings: PriceSettings) -> float:
    """Return the hourly price of a node: that of the first entry whose labels it has, or else of its capacity.

    The discount is of the prices of CPU and memory only: an entry has the price that is paid.
    """
    labels = set(node.labels)
    for entry in settings.nodes:
        if entry.labels.items() <= labels:
            return entry.hour
    capacity = settings.cpu * node.capacity.cpu / 1000 + settings.memory * node.capacity.memory / GIB
    return settings.paid_share * capacity


def parse_node_costs(body: bytes, *, cluster: str | None = None) -> NodeCosts:
    """Return the hourly cost of each node of a cluster, or of all, in a response of OpenCost's assets API.

    OpenCost may know several clusters, whose nodes share names: without a cluster, a node has no cost if several assets
    have its name. In one cluster they are the same node, replaced under its name, which has their mean cost.
    """
    clusters: set[str | None] = set()
    try:
        data = _DECODER.decode(body).data
        # OpenCost returns one map of assets, and Kubecost a list of them, one for each part of the window.
        parts = data if isinstance(data, list) else [data]
        found: dict[str, dict[str, _Cost]] = {}
        for part in parts:
            for key, asset in (part or {}).items():  # the key has the cluster and the ID of the provider
                if asset["type"] != "Node":
                    continue
                name, its_cluster = asset["properties"].get("name"), asset["properties"].get("cluster")
                clusters.add(its_cluster if isinstance(its_cluster, str) else None)
                if cluster is not None and its_cluster != cluster:
                    continue
                if isinstance(name, str) and (cost := _read_cost(asset)) is not None:
                    found.setdefault(name, {})[key] = cost
    except (*DECODE_ERRORS, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise OpenCostError(f"the response is not one of the assets API of OpenCost: {error!r}") from None
    if cluster is not None and clusters and cluster not in clusters:
        known = ", ".join(sorted(each for each in clusters if each)[:_MAX_NAMED])
        if not known:
            raise OpenCostError(
                f"the nodes of OpenCost name no cluster; remove prices.openCostCluster, which is {cluster}"
            )
        raise OpenCostError(
            f"OpenCost has no cluster {cluster}, but {known}; set prices.openCostCluster to one of them"
        )
    if not found:
        raise OpenCostError("the response of OpenCost has no cost of any node; check what OpenCost monitors")
    ambiguous = {name for name, costs in found.items() if len(costs) > 1} if cluster is None else set[str]()
    return NodeCosts(
        hourly={name: _mean_cost(costs.values()) for name, costs in found.items() if name not in ambiguous},
        ambiguous=tuple(sorted(ambiguous)),
    )


class _Cost(NamedTuple):
    """The hourly cost of a node, and the minutes for which it ran."""

    hourly: float
    minutes: float


def _read_cost(asset: Mapping[str, Any]) -> _Cost | None:
    minutes = float(asset["minutes"])
    cost = float(asset["totalCost"]) * 60 / minutes if minutes > 0 else -1.0
    return _Cost(cost, minutes) if 0 <= cost <= MAX_PRICE else None


def _mean_cost(costs: Collection[_Cost]) -> float:
    longest = max(each.minutes for each in costs)  # so that no sum is infinite
    weights = [each.minutes / longest for each in costs]
    return sum(each.hourly * weight for each, weight in zip(costs, weights, strict=True)) / sum(weights)


async def _fetch(url: str) -> bytes:
    def map_error(failure: HttpFailure) -> OpenCostError:
        problem = f"HTTP {failure.status}" if failure.status else failure.detail
        return OpenCostError(f"{url}: {problem or failure.kind.value}; check prices.openCost")

    server = Connection(
        server=url.rstrip("/"), context=url, namespace="", credentials=LocalCredentialProvider(), trust=None
    )
    async with (
        HttpTransport(server, map_error=map_error) as http,
        http.exchange("GET", "/assets", params={"window": "1d"}, timeout=_TIMEOUT) as response,
    ):
        body = await read_body(response, max_bytes=_MAX_BYTES)
    if body is None:
        raise OpenCostError(f"{url}: the response is larger than {_MAX_BYTES:,} bytes; check prices.openCost")
    return body

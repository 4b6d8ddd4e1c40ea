"""Price requests and format money: prices are per hour, as clouds charge them, and costs are per month.

Disks, GPUs and the node of a pod are not considered. The default prices are OpenCost's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from unicodedata import category

import yaml
from pydantic import AfterValidator, Field, ValidationError

from trimtab.api.errors import format_problems
from trimtab.api.quantity import GIB
from trimtab.errors import TrimtabError
from trimtab.kube.kinds.pod_requests import pod_requests
from trimtab.kube.kinds.pods import Resources
from trimtab.plugins import Settings
from trimtab.prices import CPU_HOUR, GIB_HOUR, MAX_PRICE, MONTH_HOURS
from trimtab.yaml_documents import load_yaml

if TYPE_CHECKING:
    from trimtab.operator.cluster_state import ClusterState
    from trimtab.operator.config.model import PriceSettings

_MAX_LENGTH = 8


def _check_currency(text: str) -> str:
    """Allow only text that is safe to print on a terminal, in HTML and in Markdown."""
    if len(text) > _MAX_LENGTH or not all(
        letter.isalnum() or letter in " .'" or category(letter) == "Sc" for letter in text
    ):
        raise ValueError(f"must be a sign or a short word, such as € or 'EUR ', not {text!r}")
    return text


Price = Annotated[float, Field(ge=0, le=MAX_PRICE, allow_inf_nan=False)]
Currency = Annotated[str, AfterValidator(_check_currency)]


class ResourcePrices(Settings):
    """The hourly prices of a CPU core and of a GiB of memory."""

    cpu: Price = CPU_HOUR
    """The price of one core for one hour."""
    memory: Price = GIB_HOUR
    """The price of one GiB of memory for one hour."""
    currency: Currency = "$"
    """The currency sign or word that is printed before an amount."""

    def price_cpu(self, millicores: float) -> float:
        """Return the monthly price of these millicores."""
        return MONTH_HOURS * self.cpu * millicores / 1000

    def price_memory(self, count: float) -> float:
        """Return the monthly price of these bytes of memory."""
        return MONTH_HOURS * self.memory * count / GIB

    def price_requests(self, resources: Resources) -> float:
        """Return the monthly price of one container's requests."""
        return self.price_cpu(resources.cpu_request or 0) + self.price_memory(resources.memory_request or 0)


def read_prices(
    path: Path | None,
    *,
    cpu: float | None = None,
    memory: float | None = None,
    defaults: ResourcePrices | None = None,
) -> ResourcePrices:
    """Read prices from a YAML or JSON file with cpu, memory and currency; single prices override the file.

    Only the fields that are given somewhere are set: in `defaults`, all.
    """
    found: Any = {}
    if path is not None:
        try:
            found = load_yaml(path.read_text()) or {}
        except OSError as error:
            raise TrimtabError(f"--price-file {path}: cannot be read: {error.strerror}") from None
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise TrimtabError(
                f"--price-file {path}: is not valid YAML: {' '.join(str(error).split())}"
            ) from None
        if not isinstance(found, dict):
            raise TrimtabError(f"--price-file {path}: write it as cpu: 0.03, memory: 0.004, a line each")
    given = {name: price for name, price in (("cpu", cpu), ("memory", memory)) if price is not None}
    try:
        return ResourcePrices.model_validate(
            {**(defaults.model_dump() if defaults else {}), **found, **given}
        )
    except ValidationError as error:
        raise TrimtabError(f"prices: {'; '.join(format_problems(error))}") from None


def build_prices(settings: PriceSettings) -> ResourcePrices:
    """Return the prices of the operator's configuration, less its discount."""
    paid = settings.paid_share
    return ResourcePrices(cpu=paid * settings.cpu, memory=paid * settings.memory, currency=settings.currency)


def replace_prices(settings: PriceSettings, given: ResourcePrices | None) -> PriceSettings:
    """Return the prices of the operator's configuration, replaced by the fields that are set in `given`.

    A given price is the one that is paid: the discount is only of the prices of the configuration. The prices of nodes are
    those of the configuration, unless a currency is given.
    """
    stated = {name: getattr(given, name) for name in given.model_fields_set} if given else {}
    nodes = () if "currency" in stated else settings.nodes
    paid = build_prices(settings).model_dump()
    return settings.model_copy(update={**paid, **stated, "discount": 0.0, "nodes": nodes})


@dataclass(frozen=True, slots=True)
class NodeBill:
    """The cost of the nodes, whatever is requested on them."""

    count: int
    cost: float
    """The monthly cost of all nodes."""
    needed: int
    """The number of nodes of the largest size that would hold all requests, packed without gaps."""


def build_node_bill(state: ClusterState, settings: PriceSettings) -> NodeBill | None:
    """Return the bill of the nodes of a cluster; None if they are not known."""
    from trimtab.operator.node_prices import (
        NodePrices,  # the import of aiohttp takes longer than most commands
    )

    nodes = list(state.nodes)
    cpu = max((node.allocatable.cpu for node in nodes), default=0)
    memory = max((node.allocatable.memory for node in nodes), default=0)
    if not (cpu and memory):
        return None
    requested = [pod_requests(pod) for pod in state.pods]
    return NodeBill(
        len(nodes),
        sum(map(NodePrices(lambda: settings).monthly_cost, nodes)),
        math.ceil(
            max(sum(each.cpu for each in requested) / cpu, sum(each.memory for each in requested) / memory)
        ),
    )


def format_money(amount: float, currency: str = "$") -> str:
    """Format money, with cents below 100."""
    sign = "-" if amount < 0 else ""
    size = abs(amount)
    return f"{sign}{currency}{size:,.0f}" if size >= 100 else f"{sign}{currency}{size:,.2f}"


def format_share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole > 0 else "-"


def format_fraction(value: float) -> str:
    """Format a fraction in percent with a decimal; a dash if it is not known."""
    return "-" if math.isnan(value) else f"{value:.1%}"

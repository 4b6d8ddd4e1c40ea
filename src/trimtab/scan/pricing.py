"""What requests cost: by the hour, as clouds charge, told by the month, as people pay.

Left out: discounts, disks, GPUs, and which node a pod happens to be on. Without given prices OpenCost's are taken.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any
from unicodedata import category

import yaml
from pydantic import AfterValidator, Field, ValidationError

from trimtab.api.errors import format_problems
from trimtab.errors import TrimtabError
from trimtab.kube.kinds.pods import Resources
from trimtab.lab.scores import CPU_HOUR, GIB, GIB_HOUR, MONTH_HOURS
from trimtab.plugins import Settings

_MAX_LENGTH = 8


def _check_currency(text: str) -> str:
    """What no terminal, page or pull request takes for anything but itself."""
    if len(text) > _MAX_LENGTH or not all(
        letter.isalnum() or letter in " .'" or category(letter) == "Sc" for letter in text
    ):
        raise ValueError(f"must be a sign or a short word, such as € or 'EUR ', not {text!r}")
    return text


Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Currency = Annotated[str, AfterValidator(_check_currency)]


class ResourcePrices(Settings):
    """Dollars, or whatever one pays in, for an hour of a core and of a GiB of memory."""

    cpu: Price = CPU_HOUR
    """For a core and hour."""
    memory: Price = GIB_HOUR
    """For a GiB and hour."""
    currency: Currency = "$"
    """What stands before an amount."""

    def price_cpu(self, millicores: float) -> float:
        """A month of so many millicores."""
        return MONTH_HOURS * self.cpu * millicores / 1000

    def price_memory(self, count: float) -> float:
        """A month of so many bytes."""
        return MONTH_HOURS * self.memory * count / GIB

    def price_requests(self, resources: Resources) -> float:
        """A month of one container's requests."""
        return self.price_cpu(resources.cpu_request or 0) + self.price_memory(resources.memory_request or 0)


def read_prices(
    path: Path | None, *, cpu: float | None = None, memory: float | None = None
) -> ResourcePrices:
    """The prices of a file (YAML or JSON with cpu, memory, currency), and over them those given by themselves."""
    found: Any = {}
    if path is not None:
        try:
            found = yaml.safe_load(path.read_text()) or {}
        except OSError as error:
            raise TrimtabError(f"--price-file {path}: cannot be read: {error.strerror}") from None
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise TrimtabError(f"--price-file {path}: is no YAML: {' '.join(str(error).split())}") from None
        if not isinstance(found, dict):
            raise TrimtabError(f"--price-file {path}: write it as cpu: 0.03, memory: 0.004, a line each")
    given = {name: price for name, price in (("cpu", cpu), ("memory", memory)) if price is not None}
    try:
        return ResourcePrices.model_validate({**found, **given})
    except ValidationError as error:
        raise TrimtabError(f"prices: {'; '.join(format_problems(error))}") from None

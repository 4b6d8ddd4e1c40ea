"""What a strategy proposes for one container: one row of its arrays, as a record.

The numbers are as the strategy gave them, NaN and nonsense included; the gate decides what is believed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from trimtab.api.optimizationpolicy import MetricsConfig
from trimtab.sizing.recommendation import Factor
from trimtab.sizing.strategy import Bounds, Sizes
from trimtab.sizing.tracking.proposal_history import Lately

ALMOST = 1e-6
"""What a product of floats may be off by: 0.2 cores are 200 millicores and not 201."""


class Ask(msgspec.Struct, frozen=True, gc=False):
    """One resource in millicores or bytes; NaN: the strategy cannot say."""

    target: float = math.nan
    lower: float = math.nan
    """A request between this and `upper` is not worth a change."""
    upper: float = math.nan
    lately: tuple[float, ...] = ()
    """The highest target of each hour of the clock, this one's first; 0 where there was none."""
    keeps: bool = False
    """Whether the target is for all of the time that a policy keeps sizes, so that it need not keep the highest of late."""

    def of_the_day(self) -> Ask:
        """The highest target of late, with bounds as wide: for who follows a number wherever it goes."""
        highest = max(self.lately, default=0.0)
        if not highest > self.target > 0:
            return self
        share = highest / self.target
        return Ask(highest, self.lower * share, self.upper * share, self.lately, self.keeps)


class Proposal(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Both resources, and what the strategy has to say about them."""

    cpu: Ask = Ask()
    memory: Ask = Ask()
    strategy: str
    facts: tuple[Factor, ...] = ()
    """What it rests on, such as the percentile and the safety factor; they open the explanation."""


def proposal(
    sizes: Sizes,
    row: int,
    *,
    strategy: str,
    facts: tuple[Factor, ...] = (),
    lately: Lately = Lately(),  # noqa: B008 - immutable
    keeps_cpu: bool = False,
) -> Proposal:
    """What a strategy said of the container in this row."""
    return Proposal(
        cpu=_ask(sizes.cpu, row, 1000.0, lately.cpu, keeps=keeps_cpu),
        memory=_ask(sizes.memory, row, 1.0, lately.memory),
        strategy=strategy,
        facts=facts,
    )


def percentile_settings(config: MetricsConfig) -> dict[str, float]:
    """The settings of the strategy `percentile` that do what a policy's metricsConfig says."""
    return {
        "quantile": int(config.percentile.removeprefix("P")) / 100,
        "safety_factor": config.safety_factor,
        "window": config.rolling_window.seconds,
    }


def told(strategy: str, settings: Mapping[str, Any]) -> Factor:
    """What a strategy was told, to open an explanation with."""
    said = ", ".join(
        f"{name} {value:.15g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in settings.items()
    )
    return Factor("settings", said, f"strategy {strategy}")


def _ask(bounds: Bounds, row: int, units: float, lately: tuple[float, ...], *, keeps: bool = False) -> Ask:
    return Ask(
        float(bounds.target[row]) * units,
        float(bounds.lower[row]) * units,
        float(bounds.upper[row]) * units,
        tuple(target * units for target in lately),
        keeps,
    )

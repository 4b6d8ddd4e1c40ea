"""Where usage is read, how much of it a request is to cover, and by which strategy."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from trimtab.api.duration import Duration
from trimtab.api.fields import DurationRange, Number, PluginName
from trimtab.api.model import ApiModel


class UsagePercentile(StrEnum):
    """Which part of the observed usage a request must cover."""

    P50 = "P50"
    P90 = "P90"
    P95 = "P95"
    P99 = "P99"


class MetricsConfig(ApiModel):
    """Where usage is read, and how much of it a request is to cover."""

    provider: PluginName | None = None
    """Where usage comes from: prometheus, metrics-server, or the name of a plugin. The operator's own default
    when left out."""

    rolling_window: Annotated[Duration, DurationRange("1m", "8760h")] = Duration.parse("24h")
    """How far back usage is looked at, such as 24h; days are written as hours."""

    percentile: UsagePercentile = UsagePercentile.P90
    """The percentile of usage that a request covers before the safety factor: P50, P90, P95 or P99."""

    safety_factor: Annotated[Number, Field(ge=1, le=10)] = 1.2
    """What the percentile is multiplied by; 1.2 leaves a fifth to spare."""

    minimum_history: Annotated[Duration, DurationRange("1m", "8760h")] = Duration.parse("24h")
    """How long a container must have been observed before it is made smaller, such as 24h, so that a quiet night
    is not taken for the whole; one that needs more gets it sooner."""


class StrategyChoice(ApiModel):
    """How sizes are derived from usage."""

    name: PluginName = "trimtab"
    """The strategy: trimtab, or the name of a plugin."""

    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings of the strategy; what there is depends on it."""

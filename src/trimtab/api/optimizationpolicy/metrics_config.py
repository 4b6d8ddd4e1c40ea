"""The source of usage, the share of it that a request covers, and the strategy."""

from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from trimtab.api.duration import Duration
from trimtab.api.errors import validation_problem
from trimtab.api.fields import DurationRange, Name, Number, PluginName
from trimtab.api.model import ApiModel


class UsagePercentile(StrEnum):
    """The percentile of the observed usage that a request must cover."""

    P50 = "P50"
    P90 = "P90"
    P95 = "P95"
    P99 = "P99"


class SizingGoal(StrEnum):
    """The balance between cost and safety."""

    SAVINGS = "Savings"
    BALANCED = "Balanced"
    RELIABILITY = "Reliability"
    BATCH = "Batch"


class ResourceGoals(ApiModel):
    """Goals of single resources instead of the policy's."""

    cpu: SizingGoal | None = None
    """The goal for CPU; the policy's when left out."""

    memory: SizingGoal | None = None
    """The goal for memory; the policy's when left out."""


DEFAULT_ROLLING_WINDOW = Duration.parse("24h")
DEFAULT_PERCENTILE = UsagePercentile.P90
DEFAULT_SAFETY_FACTOR = 1.2
_PERCENTILE_FIELDS = {"rolling_window", "percentile", "safety_factor"}


class MetricsConfig(ApiModel):
    """The source of usage, and the share of it that a request covers."""

    provider: PluginName | None = None
    """The source of usage: prometheus, metrics-server, or the name of a plugin; the operator's own default when left
    out."""

    secret: Name | None = None
    """The name of a Secret whose credentials are used for the source instead of the operator's own. It is mounted in the
    operator; its keys are token, or username and password, and ca.crt, tls.crt and tls.key. Only policies in the operator's
    namespace may give one."""

    rolling_window: Annotated[Duration, DurationRange("1m", "8760h")] | None = None
    """The period of usage that the strategy percentile considers; days are written as hours. 24h when left out."""

    percentile: UsagePercentile | None = None
    """The percentile of usage that the strategy percentile covers before the safety factor: P50, P90, P95 or P99; P90
    when left out."""

    safety_factor: Annotated[Number, Field(ge=1, le=10)] | None = None
    """The factor by which the strategy percentile multiplies the percentile; 1.2 adds 20 %, and is used when left
    out."""

    minimum_history: Annotated[Duration, DurationRange("1m", "8760h")] | None = None
    """The time for which a container must have been observed before it is made smaller, such as 24h; increases do not
    wait. When left out, decreases start after 4 hours and leave more above the peak until a day was observed; where
    pods restart, and for batch workloads, they start after a day."""

    @property
    def percentile_fields(self) -> tuple[str, ...]:
        """The fields that are set and that only the strategy percentile uses, in the manifest's spelling."""
        return tuple(
            field.alias or name
            for name, field in MetricsConfig.model_fields.items()
            if name in _PERCENTILE_FIELDS and getattr(self, name) is not None
        )

    @property
    def has_stored_defaults(self) -> bool:
        """True if the fields of the strategy percentile have the values that the API server added to policies of 0.1.0."""
        return (self.rolling_window, self.percentile, self.safety_factor) == (
            DEFAULT_ROLLING_WINDOW,
            DEFAULT_PERCENTILE,
            DEFAULT_SAFETY_FACTOR,
        )


MAX_SETTINGS = 256
"""The most values in the settings of a strategy, at all levels."""
MAX_SETTINGS_DEPTH = 8


def _check_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Reject settings that are large or deep: their schema is free, and every policy is kept and copied in memory."""
    level, count = list[Any]([settings]), 0
    for _ in range(MAX_SETTINGS_DEPTH):
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
        count += len(level)
        if count > MAX_SETTINGS:
            raise validation_problem(f"has more than {MAX_SETTINGS} values; use fewer")
    if any(isinstance(value, dict | list) for value in level):
        raise validation_problem(f"nests more than {MAX_SETTINGS_DEPTH} levels; use fewer")
    return settings


class StrategyChoice(ApiModel):
    """The strategy that derives sizes from usage."""

    name: PluginName | None = None
    """The name of the strategy: trimtab, or the name of a plugin. When left out, percentile if metricsConfig sets
    percentile, safetyFactor or rollingWindow, otherwise trimtab."""

    settings: Annotated[dict[str, Any], AfterValidator(_check_settings)] = Field(default_factory=dict)
    """The settings of the strategy; the names depend on the strategy."""

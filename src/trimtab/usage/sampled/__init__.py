"""A bounded history for sources without one: polled, and persisted across restarts."""

from trimtab.usage.sampled.hour_block import ContainerSample, parse_amount
from trimtab.usage.sampled.source import ListPollingSource, PollingSettings, PollingSource

__all__ = ["ContainerSample", "ListPollingSource", "PollingSettings", "PollingSource", "parse_amount"]

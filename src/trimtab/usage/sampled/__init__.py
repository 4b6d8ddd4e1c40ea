"""A history of our own for sources that know the present alone: sampled, bounded, and there again after a restart."""

from trimtab.usage.sampled.hour_block import ContainerSample
from trimtab.usage.sampled.source import PollingSettings, PollingSource

__all__ = ["ContainerSample", "PollingSettings", "PollingSource"]

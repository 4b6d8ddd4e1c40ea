"""A history of our own for sources that know the present alone: sampled, bounded, and there again after a restart."""

from trimtab.usage.sampled.hour_block import Sample
from trimtab.usage.sampled.source import Sampled, SampledSettings

__all__ = ["Sample", "Sampled", "SampledSettings"]

"""Recent time series in ring buffers, their statistics, and their snapshot file."""

from trimtab.node.series.ring import Ring, compute_stats
from trimtab.node.series.snapshot import SeriesSnapshot
from trimtab.node.series.store import SeriesRetention, SeriesStore

__all__ = ["Ring", "SeriesRetention", "SeriesSnapshot", "SeriesStore", "compute_stats"]

"""The near past: time series in rings, their windows, and the file in which they outlive a restart."""

from trimtab.node.series.ring import Ring, spread_of
from trimtab.node.series.snapshot import Snapshot
from trimtab.node.series.store import Retention, Series

__all__ = ["Retention", "Ring", "Series", "Snapshot", "spread_of"]

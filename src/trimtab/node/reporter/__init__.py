"""Report the usage of the node, its pods, tiers and system as a NodeMetric."""

from trimtab.node.reporter.reporter import Reporter
from trimtab.node.reporter.status import build_status

__all__ = ["Reporter", "build_status"]

"""Collectors of node and pod metrics, one module each with its own period."""

from trimtab.node.collectors.manager import Collector, CollectorManager, build_collectors
from trimtab.node.collectors.perf import CollectorUnsupported

__all__ = ["Collector", "CollectorManager", "CollectorUnsupported", "build_collectors"]

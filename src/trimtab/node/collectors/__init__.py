"""The metrics advisor: what the node and its pods use and suffer, each collector in its file with its own period."""

from trimtab.node.collectors.manager import Collector, CollectorManager, build_collectors
from trimtab.node.collectors.unsupported import CollectorUnsupported

__all__ = ["Collector", "CollectorManager", "CollectorUnsupported", "build_collectors"]

"""The metrics advisor: what the node and its pods use and suffer, each collector in its file with its own period."""

from trimtab.node.collectors.manager import Advisor, Collector, standard
from trimtab.node.collectors.unsupported import Unsupported

__all__ = ["Advisor", "Collector", "Unsupported", "standard"]

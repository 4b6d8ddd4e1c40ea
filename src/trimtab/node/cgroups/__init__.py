"""cgroups as the agent sees them: what there is to read and set, in which files, and where the kubelet puts pods."""

from trimtab.node.cgroups.hierarchy import Cgroup, Hierarchy, Vanished
from trimtab.node.cgroups.knobs import KNOBS, Amounts, Knob, Version
from trimtab.node.cgroups.layout import Driver, Layout, QosClass, container_id
from trimtab.node.cgroups.values import UNLIMITED

__all__ = [
    "KNOBS",
    "UNLIMITED",
    "Amounts",
    "Cgroup",
    "Driver",
    "Hierarchy",
    "Knob",
    "Layout",
    "QosClass",
    "Vanished",
    "Version",
    "container_id",
]

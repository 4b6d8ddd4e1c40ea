"""The cgroups of a node: readable and settable knobs, their files, and the kubelet's layout of pods."""

from trimtab.node.cgroups.hierarchy import Cgroup, CgroupNotFound, Hierarchy
from trimtab.node.cgroups.knobs import KNOBS, CgroupVersion, DeviceValues, Knob
from trimtab.node.cgroups.layout import CgroupDriver, CgroupLayout, QosClass, parse_container_id
from trimtab.node.cgroups.values import UNLIMITED

__all__ = [
    "KNOBS",
    "UNLIMITED",
    "Cgroup",
    "CgroupDriver",
    "CgroupLayout",
    "CgroupNotFound",
    "CgroupVersion",
    "DeviceValues",
    "Hierarchy",
    "Knob",
    "QosClass",
    "parse_container_id",
]

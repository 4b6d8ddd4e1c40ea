"""The kubelet's layout of pod and container cgroups, for both of its cgroup drivers.

    cgroupfs  kubepods/burstable/pod<uid>/<container>, with CRI-O crio-<container>
    systemd   kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<uid>.slice/
              cri-containerd-<container>.scope, in which crun creates another one, container

Guaranteed pods are directly below kubepods.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, Self

from trimtab.node.cgroups.hierarchy import Hierarchy
from trimtab.node.cgroups.knobs import CgroupVersion

_POD: Final = re.compile(
    r"^(?:[\w-]*-)?pod([0-9a-f]{8}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{12})(?:\.slice)?$"
)
_CONTAINER: Final = re.compile(r"^(?:[a-z-]+-)?([0-9a-f]{64})(?:\.scope)?$")
_SCOPES: Final = {"containerd": "cri-containerd", "cri-o": "crio", "docker": "docker"}


class CgroupDriver(StrEnum):
    """The kubelet's cgroup driver."""

    CGROUPFS = "cgroupfs"
    SYSTEMD = "systemd"


class QosClass(StrEnum):
    """Kubernetes' QoS classes."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


class PodCgroup(NamedTuple):
    """The cgroup of a pod."""

    uid: str
    qos: QosClass
    path: str


@dataclass(frozen=True, slots=True)
class CgroupLayout:
    """The cgroup paths of a node."""

    driver: CgroupDriver
    parent: str = ""
    """The parent of kubepods: the kubelet's --cgroup-root, or "kubelet" in kind."""

    @classmethod
    def detect(cls, hierarchy: Hierarchy, *, parent: str = "") -> Self:
        """Detect the driver by the existing cgroups; assume cgroupfs before the first pod."""
        parent = parent.strip("/")
        slices = any(name.endswith("kubepods.slice") for name in hierarchy.children(parent))
        return cls(CgroupDriver.SYSTEMD if slices else CgroupDriver.CGROUPFS, parent)

    def qos_path(self, qos: QosClass) -> str:
        """Return the cgroup of a QoS class; that of Guaranteed is the cgroup of all pods."""
        words = ["kubepods"] if qos is QosClass.GUARANTEED else ["kubepods", qos.value.lower()]
        return self._build_path(words)

    @property
    def pods_path(self) -> str:
        """The cgroup of all pods."""
        return self.qos_path(QosClass.GUARANTEED)

    def pod_path(self, uid: str, qos: QosClass) -> str:
        words = ["kubepods", *([] if qos is QosClass.GUARANTEED else [qos.value.lower()])]
        return self._build_path([*words, f"pod{uid}"])

    def container_path(self, pod: str, container_id: str) -> str:
        """Return the cgroup of a container in its pod, by the id of the kubelet (`containerd://…`)."""
        runtime, _, plain = container_id.rpartition("://")
        if self.driver is CgroupDriver.CGROUPFS:
            return f"{pod}/crio-{plain}" if runtime == "cri-o" else f"{pod}/{plain}"
        return f"{pod}/{_SCOPES.get(runtime, runtime)}-{plain}.scope"

    def find_inner_path(self, container: str, hierarchy: Hierarchy) -> str | None:
        """Return the cgroup that crun creates within a container's scope, with the same limits."""
        if self.driver is not CgroupDriver.SYSTEMD or hierarchy.version is not CgroupVersion.V2:
            return None
        inner = f"{container}/container"
        return inner if hierarchy.cgroup(inner).exists else None

    def find_pods(self, hierarchy: Hierarchy) -> list[PodCgroup]:
        """Return the pods that have a cgroup now."""
        found = []
        for qos in QosClass:
            tier = self.qos_path(qos)
            for name in hierarchy.children(tier):
                if match := _POD.match(name):
                    uid = match.group(1).replace("_", "-")
                    found.append(PodCgroup(uid, qos, f"{tier}/{name}"))
        return found

    def _build_path(self, words: list[str]) -> str:
        if self.driver is CgroupDriver.CGROUPFS:
            return "/".join([self.parent, *words]).strip("/")
        # A slice's name contains its parents: a-b.slice is in a.slice, so dashes in names become underscores.
        words = [word.replace("-", "_") for word in words]
        above = self.parent.rpartition("/")[2].removesuffix(".slice")
        stem = [above] if above and self.parent.endswith(".slice") else []
        slices = ["-".join([*stem, *words[: n + 1]]) + ".slice" for n in range(len(words))]
        return "/".join([self.parent, *slices]).strip("/")


def parse_container_id(name: str) -> str | None:
    """Return the container id in the name of a cgroup; None for other cgroups."""
    match = _CONTAINER.match(name)
    return match.group(1) if match else None

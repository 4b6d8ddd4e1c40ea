"""A tree of cgroup files below a folder, with the rules by which the kernel accepts, rounds and rejects writes.

Use it to test node strategies and whatever writes knobs, without root and with either cgroup version. Nothing runs
in these cgroups: a test sets the counters that it wants to be read.
"""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from trimtab.node.cgroups import CgroupDriver, CgroupLayout, CgroupVersion, Hierarchy, QosClass
from trimtab.node.cgroups.values import PAGE, UNLIMITED, format_cpus, parse_cpus, parse_number
from trimtab.node.executor import KnobFiles

_V1_UNLIMITED_BYTES = 9223372036854771712
_MIN_QUOTA_US = 1000
_CONTROLLERS = {
    CgroupVersion.V1: ("cpu", "cpuacct", "cpuset", "memory", "blkio"),
    CgroupVersion.V2: ("",),
}
_NEW_CGROUP: Mapping[CgroupVersion, Mapping[str, str]] = {
    CgroupVersion.V1: {
        "cpu/cpu.cfs_quota_us": "-1",
        "cpu/cpu.cfs_period_us": "100000",
        "cpu/cpu.cfs_burst_us": "0",
        "cpu/cpu.shares": "1024",
        "cpu/cpu.idle": "0",
        "cpu/tasks": "",
        "cpu/cpu.stat": "nr_periods 0\nnr_throttled 0\nthrottled_time 0",
        "cpuacct/cpuacct.usage": "0",
        "memory/memory.limit_in_bytes": str(_V1_UNLIMITED_BYTES),
        "memory/memory.usage_in_bytes": "0",
        "memory/memory.stat": "total_inactive_file 0",
        "blkio/blkio.throttle.read_bps_device": "",
        "blkio/blkio.throttle.write_bps_device": "",
        "blkio/blkio.throttle.read_iops_device": "",
        "blkio/blkio.throttle.write_iops_device": "",
    },
    CgroupVersion.V2: {
        "cpu.max": "max 100000",
        "cpu.max.burst": "0",
        "cpu.weight": "100",
        "cpu.idle": "0",
        "cpu.stat": "usage_usec 0\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0",
        "cpuset.cpus": "",
        "cpuset.mems": "",
        "memory.min": "0",
        "memory.low": "0",
        "memory.high": "max",
        "memory.max": "max",
        "memory.swap.max": "max",
        "memory.oom.group": "0",
        "memory.current": "0",
        "memory.stat": "inactive_file 0",
        "io.max": "",
        "io.weight": "default 100",
        "cgroup.threads": "",
    },
}


class FakeCgroupTree:
    """The cgroups of a node as the kubelet lays them out, in plain files below `root`.

    `hierarchy` and `layout` are what production code gets; `knob_files` writes by the kernel's rules.
    """

    def __init__(
        self, root: Path, version: CgroupVersion = CgroupVersion.V2, *, cpus: int = 4, parent: str = "node"
    ) -> None:
        self.cpus = frozenset(range(cpus))
        """The CPUs of the machine."""
        root.mkdir(parents=True, exist_ok=True)
        for controller in _CONTROLLERS[version]:
            (root / controller).mkdir(exist_ok=True)
        if version is CgroupVersion.V2:
            (root / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
        self.hierarchy = Hierarchy.detect(root)
        self.layout = CgroupLayout(CgroupDriver.CGROUPFS, parent)
        self.knob_files = _KernelKnobFiles(
            self.hierarchy, sysctls=root / "sysctl", resctrl=root / "resctrl", tree=self
        )
        for qos in QosClass:
            self.create(self.layout.qos_path(qos))

    @property
    def version(self) -> CgroupVersion:
        return self.hierarchy.version

    def pod(
        self, qos: QosClass = QosClass.BURSTABLE, *, uid: str | None = None, containers: int = 1
    ) -> tuple[str, list[str]]:
        """Create a pod; return its cgroup and those of its containers."""
        pod = self.layout.pod_path(uid or str(uuid.uuid4()), qos)
        made = [
            self.layout.container_path(pod, f"containerd://{uuid.uuid4().hex * 2}") for _ in range(containers)
        ]
        for path in (pod, *made):
            self.create(path)
        return pod, made

    def create(self, path: str) -> None:
        """Create a cgroup with its parents; in v1 it inherits its parent's CPUs, as the kubelet demands."""
        if "/" in path and not self._folder(path.rpartition("/")[0]).is_dir():
            self.create(path.rpartition("/")[0])
        if self._folder(path).is_dir():
            return
        for controller in _CONTROLLERS[self.version]:
            self.hierarchy.folder(path, controller).mkdir()
        for name, text in _NEW_CGROUP[self.version].items():
            controller, _, file = name.rpartition("/")
            (self.hierarchy.folder(path, controller) / file).write_text(f"{text}\n" if text else "")
        if self.version is CgroupVersion.V1:
            inherited = format_cpus(self._parent_cpus(path))
            (self._folder(path, "cpuset") / "cpuset.cpus").write_text(f"{inherited}\n")
            (self._folder(path, "cpuset") / "cpuset.mems").write_text("0\n")
        self._update_effective_cpus(path)

    def remove(self, path: str) -> None:
        """Remove a cgroup and its descendants."""
        for controller in _CONTROLLERS[self.version]:
            shutil.rmtree(self.hierarchy.folder(path, controller))

    def set_counter(self, path: str, file: str, text: str, *, controller: str = "cpu") -> None:
        """Set a file that the kernel counts in, such as `cpu.stat`."""
        target = self._folder(path, controller) / file
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)  # fails without its cgroup
        try:
            os.write(handle, f"{text}\n".encode())
        finally:
            os.close(handle)

    def write_line(self, path: Path, line: str) -> None:
        """Write a line to a file of the tree as the kernel would: raise OSError, or keep the rounded value."""
        if not path.exists():
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        cgroup = self._cgroup_of_file(path)
        rules: Mapping[str, Callable[[str, Path, str], str]] = {
            "cpu.cfs_quota_us": self._write_v1_quota,
            "cpu.cfs_burst_us": self._write_burst,
            "cpu.max": self._write_v2_quota,
            "cpu.max.burst": self._write_burst,
            "cpuset.cpus": self._write_cpus,
            "io.max": self._write_v2_devices,
        }
        if rule := rules.get(path.name):
            text = rule(cgroup, path, line)
        elif path.name.startswith("memory."):
            text = _round_memory(path.name, line)
        elif path.name.startswith("blkio.throttle."):
            text = _merge_v1_device(path.read_text(), line)
        else:
            text = line
        path.write_text(f"{text}\n" if text else "")
        if path.name == "cpuset.cpus":
            self._update_effective_cpus(cgroup)

    # CPU time

    def _write_v1_quota(self, cgroup: str, path: Path, line: str) -> str:
        quota = int(line)
        if quota >= 0:
            self._check_quota(cgroup, quota)
            # cgroup v1 rejects a child with more than its parent, and a parent with less than its child.
            parent = self._v1_quota(cgroup.rpartition("/")[0])
            if parent is not None and parent != UNLIMITED and quota > parent:
                raise _error(errno.EINVAL, path)
            for name in self.hierarchy.children(cgroup):
                child = self._v1_quota(f"{cgroup}/{name}")
                if child is not None and child > quota:
                    raise _error(errno.EINVAL, path)
        return str(max(quota, -1))

    def _write_v2_quota(self, cgroup: str, path: Path, line: str) -> str:
        words = line.split()
        period = words[1] if len(words) > 1 else path.read_text().split()[1]
        if words[0] != "max":
            self._check_quota(cgroup, int(words[0]))
        return f"{words[0]} {period}"

    def _check_quota(self, cgroup: str, quota: int) -> None:
        burst = self._folder(cgroup) / (
            "cpu.cfs_burst_us" if self.version is CgroupVersion.V1 else "cpu.max.burst"
        )
        if quota < _MIN_QUOTA_US or int(burst.read_text()) > quota:
            raise _error(errno.EINVAL, burst)

    def _write_burst(self, cgroup: str, path: Path, line: str) -> str:
        file = "cpu.cfs_quota_us" if self.version is CgroupVersion.V1 else "cpu.max"
        quota = parse_number((self._folder(cgroup) / file).read_text())
        if int(line) < 0 or (quota != UNLIMITED and int(line) > quota):
            raise _error(errno.EINVAL, path)
        return line

    def _v1_quota(self, cgroup: str) -> int | None:
        file = self._folder(cgroup) / "cpu.cfs_quota_us"
        return int(file.read_text()) if cgroup and file.exists() else None

    # CPU sets

    def _write_cpus(self, cgroup: str, path: Path, line: str) -> str:
        wanted = parse_cpus(line)
        if not wanted <= self.cpus:
            raise _error(errno.EINVAL, path)
        if self.version is CgroupVersion.V1:
            if not wanted <= self._parent_cpus(cgroup):
                raise _error(errno.EACCES, path)
            for name in self.hierarchy.children(cgroup):
                if not self._own_cpus(f"{cgroup}/{name}") <= wanted:
                    raise _error(errno.EBUSY, path)
        return format_cpus(wanted)

    def _own_cpus(self, cgroup: str) -> frozenset[int]:
        return parse_cpus((self._folder(cgroup, "cpuset") / "cpuset.cpus").read_text())

    def _parent_cpus(self, cgroup: str) -> frozenset[int]:
        """Return the CPUs that a cgroup may use by its parent: in v1 its set, in v2 its effective set."""
        parent = cgroup.rpartition("/")[0]
        if not parent:
            return self.cpus
        return self._own_cpus(parent) if self.version is CgroupVersion.V1 else self._effective_cpus(parent)

    def _effective_cpus(self, cgroup: str) -> frozenset[int]:
        allowed, own = self._parent_cpus(cgroup), self._own_cpus(cgroup)
        # A set that its parent no longer has any CPU of has no effect; v2 then uses the parent's.
        return (own & allowed) or allowed

    def _update_effective_cpus(self, cgroup: str) -> None:
        name = "cpuset.effective_cpus" if self.version is CgroupVersion.V1 else "cpuset.cpus.effective"
        for each in self.hierarchy.walk(cgroup):
            text = format_cpus(self._effective_cpus(each))
            (self._folder(each, "cpuset") / name).write_text(f"{text}\n")

    # Devices

    def _write_v2_devices(self, cgroup: str, path: Path, line: str) -> str:
        del cgroup
        limits = {
            device: dict(word.split("=") for word in words)
            for device, *words in map(str.split, path.read_text().splitlines())
        }
        device, *words = line.split()
        unlimited = dict.fromkeys(("rbps", "wbps", "riops", "wiops"), "max")
        limits[device] = {**unlimited, **limits.get(device, {}), **dict(word.split("=") for word in words)}
        return "\n".join(
            f"{device} " + " ".join(f"{key}={value}" for key, value in kept.items())
            for device, kept in limits.items()
            if set(kept.values()) != {"max"}
        )

    def _folder(self, path: str, controller: str = "cpu") -> Path:
        return self.hierarchy.folder(path, controller)

    def _cgroup_of_file(self, path: Path) -> str:
        inside = path.parent.relative_to(self.hierarchy.root)
        return "/".join(inside.parts[1:] if self.version is CgroupVersion.V1 else inside.parts)


@dataclass(frozen=True)
class _KernelKnobFiles(KnobFiles):
    """Knob files whose writes go through the rules of a fake tree."""

    tree: FakeCgroupTree | None = None

    def write_line(self, path: Path, line: str) -> None:
        if (
            self.tree is not None
            and path.is_relative_to(self.hierarchy.root)
            and not (path.is_relative_to(self.sysctls) or path.is_relative_to(self.resctrl))
        ):
            self.tree.write_line(path, line)
        else:
            super().write_line(path, line)


def _round_memory(name: str, line: str) -> str:
    if line == "max" or name == "memory.oom.group":
        return line
    if int(line) < 0:
        return str(_V1_UNLIMITED_BYTES)
    return str(int(line) // PAGE * PAGE)


def _merge_v1_device(text: str, line: str) -> str:
    device, value = line.split()
    kept = dict(each.split() for each in text.splitlines() if each)
    if int(value):
        kept[device] = value
    else:
        kept.pop(device, None)  # the kernel removes a throttle of 0
    return "\n".join(f"{name} {amount}" for name, amount in kept.items())


def _error(number: int, path: Path) -> OSError:
    return OSError(number, os.strerror(number), str(path))

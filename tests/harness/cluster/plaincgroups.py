"""Make a cgroup v1 tree of plain files, for whole rounds of the agent in simulated time.

Nothing enforces the written values, and nothing else happens in it: the caller sets the usage of pods. New cgroups take over
their parent's CPUs, as the kernel's do with `cgroup.clone_children`.
"""

import shutil
from pathlib import Path

from trimtab.node.cgroups import Hierarchy
from trimtab.node.cgroups.values import parse_cpus as cpus_in

UNLIMITED_BYTES = "9223372036854771712"


class PlainCgroups:
    """The tree; `expected` is what every file would hold without the agent."""

    def __init__(self, root: Path, *, cpus: int) -> None:
        self._root = root
        self._cpus = f"0-{cpus - 1}"
        self.expected: dict[Path, str] = {}
        for path in ("kubepods", "kubepods/besteffort", "kubepods/burstable"):
            self.make(path)
        self.hierarchy = Hierarchy.detect(root)

    def make(self, path: str, *, quota: int = -1) -> None:
        """Make a cgroup as the kubelet does."""
        inherited = self._file(path.rpartition("/")[0], "cpuset", "cpuset.cpus") if "/" in path else None
        self._write(path, "cpuset", "cpuset.cpus", self._cpus)
        if inherited is not None:
            self._file(path, "cpuset", "cpuset.cpus").write_text(inherited.read_text())
        self.follow(path)
        self._write(path, "cpu", "cpu.cfs_period_us", "100000")
        self._write(path, "cpu", "cpu.cfs_burst_us", "0")
        self._write(path, "cpu", "cpu.shares", "1024")
        self._write(path, "memory", "memory.limit_in_bytes", UNLIMITED_BYTES)
        self._file(path, "cpu", "tasks").write_text("")
        self.set_quota(path, quota)

    def remove(self, path: str) -> None:
        for controller in ("cpu", "cpuset", "memory"):
            shutil.rmtree(self._root / controller / path)
        self.expected = {file: text for file, text in self.expected.items() if f"/{path}/" not in str(file)}

    def set_quota(self, path: str, quota: int) -> None:
        """Write a quota as the kubelet does for a limit."""
        self._write(path, "cpu", "cpu.cfs_quota_us", str(quota))

    def follow(self, path: str) -> None:
        """Make the CPUs of a cgroup effective, which the kernel does at once."""
        cpus = self._file(path, "cpuset", "cpuset.cpus").read_text()
        self._file(path, "cpuset", "cpuset.effective_cpus").write_text(cpus)

    def cores(self, path: str) -> float:
        """Return the cores that a cgroup may use by its quota and its CPUs."""
        quota = int(self._file(path, "cpu", "cpu.cfs_quota_us").read_text())
        cpus = float(len(cpus_in(self._file(path, "cpuset", "cpuset.cpus").read_text())))
        return min(cpus, quota / 100_000) if quota >= 0 else cpus

    def differences(self) -> dict[str, tuple[str, str]]:
        """Return the files that hold something else than they would without the agent: what they should, and what they do."""
        found = {}
        for file, text in self.expected.items():
            held = file.read_text().strip()
            is_same = cpus_in(held) == cpus_in(text) if file.name == "cpuset.cpus" else held == text
            if not is_same:
                found[str(file.relative_to(self._root))] = (text, held)
        return found

    def _file(self, path: str, controller: str, name: str) -> Path:
        return self._root / controller / path / name

    def _write(self, path: str, controller: str, name: str, text: str) -> None:
        file = self._file(path, controller, name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
        self.expected[file] = text

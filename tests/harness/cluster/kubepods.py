"""Make real cgroups as the kubelet lays them out, below a parent of their own. Needs root.

So a test or a benchmark has as many pods as it likes, of either cgroup version, beside whatever else the machine runs.
Processes that run in them are ended with them.
"""

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from harness import UnavailableError
from trimtab.errors import TrimtabError
from trimtab.node.cgroups import CgroupDriver, CgroupLayout, CgroupVersion, Hierarchy, QosClass
from trimtab.node.executor.knob_files import KnobFiles

ROOT = Path("/sys/fs/cgroup")
CONTROLLERS = {CgroupVersion.V1: ("cpu", "cpuacct", "cpuset", "memory", "blkio"), CgroupVersion.V2: ("",)}
BURN = ("/bin/busybox", "sh", "-c", "while :; do :; done")


@dataclass
class Kubepods:
    """The cgroup of all pods; `make` one before use, and it is gone after the block."""

    hierarchy: Hierarchy
    layout: CgroupLayout
    _processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @classmethod
    @contextmanager
    def make(cls, *, driver: CgroupDriver = CgroupDriver.CGROUPFS) -> "Iterator[Kubepods]":
        if os.geteuid() != 0:
            raise UnavailableError("cgroups of our own need root")
        try:
            hierarchy = Hierarchy.detect(ROOT)
        except TrimtabError as error:
            raise UnavailableError(str(error)) from None
        parent = f"trimtab-{uuid.uuid4().hex[:8]}" + (".slice" if driver is CgroupDriver.SYSTEMD else "")
        made = cls(hierarchy, CgroupLayout(driver, parent))
        try:
            for qos in QosClass:
                made.create(made.layout.qos_path(qos))
            yield made
        finally:
            made._clear()

    def pod(
        self, qos: QosClass = QosClass.BURSTABLE, *, uid: str | None = None, containers: int = 1
    ) -> tuple[str, list[str]]:
        """A new pod: its cgroup, and those of its containers."""
        pod = self.layout.pod_path(uid or str(uuid.uuid4()), qos)
        self.create(pod)
        made = [
            self.layout.container_path(pod, f"containerd://{uuid.uuid4().hex * 2}") for _ in range(containers)
        ]
        for container in made:
            self.create(container)
        return pod, made

    @property
    def knob_files(self) -> KnobFiles:
        return KnobFiles(self.hierarchy)

    @property
    def cpus(self) -> frozenset[int]:
        """The CPUs of this machine that tests may use."""
        return frozenset(os.sched_getaffinity(0))

    def create(self, path: str) -> None:
        """Make a cgroup and what it lies in, with all controllers."""
        for controller in CONTROLLERS[self.hierarchy.version]:
            self._create(path, controller)

    def _create(self, path: str, controller: str) -> None:
        here = self.hierarchy.folder("", controller)
        for word in path.split("/"):
            if self.hierarchy.version is CgroupVersion.V2:
                # A parent's controllers are those that it hands on to its children.
                (here / "cgroup.subtree_control").write_text("+cpu +cpuset +memory +io +pids")
            elif controller == "cpuset":
                (here / "cgroup.clone_children").write_text("1")  # or a child has no CPU to run on
            here /= word
            here.mkdir(exist_ok=True)

    def run(self, path: str, command: Sequence[str] = BURN) -> subprocess.Popen[bytes]:
        """A process in a cgroup from its first instruction on."""
        files = [
            self.hierarchy.folder(path, controller) / "cgroup.procs"
            for controller in CONTROLLERS[self.hierarchy.version]
        ]
        into = "; ".join(f"echo $$ > {file}" for file in files)
        process = subprocess.Popen(["/bin/busybox", "sh", "-c", f'{into}; exec "$@"', "sh", *command])
        self._processes.append(process)
        deadline = time.monotonic() + 60
        while str(process.pid) not in files[-1].read_text().split() and time.monotonic() < deadline:
            time.sleep(0.005)
        return process

    def remove(self, path: str) -> None:
        """End what runs in a cgroup, and remove it with all that lies in it."""
        for controller in CONTROLLERS[self.hierarchy.version]:
            folder = self.hierarchy.folder(path, controller)
            inside = sorted((one for one in folder.rglob("*") if one.is_dir()), reverse=True)
            for each in [*inside, folder]:
                _remove(each)

    def _clear(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        self.remove(self.layout.parent)


def _remove(folder: Path) -> None:
    """A process that was killed keeps its cgroup for a moment more."""
    deadline = time.monotonic() + 60
    while folder.exists():
        with suppress(FileNotFoundError):
            for pid in (folder / "cgroup.procs").read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)

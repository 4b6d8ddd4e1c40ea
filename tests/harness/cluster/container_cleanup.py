"""Remove what containers leave on a machine when their runtime is gone.

The shim of each container outlives containerd, and mounts and cgroups outlive all. Only what belongs to one
folder is touched: shims that were started for its socket, mounts beneath it.
"""

import json
import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from harness.process import wait_for


def clear(folder: Path) -> None:
    """End the containers of the containerd that lives in this folder, and take the folder away."""
    socket = folder / "containerd.sock"
    shims = [pid for pid in _processes() if _is_shim_of(pid, socket)]
    for pid in shims:
        for process in (*_descendants(pid), pid):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
    wait_for(lambda: not any(_is_shim_of(pid, socket) for pid in shims), what="the end of the containers")
    _remove_cgroups()
    _unmount(folder)
    _remove_sockets(folder)
    shutil.rmtree(folder, ignore_errors=True)


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _is_shim_of(pid: int, socket: Path) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return command[0].endswith(b"/containerd-shim-runc-v2") and bytes(socket) in command


def _descendants(pid: int) -> list[int]:
    try:
        children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [process for child in children for process in (*_descendants(child), child)]


def _remove_cgroups() -> None:
    """Remove empty cgroups; the kernel keeps those that are still in use."""
    tops = [*Path("/sys/fs/cgroup").glob("*/kubepods"), *Path("/sys/fs/cgroup").glob("kubepods")]

    def all_removed() -> bool:
        for top in tops:
            for folder, _, _ in os.walk(top, topdown=False):
                with suppress(OSError):
                    Path(folder).rmdir()
        return not any(top.exists() for top in tops)

    with suppress(TimeoutError):  # a process leaves its cgroup a little after its end
        wait_for(all_removed, what="empty cgroups", timeout=5)


def _unmount(folder: Path) -> None:
    table = Path("/proc/self/mounts").read_text().splitlines()
    points = [Path(line.split()[1]) for line in table]
    for point in reversed([point for point in points if point.is_relative_to(folder)]):
        subprocess.run(["umount", "--lazy", point], check=False)


def _remove_sockets(folder: Path) -> None:
    """A shim listens in a folder that all containerds share, and says where."""
    for bootstrap in folder.glob("containerd-state/io.containerd.runtime.v2.task/*/*/bootstrap.json"):
        address = json.loads(bootstrap.read_text())["address"]
        Path(address.removeprefix("unix://")).unlink(missing_ok=True)

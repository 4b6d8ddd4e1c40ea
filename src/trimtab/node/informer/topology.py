"""The CPU topology of a node: cores, sockets, NUMA nodes and last-level caches."""

from __future__ import annotations

from pathlib import Path

from trimtab.node.cgroups.values import parse_cpus as cpus_in
from trimtab.node.model import Cpu


def read_topology(sys: Path) -> tuple[Cpu, ...]:
    """Return the online CPUs; unknown properties are 0."""
    folder = sys / "devices" / "system"
    numa = {
        cpu: int(node.name.removeprefix("node"))
        for node in (folder / "node").glob("node[0-9]*")
        for cpu in cpus_in((node / "cpulist").read_text())
    }
    isolated = cpus_in(_read_text(folder / "cpu" / "isolated"))
    return tuple(
        _read_cpu(folder / "cpu" / f"cpu{cpu}", cpu, numa.get(cpu, 0), isolated=cpu in isolated)
        for cpu in sorted(read_online_cpus(sys))
    )


def read_online_cpus(sys: Path) -> frozenset[int]:
    return cpus_in((sys / "devices" / "system" / "cpu" / "online").read_text())


def read_memory_total(proc: Path) -> int:
    """Return the kernel's total memory in bytes, without huge pages."""
    lines = map(str.split, (proc / "meminfo").read_text().splitlines())
    kib = {line[0]: int(line[1]) for line in lines if len(line) > 1}
    return (kib["MemTotal:"] - kib.get("Hugetlb:", 0)) << 10


def _read_cpu(folder: Path, cpu: int, numa: int, *, isolated: bool) -> Cpu:
    # Core numbers repeat in each socket; the first hyper-thread is a unique name of a core.
    siblings = _read_text(folder / "topology" / "thread_siblings_list")
    caches = sorted((folder / "cache").glob("index[0-9]*"), key=lambda cache: _read_number(cache / "level"))
    shared = _read_text(caches[-1] / "shared_cpu_list") if caches else ""
    return Cpu(
        id=cpu,
        core=min(cpus_in(siblings), default=cpu),
        socket=max(0, _read_number(folder / "topology" / "physical_package_id")),
        numa=numa,
        cache=min(cpus_in(shared), default=0),
        isolated=isolated,
    )


def _read_text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _read_number(path: Path) -> int:
    return int(_read_text(path) or 0)

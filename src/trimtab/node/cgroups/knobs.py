"""One registry of what can be read and set in a cgroup: our name, the file in v1 and in v2, how both spell a value.

Whoever reads or writes a cgroup names a knob from here and never a file. A knob that a version lacks has no file in
it. Rules that join several knobs or several cgroups (a child within its parent, a quota not below its burst) are not
here: they belong to whoever decides on values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, Generic, TypeVar

from trimtab.node.cgroups.values import (
    PAGE,
    UNLIMITED,
    cpu_list,
    cpus,
    devices,
    flat,
    number,
    shares_of,
    weight_of,
)

V = TypeVar("V")

Lines = tuple[str, ...]
"""What is written to a file, each by a write of its own: the kernel takes one device a write."""


class Version(IntEnum):
    """Which cgroups a node has."""

    V1 = 1
    V2 = 2


@dataclass(frozen=True)
class File(Generic[V]):
    """Where one version keeps a value, and how it spells it. `encode` is None where it can only be read."""

    name: str
    controller: str
    """Whose hierarchy it is in, in v1; which controller must be enabled, in v2."""
    decode: Callable[[str], V]
    encode: Callable[[V], Lines] | None = None


@dataclass(frozen=True, kw_only=True)
class Knob(Generic[V]):
    """Something that a cgroup has. Two are the same when they have the same name."""

    name: str
    v1: File[V] | None = field(compare=False)
    v2: File[V] | None = field(compare=False)
    problem: Callable[[V], str] = field(default=lambda _: "", compare=False)
    """Why a value is no good for it, whatever the rest of the node is like; empty when it is."""

    def file(self, version: Version) -> File[V] | None:
        return self.v1 if version is Version.V1 else self.v2

    def encode(self, value: V, version: Version) -> Lines:
        """What to write; ValueError for a value that is no good, or a knob that this version does not have."""
        if problem := self.problem(value):
            raise ValueError(f"{self.name}: {problem}")
        file = self.file(version)
        if file is None or file.encode is None:
            raise ValueError(f"{self.name}: cannot be written with cgroup v{version.value}")
        return file.encode(value)


def _both(name: str, controller: str, decode: Callable[[str], V], encode: Callable[[V], Lines]) -> Knob[V]:
    file = File(name, controller, decode, encode)
    return Knob(name=name, v1=file, v2=file)


def _said(value: int) -> Lines:
    return (str(value),)


def _said_max(value: int) -> Lines:
    return ("max" if value == UNLIMITED else str(value),)


def _pages(value: int) -> Lines:
    """The kernel rounds down to pages, and what is read back is to be what was written."""
    return _said_max(value if value == UNLIMITED else value // PAGE * PAGE)


def _listed(wanted: frozenset[int]) -> Lines:
    return (cpu_list(wanted),)


def _at_least(least: int, *, or_unlimited: bool = False) -> Callable[[int], str]:
    def problem(value: int) -> str:
        if value >= least or (or_unlimited and value == UNLIMITED):
            return ""
        return f"{value} is less than {least}"

    return problem


def _between(least: int, most: int) -> Callable[[int], str]:
    return lambda value: "" if least <= value <= most else f"{value} is not within {least} and {most}"


# CPU, in microseconds a period and in shares.

CPU_QUOTA: Final = Knob[int](
    name="cpu.quota",
    v1=File("cpu.cfs_quota_us", "cpu", number, _said),
    v2=File("cpu.max", "cpu", number, _said_max),  # the period, which follows, stays when it is not named
    problem=_at_least(1000, or_unlimited=True),
)
CPU_PERIOD: Final = Knob[int](
    name="cpu.period",
    v1=File("cpu.cfs_period_us", "cpu", number),
    v2=File("cpu.max", "cpu", lambda text: int(text.split()[1])),
)
CPU_BURST: Final = Knob[int](
    name="cpu.burst",
    v1=File("cpu.cfs_burst_us", "cpu", number, _said),
    v2=File("cpu.max.burst", "cpu", number, _said),
    problem=_at_least(0),
)
CPU_SHARES: Final = Knob[int](
    name="cpu.shares",
    v1=File("cpu.shares", "cpu", number, _said),
    v2=File("cpu.weight", "cpu", lambda text: shares_of(number(text)), lambda value: _said(weight_of(value))),
    problem=_between(2, 262144),
)
CPU_IDLE: Final = Knob[int](
    name="cpu.idle",
    v1=File("cpu.idle", "cpu", number, _said),
    v2=File("cpu.idle", "cpu", number, _said),
    problem=_between(0, 1),
)
CPUSET_CPUS: Final = _both("cpuset.cpus", "cpuset", cpus, _listed)
CPUSET_MEMS: Final = _both("cpuset.mems", "cpuset", cpus, _listed)
CPUSET_EFFECTIVE: Final = Knob[frozenset[int]](
    name="cpuset.effective",
    v1=File("cpuset.effective_cpus", "cpuset", cpus),
    v2=File("cpuset.cpus.effective", "cpuset", cpus),
)

# Memory, in bytes.


def _memory(file: str, *, v1: str | None = None) -> Knob[int]:
    return Knob(
        name=file,
        v1=File(v1, "memory", number, lambda value: _said(value if value < 0 else value // PAGE * PAGE))
        if v1
        else None,
        v2=File(file, "memory", number, _pages),
        problem=_at_least(0, or_unlimited=True),
    )


MEMORY_MIN: Final = _memory("memory.min")
MEMORY_LOW: Final = _memory("memory.low")
MEMORY_HIGH: Final = _memory("memory.high")
MEMORY_MAX: Final = _memory("memory.max", v1="memory.limit_in_bytes")
MEMORY_SWAP_MAX: Final = _memory("memory.swap.max")
MEMORY_OOM_GROUP: Final = Knob[int](
    name="memory.oom.group",
    v1=None,
    v2=File("memory.oom.group", "memory", number, _said),
    problem=_between(0, 1),
)

# Block devices: amounts by `major:minor`; a device that is not named has no limit.

Amounts = Mapping[str, int]


def _throttle(name: str, *, v1: str, key: str) -> Knob[Amounts]:
    def by_key(wanted: Amounts) -> Lines:
        return tuple(f"{device} {key}={_said_max(value)[0]}" for device, value in wanted.items())

    def by_file(wanted: Amounts) -> Lines:
        return tuple(
            f"{device} {max(value, 0)}" for device, value in wanted.items()
        )  # 0 takes a throttle off

    return Knob(
        name=name,
        v1=File(v1, "blkio", devices, by_file),
        v2=File("io.max", "io", lambda text: devices(text, key), by_key),
        problem=lambda wanted: next(filter(None, map(_at_least(1, or_unlimited=True), wanted.values())), ""),
    )


IO_READ_BPS: Final = _throttle("io.read.bps", v1="blkio.throttle.read_bps_device", key="rbps")
IO_WRITE_BPS: Final = _throttle("io.write.bps", v1="blkio.throttle.write_bps_device", key="wbps")
IO_READ_IOPS: Final = _throttle("io.read.iops", v1="blkio.throttle.read_iops_device", key="riops")
IO_WRITE_IOPS: Final = _throttle("io.write.iops", v1="blkio.throttle.write_iops_device", key="wiops")
IO_WEIGHT: Final = Knob[Amounts](
    name="io.weight",
    v1=File(
        "blkio.bfq.weight", "blkio", lambda text: {"default": number(text)}, lambda w: _said(w["default"])
    ),
    # Of single devices others may have said something else, which is left as it is.
    v2=File(
        "io.weight",
        "io",
        lambda text: {"default": devices(text)["default"]},
        lambda w: (f"default {w['default']}",),
    ),
    problem=lambda wanted: next(filter(None, map(_between(1, 10000), wanted.values())), ""),
)

# What the kernel counts; nobody writes these.

CPU_STAT: Final = Knob[dict[str, int]](
    name="cpu.stat", v1=File("cpu.stat", "cpu", flat), v2=File("cpu.stat", "cpu", flat)
)
CPU_USAGE: Final = Knob[int](
    name="cpu.usage",  # in nanoseconds
    v1=File("cpuacct.usage", "cpuacct", number),
    v2=File("cpu.stat", "cpu", lambda text: flat(text)["usage_usec"] * 1000),
)
MEMORY_CURRENT: Final = Knob[int](
    name="memory.current",
    v1=File("memory.usage_in_bytes", "memory", number),
    v2=File("memory.current", "memory", number),
)
MEMORY_STAT: Final = Knob[dict[str, int]](
    name="memory.stat", v1=File("memory.stat", "memory", flat), v2=File("memory.stat", "memory", flat)
)
CPU_PRESSURE: Final = Knob[str](name="cpu.pressure", v1=None, v2=File("cpu.pressure", "", str))
MEMORY_PRESSURE: Final = Knob[str](name="memory.pressure", v1=None, v2=File("memory.pressure", "", str))
IO_PRESSURE: Final = Knob[str](name="io.pressure", v1=None, v2=File("io.pressure", "", str))


def _threads(text: str) -> tuple[int, ...]:
    """Without those of a PID namespace that is not ours: all of them are 0, which to the kernel means whoever writes it."""
    return tuple(filter(None, map(int, text.split())))


THREADS: Final = Knob[tuple[int, ...]](
    name="cgroup.threads",
    v1=File("tasks", "cpu", _threads),
    v2=File("cgroup.threads", "", _threads),
)

KNOBS: Final[Mapping[str, Knob[Any]]] = {
    knob.name: knob for knob in list(globals().values()) if isinstance(knob, Knob)
}
"""All of them, by name: what a journal holds can be found again."""

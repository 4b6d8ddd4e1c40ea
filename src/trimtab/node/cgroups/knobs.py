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
    format_cpus,
    parse_cpus,
    parse_devices,
    parse_flat,
    parse_number,
    shares_to_weight,
    weight_to_shares,
)

V = TypeVar("V")

Lines = tuple[str, ...]
"""What is written to a file, each by a write of its own: the kernel takes one device a write."""


class CgroupVersion(IntEnum):
    """Which cgroups a node has."""

    V1 = 1
    V2 = 2


@dataclass(frozen=True)
class KnobFormat(Generic[V]):
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
    v1: KnobFormat[V] | None = field(compare=False)
    v2: KnobFormat[V] | None = field(compare=False)
    find_problem: Callable[[V], str] = field(default=lambda _: "", compare=False)
    """Why a value is no good for it, whatever the rest of the node is like; empty when it is."""

    def file(self, version: CgroupVersion) -> KnobFormat[V] | None:
        return self.v1 if version is CgroupVersion.V1 else self.v2

    def encode(self, value: V, version: CgroupVersion) -> Lines:
        """What to write; ValueError for a value that is no good, or a knob that this version does not have."""
        if problem := self.find_problem(value):
            raise ValueError(f"{self.name}: {problem}")
        file = self.file(version)
        if file is None or file.encode is None:
            raise ValueError(f"{self.name}: cannot be written with cgroup v{version.value}")
        return file.encode(value)


def _same_knob(
    name: str, controller: str, decode: Callable[[str], V], encode: Callable[[V], Lines]
) -> Knob[V]:
    file = KnobFormat(name, controller, decode, encode)
    return Knob(name=name, v1=file, v2=file)


def _encode_number(value: int) -> Lines:
    return (str(value),)


def _encode_limit(value: int) -> Lines:
    return ("max" if value == UNLIMITED else str(value),)


def _encode_pages(value: int) -> Lines:
    """The kernel rounds down to pages, and what is read back is to be what was written."""
    return _encode_limit(value if value == UNLIMITED else value // PAGE * PAGE)


def _encode_cpus(wanted: frozenset[int]) -> Lines:
    return (format_cpus(wanted),)


def _check_at_least(least: int, *, or_unlimited: bool = False) -> Callable[[int], str]:
    def problem(value: int) -> str:
        if value >= least or (or_unlimited and value == UNLIMITED):
            return ""
        return f"{value} is less than {least}"

    return problem


def _check_between(least: int, most: int) -> Callable[[int], str]:
    return lambda value: "" if least <= value <= most else f"{value} is not within {least} and {most}"


# CPU, in microseconds a period and in shares.

CPU_QUOTA: Final = Knob[int](
    name="cpu.quota",
    v1=KnobFormat("cpu.cfs_quota_us", "cpu", parse_number, _encode_number),
    v2=KnobFormat(
        "cpu.max", "cpu", parse_number, _encode_limit
    ),  # the period, which follows, stays when it is not named
    find_problem=_check_at_least(1000, or_unlimited=True),
)
CPU_PERIOD: Final = Knob[int](
    name="cpu.period",
    v1=KnobFormat("cpu.cfs_period_us", "cpu", parse_number),
    v2=KnobFormat("cpu.max", "cpu", lambda text: int(text.split()[1])),
)
CPU_BURST: Final = Knob[int](
    name="cpu.burst",
    v1=KnobFormat("cpu.cfs_burst_us", "cpu", parse_number, _encode_number),
    v2=KnobFormat("cpu.max.burst", "cpu", parse_number, _encode_number),
    find_problem=_check_at_least(0),
)
CPU_SHARES: Final = Knob[int](
    name="cpu.shares",
    v1=KnobFormat("cpu.shares", "cpu", parse_number, _encode_number),
    v2=KnobFormat(
        "cpu.weight",
        "cpu",
        lambda text: weight_to_shares(parse_number(text)),
        lambda value: _encode_number(shares_to_weight(value)),
    ),
    find_problem=_check_between(2, 262144),
)
CPU_IDLE: Final = Knob[int](
    name="cpu.idle",
    v1=KnobFormat("cpu.idle", "cpu", parse_number, _encode_number),
    v2=KnobFormat("cpu.idle", "cpu", parse_number, _encode_number),
    find_problem=_check_between(0, 1),
)
CPUSET_CPUS: Final = _same_knob("cpuset.cpus", "cpuset", parse_cpus, _encode_cpus)
CPUSET_MEMS: Final = _same_knob("cpuset.mems", "cpuset", parse_cpus, _encode_cpus)
CPUSET_EFFECTIVE: Final = Knob[frozenset[int]](
    name="cpuset.effective",
    v1=KnobFormat("cpuset.effective_cpus", "cpuset", parse_cpus),
    v2=KnobFormat("cpuset.cpus.effective", "cpuset", parse_cpus),
)

# Memory, in bytes.


def _memory_knob(file: str, *, v1: str | None = None) -> Knob[int]:
    return Knob(
        name=file,
        v1=KnobFormat(
            v1,
            "memory",
            parse_number,
            lambda value: _encode_number(value if value < 0 else value // PAGE * PAGE),
        )
        if v1
        else None,
        v2=KnobFormat(file, "memory", parse_number, _encode_pages),
        find_problem=_check_at_least(0, or_unlimited=True),
    )


MEMORY_MIN: Final = _memory_knob("memory.min")
MEMORY_LOW: Final = _memory_knob("memory.low")
MEMORY_HIGH: Final = _memory_knob("memory.high")
MEMORY_MAX: Final = _memory_knob("memory.max", v1="memory.limit_in_bytes")
MEMORY_SWAP_MAX: Final = _memory_knob("memory.swap.max")
MEMORY_OOM_GROUP: Final = Knob[int](
    name="memory.oom.group",
    v1=None,
    v2=KnobFormat("memory.oom.group", "memory", parse_number, _encode_number),
    find_problem=_check_between(0, 1),
)

# Block devices: amounts by `major:minor`; a device that is not named has no limit.

DeviceValues = Mapping[str, int]


def _throttle_knob(name: str, *, v1: str, key: str) -> Knob[DeviceValues]:
    def by_key(wanted: DeviceValues) -> Lines:
        return tuple(f"{device} {key}={_encode_limit(value)[0]}" for device, value in wanted.items())

    def by_file(wanted: DeviceValues) -> Lines:
        return tuple(
            f"{device} {max(value, 0)}" for device, value in wanted.items()
        )  # 0 takes a throttle off

    return Knob(
        name=name,
        v1=KnobFormat(v1, "blkio", parse_devices, by_file),
        v2=KnobFormat("io.max", "io", lambda text: parse_devices(text, key), by_key),
        find_problem=lambda wanted: next(
            filter(None, map(_check_at_least(1, or_unlimited=True), wanted.values())), ""
        ),
    )


IO_READ_BPS: Final = _throttle_knob("io.read.bps", v1="blkio.throttle.read_bps_device", key="rbps")
IO_WRITE_BPS: Final = _throttle_knob("io.write.bps", v1="blkio.throttle.write_bps_device", key="wbps")
IO_READ_IOPS: Final = _throttle_knob("io.read.iops", v1="blkio.throttle.read_iops_device", key="riops")
IO_WRITE_IOPS: Final = _throttle_knob("io.write.iops", v1="blkio.throttle.write_iops_device", key="wiops")
IO_WEIGHT: Final = Knob[DeviceValues](
    name="io.weight",
    v1=KnobFormat(
        "blkio.bfq.weight",
        "blkio",
        lambda text: {"default": parse_number(text)},
        lambda w: _encode_number(w["default"]),
    ),
    # Of single devices others may have said something else, which is left as it is.
    v2=KnobFormat(
        "io.weight",
        "io",
        lambda text: {"default": parse_devices(text)["default"]},
        lambda w: (f"default {w['default']}",),
    ),
    find_problem=lambda wanted: next(filter(None, map(_check_between(1, 10000), wanted.values())), ""),
)

# What the kernel counts; nobody writes these.

CPU_STAT: Final = Knob[dict[str, int]](
    name="cpu.stat",
    v1=KnobFormat("cpu.stat", "cpu", parse_flat),
    v2=KnobFormat("cpu.stat", "cpu", parse_flat),
)
CPU_USAGE: Final = Knob[int](
    name="cpu.usage",  # in nanoseconds
    v1=KnobFormat("cpuacct.usage", "cpuacct", parse_number),
    v2=KnobFormat("cpu.stat", "cpu", lambda text: parse_flat(text)["usage_usec"] * 1000),
)
MEMORY_CURRENT: Final = Knob[int](
    name="memory.current",
    v1=KnobFormat("memory.usage_in_bytes", "memory", parse_number),
    v2=KnobFormat("memory.current", "memory", parse_number),
)
MEMORY_STAT: Final = Knob[dict[str, int]](
    name="memory.stat",
    v1=KnobFormat("memory.stat", "memory", parse_flat),
    v2=KnobFormat("memory.stat", "memory", parse_flat),
)
CPU_PRESSURE: Final = Knob[str](name="cpu.pressure", v1=None, v2=KnobFormat("cpu.pressure", "", str))
MEMORY_PRESSURE: Final = Knob[str](name="memory.pressure", v1=None, v2=KnobFormat("memory.pressure", "", str))
IO_PRESSURE: Final = Knob[str](name="io.pressure", v1=None, v2=KnobFormat("io.pressure", "", str))


def _parse_threads(text: str) -> tuple[int, ...]:
    """Without those of a PID namespace that is not ours: all of them are 0, which to the kernel means whoever writes it."""
    return tuple(filter(None, map(int, text.split())))


THREADS: Final = Knob[tuple[int, ...]](
    name="cgroup.threads",
    v1=KnobFormat("tasks", "cpu", _parse_threads),
    v2=KnobFormat("cgroup.threads", "", _parse_threads),
)

KNOBS: Final[Mapping[str, Knob[Any]]] = {
    knob.name: knob for knob in list(globals().values()) if isinstance(knob, Knob)
}
"""All of them, by name: what a journal holds can be found again."""

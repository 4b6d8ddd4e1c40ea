"""The registry of cgroup knobs: their names, files and value formats in v1 and v2.

All code that reads or writes cgroups uses these knobs and never file names. A knob that a version does not
support has no file in it. Rules that involve several knobs or cgroups are not here but in the arbiter.
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
"""The lines for a file, one write each, because the kernel accepts one device per write."""


class CgroupVersion(IntEnum):
    """The cgroup version of a node."""

    V1 = 1
    V2 = 2


@dataclass(frozen=True)
class KnobFormat(Generic[V]):
    """The file and value format of a knob in one version; `encode` is None if it is read-only."""

    name: str
    controller: str
    """The v1 hierarchy of the file, and the controller that v2 must have enabled."""
    decode: Callable[[str], V]
    encode: Callable[[V], Lines] | None = None


@dataclass(frozen=True, kw_only=True)
class Knob(Generic[V]):
    """A property of a cgroup; knobs with the same name are equal."""

    name: str
    v1: KnobFormat[V] | None = field(compare=False)
    v2: KnobFormat[V] | None = field(compare=False)
    find_problem: Callable[[V], str] = field(default=lambda _: "", compare=False)
    """Return the reason why a value is never valid for this knob; empty if it is valid."""

    def file(self, version: CgroupVersion) -> KnobFormat[V] | None:
        return self.v1 if version is CgroupVersion.V1 else self.v2

    def encode(self, value: V, version: CgroupVersion) -> Lines:
        """Return the lines to write; raise ValueError for an invalid value or an unsupported knob."""
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
    """Round down to pages like the kernel, so that the same value is read back."""
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
    # The kernel rejects a quota of less than a millisecond.
    name="cpu.quota",
    v1=KnobFormat("cpu.cfs_quota_us", "cpu", parse_number, _encode_number),
    # The period, which follows in the file, is kept if it is not written.
    v2=KnobFormat("cpu.max", "cpu", parse_number, _encode_limit),
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
    # The kernel clips other shares without an error, so that they would never be read back as written.
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
            # Cgroup v1 takes -1 for no limit, which rounding to pages would turn into -4096.
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
        # 0 removes a throttle.
        return tuple(f"{device} {max(value, 0)}" for device, value in wanted.items())

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
    # Weights of single devices, which others may have set, are not changed.
    v2=KnobFormat(
        "io.weight",
        "io",
        lambda text: {"default": parse_devices(text)["default"]},
        lambda w: (f"default {w['default']}",),
    ),
    find_problem=lambda wanted: next(filter(None, map(_check_between(1, 10000), wanted.values())), ""),
)

# Read-only counters of the kernel.

CPU_STAT: Final = Knob[dict[str, int]](
    name="cpu.stat",
    v1=KnobFormat("cpu.stat", "cpu", parse_flat),
    v2=KnobFormat("cpu.stat", "cpu", parse_flat),
)
CPU_USAGE: Final = Knob[int](
    name="cpu.usage",  # in nanoseconds
    v1=KnobFormat("cpuacct.usage", "cpuacct", parse_number),
    # Version 2 counts microseconds, version 1 nanoseconds.
    v2=KnobFormat("cpu.stat", "cpu", lambda text: parse_flat(text)["usage_usec"] * 1000),
)
MEMORY_STAT: Final = Knob[dict[str, int]](
    name="memory.stat",
    v1=KnobFormat("memory.stat", "memory", parse_flat),
    v2=KnobFormat("memory.stat", "memory", parse_flat),
)
# Pressure files belong to no controller: they exist also where the parent enables none.
CPU_PRESSURE: Final = Knob[str](name="cpu.pressure", v1=None, v2=KnobFormat("cpu.pressure", "", str))
MEMORY_PRESSURE: Final = Knob[str](name="memory.pressure", v1=None, v2=KnobFormat("memory.pressure", "", str))
IO_PRESSURE: Final = Knob[str](name="io.pressure", v1=None, v2=KnobFormat("io.pressure", "", str))


def _parse_threads(text: str) -> tuple[int, ...]:
    """Return the threads without those of another PID namespace, which are all shown as 0."""
    return tuple(filter(None, map(int, text.split())))


THREADS: Final = Knob[tuple[int, ...]](
    name="cgroup.threads",
    v1=KnobFormat("tasks", "cpu", _parse_threads),
    v2=KnobFormat("cgroup.threads", "", _parse_threads),
)

KNOBS: Final[Mapping[str, Knob[Any]]] = {
    knob.name: knob for knob in list(globals().values()) if isinstance(knob, Knob)
}
"""All knobs by name, to resolve the entries of a journal."""

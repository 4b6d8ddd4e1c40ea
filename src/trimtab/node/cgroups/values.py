"""Parse and format knob values: numbers, CPU sets, and amounts per device.

-1 means unlimited, as in cgroup v1; v2 writes `max`. CPU weights are in v1's shares, which Kubernetes derives
from requests; v2's weights are coarser, so a value may not read back as the same shares but always encodes to
the same text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

UNLIMITED: Final = -1
PAGE: Final = 4096
_V1_UNLIMITED: Final = 1 << 62
"""The bytes from which cgroup v1 means unlimited; it shows a number slightly below 2^63."""


def parse_number(text: str) -> int:
    """Return the number in a file, or the first of several."""
    return parse_amount(text.split(None, 1)[0])


def parse_amount(word: str) -> int:
    if word == "max":
        return UNLIMITED
    value = int(word)
    return UNLIMITED if value < 0 or value >= _V1_UNLIMITED else value


def shares_to_weight(shares: int) -> int:
    """Convert v1 shares to a v2 weight like the kubelet."""
    return 1 + ((shares - 2) * 9999) // 262142


def weight_to_shares(weight: int) -> int:
    """Return the fewest shares that give this weight."""
    return 2 + -(-(weight - 1) * 262142 // 9999)


def parse_cpus(text: str) -> frozenset[int]:
    """Parse a CPU list such as `0-2,4`."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def format_cpus(wanted: Iterable[int]) -> str:
    """Format CPUs as the kernel does: `0-2,4`."""
    runs: list[list[int]] = []
    for cpu in sorted(wanted):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def parse_flat(text: str) -> dict[str, int]:
    """Parse lines `key number`, such as cpu.stat and memory.stat."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}


def parse_devices(text: str, key: str | None = None) -> Mapping[str, int]:
    """Parse amounts per device: lines `8:0 100`, or one `key` of `8:0 rbps=100 wbps=max`."""
    found = {}
    for line in text.splitlines():
        device, *words = line.split()
        for word in words:
            name, _, value = word.rpartition("=")
            if name == (key or "") and (found_amount := parse_amount(value)) != UNLIMITED:
                found[device] = found_amount
    return MappingProxyType(found)

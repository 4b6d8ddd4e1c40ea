"""How the kernel spells what a knob holds, and how we do: numbers, sets of CPUs, amounts a device.

We say -1 where there is no limit, as cgroup v1 does; v2 says `max`. CPU weights are in v1's shares, which is what
Kubernetes makes of a request; v2's weights are coarser, so a value that was written need not read back as the same
shares, but always encodes to the same text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

UNLIMITED: Final = -1
PAGE: Final = 4096
_V1_UNLIMITED: Final = 1 << 62
"""cgroup v1 shows a huge number of bytes, a little under 2^63, where memory has no limit."""


def parse_number(text: str) -> int:
    """The number of a file that holds one, or the first of several."""
    return parse_amount(text.split(None, 1)[0])


def parse_amount(word: str) -> int:
    if word == "max":
        return UNLIMITED
    value = int(word)
    return UNLIMITED if value < 0 or value >= _V1_UNLIMITED else value


def shares_to_weight(shares: int) -> int:
    """v2's weight for v1's shares, as the kubelet has it."""
    return 1 + ((shares - 2) * 9999) // 262142


def weight_to_shares(weight: int) -> int:
    """The fewest shares that give this weight."""
    return 2 + -(-(weight - 1) * 262142 // 9999)


def parse_cpus(text: str) -> frozenset[int]:
    """The CPUs of a list such as `0-2,4`."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def format_cpus(wanted: Iterable[int]) -> str:
    """CPUs as the kernel lists them: `0-2,4`."""
    runs: list[list[int]] = []
    for cpu in sorted(wanted):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def parse_flat(text: str) -> dict[str, int]:
    """A file of lines `key number`, such as cpu.stat and memory.stat."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2}


def parse_devices(text: str, key: str | None = None) -> Mapping[str, int]:
    """Amounts a device: lines `8:0 100`, or `8:0 rbps=100 wbps=max` of which one `key` is looked at."""
    found = {}
    for line in text.splitlines():
        device, *words = line.split()
        for word in words:
            name, _, value = word.rpartition("=")
            if name == (key or "") and (found_amount := parse_amount(value)) != UNLIMITED:
                found[device] = found_amount
    return MappingProxyType(found)

"""Knobs of the machine rather than of a cgroup: sysctls, and the classes of resctrl.

They are knobs like those of `cgroups`, the same in both versions, so that wishes, journal and executor treat all alike;
where their files lie is the affair of the executor's `surface`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from trimtab.node.cgroups import KNOBS, Knob
from trimtab.node.cgroups.knobs import KnobFormat, Lines

V = TypeVar("V")

SYSCTL: Final = "sysctl"
RESCTRL: Final = "resctrl"


def _host_knob(
    name: str, *, where: str, file: str, decode: Callable[[str], V], encode: Callable[[V], Lines]
) -> Knob[V]:
    there = KnobFormat(file, where, decode, encode)
    return Knob(name=name, v1=there, v2=there)


def _sysctl_knob(name: str) -> Knob[int]:
    return _host_knob(
        name, where=SYSCTL, file=name.replace(".", "/"), decode=int, encode=lambda value: (str(value),)
    )


def _parse_schemata(text: str) -> Mapping[str, int]:
    """`L3:0=fff;1=fff` and `MB:0=100` as amounts by `L3:0` and so on: masks are hexadecimal, bandwidth is not.

    What else a processor shares out, such as its second-level cache, is left as it is.
    """
    found = {}
    for line in text.splitlines():
        resource, _, domains = line.strip().partition(":")
        for domain in filter(None, domains.split(";") if resource in {"L3", "MB"} else ()):
            number, _, amount = domain.partition("=")
            found[f"{resource}:{number}"] = int(amount, 10 if resource == "MB" else 16)
    return found


def _format_schemata(shares: Mapping[str, int]) -> Lines:
    return tuple(
        f"{key}={amount}" if key.startswith("MB:") else f"{key}={amount:x}"
        for key, amount in sorted(shares.items())
    )


MIN_FREE_KBYTES: Final = _sysctl_knob("vm.min_free_kbytes")
WATERMARK_SCALE_FACTOR: Final = _sysctl_knob("vm.watermark_scale_factor")
CACHE_SHARES: Final = _host_knob(
    "resctrl.schemata", where=RESCTRL, file="schemata", decode=_parse_schemata, encode=_format_schemata
)
"""What a class may use: masks of ways by `L3:<cache>`, bandwidth by `MB:<cache>`, in percent or a processor's own unit."""

ALL_KNOBS: Final[Mapping[str, Knob[Any]]] = {
    **KNOBS,
    **{knob.name: knob for knob in (MIN_FREE_KBYTES, WATERMARK_SCALE_FACTOR, CACHE_SHARES)},
}
"""Every knob that a wish may be for, by name."""

"""Knobs of the host rather than of a cgroup: sysctls and resctrl groups.

They are the same in both cgroup versions, so that requests, journal and executor treat all knobs alike;
`executor.knob_files` finds their files.
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
    knob_format = KnobFormat(file, where, decode, encode)
    return Knob(name=name, v1=knob_format, v2=knob_format)


def _sysctl_knob(name: str) -> Knob[int]:
    return _host_knob(
        name, where=SYSCTL, file=name.replace(".", "/"), decode=int, encode=lambda value: (str(value),)
    )


def _parse_schemata(text: str) -> Mapping[str, int]:
    """Parse `L3:0=fff;1=fff` and `MB:0=100` into amounts by `L3:0` and so on; masks are hexadecimal.

    Other resources, such as the second-level cache, are ignored.
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
"""The share of a resctrl group: way masks by `L3:<cache>`, bandwidth by `MB:<cache>`."""

ALL_KNOBS: Final[Mapping[str, Knob[Any]]] = {
    **KNOBS,
    **{knob.name: knob for knob in (MIN_FREE_KBYTES, WATERMARK_SCALE_FACTOR, CACHE_SHARES)},
}
"""Every knob that can be requested, by name."""

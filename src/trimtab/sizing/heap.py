"""Heaps that a process bounds by itself: told by its arguments and environment, or seen in its memory.

The Java, Node, Go and .NET runtimes each have their ways to say how far a heap may grow. Left out: runtimes that
follow the container's limit without being told to; what they do shows in their memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from trimtab.sizing.evidence import Heap
from trimtab.sizing.recommendation import MIB

# As many digits as memory can have: what a pod says must not become a number that cannot be reckoned with.
_JAVA_SIZE = re.compile(r"(?:^|\s)(-Xmx|-XX:MaxHeapSize=)(\d{1,18})([kKmMgGtT]?)(?=\s|$)")
_JAVA_SHARE = re.compile(r"(?:^|\s)-XX:MaxRAMPercentage=(\d{1,3}(?:\.\d+)?)(?=\s|$)")
_NODE_SIZE = re.compile(r"(?:^|\s)--max[-_]old[-_]space[-_]size[= ](\d{1,18})(?=\s|$)")
_GO_SIZE = re.compile(r"(\d{1,18})(B|KiB|MiB|GiB|TiB)?")
_HEXADECIMAL = re.compile(r"(?:0x)?[0-9a-fA-F]{1,16}")

_JAVA_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "JAVA_OPTS", "CATALINA_OPTS")
_POWER = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_GO_POWER = {None: 0, "B": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}


def heap(args: Iterable[str], env: Mapping[str, str], memory_limit: int | None) -> Heap | None:
    """How far the heap of a container with this command line and environment may grow; None: nothing says so."""
    said = [("args", " ".join(args))]
    said += [(name, env[name]) for name in (*_JAVA_VARIABLES, "NODE_OPTIONS") if name in env]
    found = [heap for where, text in said if (heap := _in_options(text, where, memory_limit)) is not None]
    found += _in_variables(env)
    return max(found, key=lambda heap: heap.most, default=None)


def _in_options(text: str, where: str, memory_limit: int | None) -> Heap | None:
    # The last of several is the one that counts, for Java and for Node.
    if sizes := _JAVA_SIZE.findall(text):
        flag, number, suffix = sizes[-1]
        return Heap(int(number) << _POWER[suffix.lower()], f"{flag.rstrip('=')} in {where}")
    if (shares := _JAVA_SHARE.findall(text)) and memory_limit is not None:
        return Heap(int(memory_limit * float(shares[-1]) / 100), f"-XX:MaxRAMPercentage in {where}")
    if sizes := _NODE_SIZE.findall(text):
        return Heap(int(sizes[-1]) * MIB, f"--max-old-space-size in {where}")
    return None


def _in_variables(env: Mapping[str, str]) -> list[Heap]:
    found = [
        Heap(int(env[name], 16), name)
        for name in ("DOTNET_GCHeapHardLimit", "COMPlus_GCHeapHardLimit")
        if _HEXADECIMAL.fullmatch(env.get(name, ""))
    ]
    if size := _GO_SIZE.fullmatch(env.get("GOMEMLIMIT", "")):
        found.append(Heap(int(size[1]) << _GO_POWER[size[2]], "GOMEMLIMIT"))
    return found


def is_sawtooth(memory: Sequence[float]) -> bool:
    """Whether memory climbs step by step and falls at once, again and again, as under a garbage collector.

    At least three falls of a tenth of the peak, with at least twice as many climbing steps as falling ones.
    """
    if len(memory) < 12:
        return False
    large = 0.1 * max(memory)
    steps = [after - before for before, after in pairwise(memory)]
    falls = sum(step <= -large for step in steps)
    climbing = sum(step > 0 for step in steps)
    falling = sum(step < 0 for step in steps)
    return falls >= 3 and climbing >= 2 * falling

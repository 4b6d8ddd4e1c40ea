"""Heaps that a process bounds by itself: found in its arguments and environment.

The Java, Node, Go and .NET runtimes each have settings for the largest heap. A bound that is a share of the
container's memory is fixed when the process starts: a resize in place does not move it.

Every variable is read, whatever its name, because each product's start script has its own (`KAFKA_HEAP_OPTS`,
`ES_JAVA_OPTS`). Runtimes that follow the container's limit without a setting are not detected.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from trimtab.api.quantity import MIB
from trimtab.kube.kinds.heap_flags import JAVA_COMMAND, SIZE_VARIABLE
from trimtab.sizing.evidence import Heap

# At most the digits that memory can have: a tenant must not be able to write a number too large to compute
# with.
_JAVA_SIZE = re.compile(r"(-Xmx|-XX:MaxHeapSize=)(\d{1,18})([kKmMgGtT]?)(?![\w.])")
_JAVA_MEMORY = re.compile(r"-XX:MaxRAM=(\d{1,18})([kKmMgGtT]?)(?![\w.])")
_JAVA_DIRECT = re.compile(r"-XX:MaxDirectMemorySize=(\d{1,18})([kKmMgGtT]?)(?![\w.])")
_JAVA_SHARE = re.compile(r"-XX:MaxRAMPercentage=(\d{1,3}(?:\.\d+)?)(?![\w.])")
_JAVA_SMALL_SHARE = re.compile(r"-XX:MinRAMPercentage=(\d{1,3}(?:\.\d+)?)(?![\w.])")
_JAVA_FRACTION = re.compile(r"-XX:MaxRAMFraction=([1-9]\d{0,8})(?![\w.])")
_JAVA_ANY_BOUND = re.compile(r"-Xmx|-XX:MaxHeapSize=|-XX:MaxRAM\w*=")
_NODE_SIZE = re.compile(r"--max[-_]old[-_]space[-_]size[= ](\d{1,18})(?![\w.])")
_NODE_SHARE = re.compile(r"--max[-_]old[-_]space[-_]size[-_]percentage[= ](\d{1,3}(?:\.\d+)?)(?![\w.])")
_GO_SIZE = re.compile(r"(\d{1,18})(B|KiB|MiB|GiB|TiB)?")
_SCRIPT_SIZE = re.compile(r"(\d{1,18})([kKmMgGtT]?)(?:i?[bB])?")
# .NET reads these settings as hexadecimal: read as decimal, a bound would look much smaller than it is.
_HEXADECIMAL = re.compile(r"(?:0x)?[0-9a-fA-F]{1,16}")
_PERCENT = re.compile(r"\d{1,3}")

_ARGS = "args"
_POWER = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_GO_POWER = {None: 0, "B": 0, "KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}

_JAVA_DEFAULT_SHARE = 25.0
_JAVA_SMALL_DEFAULT_SHARE = 50.0
_JAVA_SMALL = 128 * MIB
"""The heap up to which a JVM takes MinRAMPercentage of the memory."""

V = TypeVar("V", int, float)

TextsBySource = Mapping[str, str]
"""The command line and each variable, by `args` and the variable's name."""


def detect_heap(args: Iterable[str], env: Mapping[str, str], memory_limit: int | None) -> Heap | None:
    """Return how far the heap of a container with this command line and environment may grow; None if no
    setting bounds it.

    `memory_limit` is the limit that the container had when its process started.
    """
    texts: TextsBySource = {_ARGS: " ".join(args), **env}
    found = (
        _java_heap(texts, memory_limit),
        _node_heap(texts, memory_limit),
        *_variable_heaps(env, memory_limit),
    )
    return max((each for each in found if each is not None), key=lambda each: each.max_bytes, default=None)


# Java


def _java_heap(texts: TextsBySource, memory_limit: int | None) -> Heap | None:
    bound = _java_size(texts) or _java_share(texts, memory_limit)
    direct = _effective_java_value(texts, lambda text: _last_amount(_JAVA_DIRECT, text))
    if bound is None or direct is None:
        return bound
    # Direct buffers lie outside the heap: brokers such as Pulsar and BookKeeper fill both.
    return Heap(bound.max_bytes + direct[0], f"{bound.source} and -XX:MaxDirectMemorySize in {direct[1]}")


def _java_size(texts: TextsBySource) -> Heap | None:
    def size(text: str) -> int | None:
        # The last flag counts, as in the JVM: images often append to the defaults of their base image.
        sizes = _JAVA_SIZE.findall(text)
        return int(sizes[-1][1]) << _POWER[sizes[-1][2].lower()] if sizes else None

    decision = _effective_java_value(texts, size)
    if decision is None:
        return None
    most, where = decision
    flag = _JAVA_SIZE.findall(texts[where])[-1][0]
    return Heap(most, f"{flag.rstrip('=')} in {where}")


def _java_share(texts: TextsBySource, memory_limit: int | None) -> Heap | None:
    """Compute the heap of a JVM without a heap size: a share of MaxRAM, or of the container's memory."""
    ram = _effective_java_value(texts, lambda text: _last_amount(_JAVA_MEMORY, text))
    memory = memory_limit if ram is None else ram[0]
    if memory is None:
        return None
    share = _effective_java_value(texts, _java_percentage)
    small = _effective_java_value(texts, lambda text: _last_number(_JAVA_SMALL_SHARE, text))
    if share is not None:
        source = f"-XX:MaxRAMPercentage in {share[1]}"
    elif ram is not None:
        source = f"-XX:MaxRAM in {ram[1]}"
    elif small is not None:
        source = f"-XX:MinRAMPercentage in {small[1]}"
    # A flag that cannot be read, such as one with a shell variable, bounds the heap by an unknown amount.
    elif JAVA_COMMAND.search(texts[_ARGS]) and not any(map(_JAVA_ANY_BOUND.search, texts.values())):
        source = "the JVM's default share of the memory"
    else:
        return None
    large_heap = memory * (share[0] if share else _JAVA_DEFAULT_SHARE) / 100
    small_heap = memory * (small[0] if small else _JAVA_SMALL_DEFAULT_SHARE) / 100
    # A JVM with little memory takes the larger share, MinRAMPercentage, which despite its name is not a lower
    # bound.
    return Heap(int(max(large_heap, min(small_heap, _JAVA_SMALL))), source)


def _java_percentage(text: str) -> float | None:
    percent = _last_number(_JAVA_SHARE, text)
    if percent is not None:
        return percent
    fraction = _last_number(_JAVA_FRACTION, text)
    return None if fraction is None else 100 / fraction


def _effective_java_value(texts: TextsBySource, read: Callable[[str], V | None]) -> tuple[V, str] | None:
    """Return the value that a JVM uses, and its source.

    `_JAVA_OPTIONS` is read last and overrides everything; the command line overrides `JDK_JAVA_OPTIONS`, and
    that `JAVA_TOOL_OPTIONS`. It is unknown whether and in which order a start script reads the other
    variables: the largest counts.
    """
    found = {where: value for where, text in texts.items() if (value := read(text)) is not None}
    if "_JAVA_OPTIONS" in found:
        return found["_JAVA_OPTIONS"], "_JAVA_OPTIONS"
    overridden: tuple[str, ...] = ()
    if _ARGS in found:
        overridden = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
    elif "JDK_JAVA_OPTIONS" in found:
        overridden = ("JAVA_TOOL_OPTIONS",)
    where = max((each for each in found if each not in overridden), key=found.__getitem__, default=None)
    return None if where is None else (found[where], where)


# Others


def _node_heap(texts: TextsBySource, memory_limit: int | None) -> Heap | None:
    found = []
    for where, text in texts.items():
        megabytes, percent = _last_number(_NODE_SIZE, text), _last_number(_NODE_SHARE, text)
        if megabytes is not None:
            found.append(Heap(int(megabytes) * MIB, f"--max-old-space-size in {where}"))
        elif percent is not None and memory_limit is not None:
            most = int(memory_limit * percent / 100)
            found.append(Heap(most, f"--max-old-space-size-percentage in {where}"))
        if found and where == _ARGS:
            break  # the command line overrides NODE_OPTIONS
    return max(found, key=lambda each: each.max_bytes, default=None)


def _variable_heaps(env: Mapping[str, str], memory_limit: int | None) -> list[Heap]:
    """Read the variables whose whole value is the bound."""
    found = [
        Heap(int(env[name], 16), name)
        for name in ("DOTNET_GCHeapHardLimit", "COMPlus_GCHeapHardLimit")
        if _HEXADECIMAL.fullmatch(env.get(name, ""))
    ]
    if size := _GO_SIZE.fullmatch(env.get("GOMEMLIMIT", "")):
        found.append(Heap(int(size[1]) << _GO_POWER[size[2]], "GOMEMLIMIT"))
    for name, value in env.items():
        if SIZE_VARIABLE.fullmatch(name) and (size := _SCRIPT_SIZE.fullmatch(value)):
            most = _script_size(int(size[1]), size[2].lower())
            if most:
                found.append(Heap(most, name))
    if memory_limit is not None:
        found += [Heap(int(memory_limit * share), name) for name, share in _variable_shares(env)]
    return found


def _script_size(number: int, suffix: str) -> int:
    """Convert a size for a start script; a small number without a unit is megabytes (`ZK_SERVER_HEAP=1000`)."""
    if suffix:
        return number << _POWER[suffix]
    if number < 64:
        return 0  # No JVM runs in so few megabytes: the number means something else.
    return number * MIB if number < MIB else number


def _variable_shares(env: Mapping[str, str]) -> Iterable[tuple[str, float]]:
    for name in ("JAVA_MAX_MEM_RATIO", "STRIMZI_DYNAMIC_HEAP_PERCENTAGE"):
        if _PERCENT.fullmatch(env.get(name, "")) and int(env[name]):  # 0 turns it off
            yield name, int(env[name]) / 100
    for name in ("DOTNET_GCHeapHardLimitPercent", "COMPlus_GCHeapHardLimitPercent"):
        if _HEXADECIMAL.fullmatch(env.get(name, "")):  # .NET reads all its settings as hexadecimal
            yield name, min(int(env[name], 16), 100) / 100


def _last_number(pattern: re.Pattern[str], text: str) -> float | None:
    found = pattern.findall(text)
    return float(found[-1]) if found else None


def _last_amount(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.findall(text)
    return int(found[-1][0]) << _POWER[found[-1][1].lower()] if found else None

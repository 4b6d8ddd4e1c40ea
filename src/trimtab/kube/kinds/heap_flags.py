"""Heap settings in a pod template: the words of command lines and environment variables that bound a container's
heap.

Only these words are kept, and for most workloads none: command lines are long, and environments hold secrets.
`sizing.guards.heap` interprets the words. Values from a ConfigMap, a Secret or an `envFrom` are not read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from trimtab.kube.cache.interning import InternTable
from trimtab.kube.cache.projection import Labels

# Flags may occur anywhere in a word: scripts take them as `-J-Xmx2g`, `--jvm-options=-Xmx2g` or in quotes.
_FLAGS = re.compile(
    r"-Xmx[^\s\"',;]+"
    r"|-XX:(?:MaxHeapSize|MaxRAM|MaxRAMPercentage|MinRAMPercentage|MaxRAMFraction|MaxDirectMemorySize)=[^\s\"',;]+"
    r"|--max[-_]old[-_]space[-_]size(?:[-_]percentage)?[= ][^\s\"',;]+"
)
JAVA_COMMAND = re.compile(r"(?<![\w.=-])java(?=\s|$)")
"""The command that starts a JVM: without any flag, its heap is the default share of the memory."""
_REFERENCE = re.compile(r"\$(?:\(([\w.-]+)\)|\{(\w+)\}|(\w+))")
RUNTIME_VARIABLES = frozenset(
    {
        "GOMEMLIMIT",
        "DOTNET_GCHeapHardLimit",
        "COMPlus_GCHeapHardLimit",
        "DOTNET_GCHeapHardLimitPercent",
        "COMPlus_GCHeapHardLimitPercent",
        "JAVA_MAX_MEM_RATIO",
        "STRIMZI_DYNAMIC_HEAP_PERCENTAGE",
    }
)
"""Variables whose whole value bounds a heap."""
SIZE_VARIABLE = re.compile(
    r"(?i)(?!.*(?:min|init|new|young|xms|dump|percent|ratio))(?:.*heap.*|.*xmx.*|spark_\w+_memory)"
)
"""The names of variables that give a start script the size of a heap, such as Cassandra's `MAX_HEAP_SIZE`."""
_AMOUNT = re.compile(r"\d{1,18}[kKmMgGtT]?(?:i?[bB])?")
MAX_EXPANSION = 1 << 20
"""The characters that references in a template may add; Linux starts no program with an argument of an eighth of that."""
_HEAP_SETTING = re.compile(
    rb"(?i)-Xmx|MaxHeapSize|MaxRAM|MinRAM|MaxDirectMemory|[-_]old[-_]space[-_]size|GOMEMLIMIT|heap|xmx|\bjava\b"
    rb"|JAVA_MAX_MEM_RATIO|spark_\w+_memory"
)


class HeapFlags(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The words about one container's heap: those of its command line, and those of each variable."""

    container: str
    args: str
    env: Labels


class _Variable(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    value: str = ""


class _Container(msgspec.Struct, frozen=True, gc=False):
    name: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[_Variable, ...] = ()


class _Spec(msgspec.Struct, rename="camel", frozen=True, gc=False):
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()


class TemplateWire(msgspec.Struct, frozen=True, gc=False):
    """The parts of a pod template that may contain heap settings."""

    spec: _Spec = _Spec()


_TEMPLATES = msgspec.json.Decoder(TemplateWire)


def parse_heap_flags(template: bytes, intern: InternTable) -> tuple[HeapFlags, ...]:
    """Find the heap settings in a template, given as JSON; containers without any are left out."""
    if _HEAP_SETTING.search(template) is None:
        return ()
    try:
        spec = _TEMPLATES.decode(template).spec
    except msgspec.ValidationError:  # a custom kind may have another structure
        return ()
    expander = _Expander()
    found = [_parse_container(each, expander) for each in (*spec.containers, *spec.init_containers)]
    hints: tuple[HeapFlags, ...] = intern[tuple(intern[hint] for hint in found if hint.args or hint.env)]
    return hints


def _parse_container(container: _Container, expander: _Expander) -> HeapFlags:
    values = {variable.name: variable.value for variable in container.env}
    kept = ((name, _extract_setting(name, expander.expand(value, values))) for name, value in values.items())
    command_line = expander.expand(" ".join((*container.command, *container.args)), values)
    return HeapFlags(
        container=container.name,
        args=_extract_flags(command_line) or ("java" if JAVA_COMMAND.search(command_line) else ""),
        env=tuple((name, words) for name, words in kept if words),
    )


def _extract_setting(name: str, value: str) -> str:
    """Return the part of a variable's value that bounds a heap."""
    is_size = SIZE_VARIABLE.fullmatch(name) and _AMOUNT.fullmatch(value)
    return value if is_size or name in RUNTIME_VARIABLES else _extract_flags(value)


class _Expander:
    """Replaces references to variables: the kubelet expands `$(NAME)`, a shell expands `$NAME` and `${NAME}`."""

    def __init__(self) -> None:
        # A hundred thousand references to a long variable, which fit into one object, would be gigabytes.
        self._remaining = MAX_EXPANSION

    def expand(self, text: str, values: Mapping[str, str]) -> str:
        if "$" not in text:
            return text

        def value(reference: re.Match[str]) -> str:
            found = values.get(reference[1] or reference[2] or reference[3])
            if found is None or len(found) > self._remaining:
                return reference[0]
            self._remaining -= len(found)
            return found

        return _REFERENCE.sub(value, text)


def _extract_flags(text: str) -> str:
    return " ".join(_FLAGS.findall(text))

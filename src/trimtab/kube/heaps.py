"""What a pod template says of how far its containers' heaps may grow: in command lines and in the environment.

Of these only the few words that matter are kept, and of most workloads nothing: command lines are long, environments
hold secrets, and neither is anybody's business here. What the words mean is for `sizing.heap` to say.
"""

from __future__ import annotations

import re

import msgspec

from trimtab.kube.intern import InternTable
from trimtab.kube.records import Labels

_OPTIONS = re.compile(
    r"(?:^|\s)(-Xmx\S+|-XX:Max(?:HeapSize|RAMPercentage)=\S+|--max[-_]old[-_]space[-_]size[= ]\S+)"
)
_VARIABLES = frozenset({"GOMEMLIMIT", "DOTNET_GCHeapHardLimit", "COMPlus_GCHeapHardLimit"})
_ANY = re.compile(rb"-Xmx|MaxHeapSize|MaxRAMPercentage|[-_]old[-_]space[-_]size|GOMEMLIMIT|GCHeapHardLimit")


class HeapHint(msgspec.Struct, frozen=True, gc=False, cache_hash=True):
    """The words about one container's heap: of its command line, and by the variable that they stand in."""

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


class _Template(msgspec.Struct, frozen=True, gc=False):
    spec: _Spec = _Spec()


_TEMPLATES = msgspec.json.Decoder(_Template)


def heap_hints(template: bytes, intern: InternTable) -> tuple[HeapHint, ...]:
    """The containers of a template, as JSON, that say anything of their heap."""
    if _ANY.search(template) is None:
        return ()
    try:
        spec = _TEMPLATES.decode(template).spec
    except msgspec.ValidationError:  # a kind of somebody's own may spell it in its own way
        return ()
    found = [_hint(container) for container in (*spec.containers, *spec.init_containers)]
    hints: tuple[HeapHint, ...] = intern[tuple(intern[hint] for hint in found if hint.args or hint.env)]
    return hints


def _hint(container: _Container) -> HeapHint:
    return HeapHint(
        container=container.name,
        args=_options(" ".join((*container.command, *container.args))),
        env=tuple(
            (variable.name, words)
            for variable in container.env
            if (words := variable.value if variable.name in _VARIABLES else _options(variable.value))
        ),
    )


def _options(text: str) -> str:
    return " ".join(_OPTIONS.findall(text))

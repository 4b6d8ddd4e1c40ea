"""A change in the files that users keep themselves: their manifests, and the values of their Helm charts.

Each file is given as it is and comes back with other amounts and nothing else different. Where a file does not tell
for certain what to change, nothing is guessed: it says what it found and how to say which is meant.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from yaml.nodes import MappingNode, Node

from trimtab.errors import TrimtabError
from trimtab.kube.pods import Resources
from trimtab.survey.patches.amounts import resources_at, wanted
from trimtab.survey.patches.change import Change
from trimtab.survey.patches.splice import Splice, Text, child, entries, items, plain

_LISTS = ("containers", "initContainers")
_KEYS = {"requests", "limits"}


# Manifests


def in_manifests(files: Mapping[str, str], changes: Sequence[Change]) -> tuple[dict[str, str], list[Change]]:
    """The files that change, as they should be, by name; and the changes that no file has a workload for."""
    texts = {where: Text(content, where=where) for where, content in files.items()}
    there: dict[tuple[str, ...], list[_Manifest]] = defaultdict(list)
    for text in texts.values():
        for document in _objects(text.roots):
            there[_kind_and_name(document)].append(_Manifest(text, document))
    splices: dict[str, list[Splice]] = defaultdict(list)
    taken: dict[Node, Change] = {}
    left = []
    for change in changes:
        workload = change.workload
        found = _meant(there[workload.resource.group, workload.kind, workload.name], change)
        if found is None:
            left.append(change)
            continue
        other = taken.setdefault(found.document, change)
        if other.after != change.after:
            raise TrimtabError(
                f"{found}: names no namespace, and {other.workload.key} and {workload.key} should differ; say which "
                "is meant: --namespace"
            )
        if other is change:
            splices[found.text.where] += _in_manifest(found.text, found.document, change)
    return {where: texts[where].with_(made) for where, made in splices.items()}, left


class _Manifest(NamedTuple):
    """An object in one of the files."""

    text: Text
    document: Node

    def __str__(self) -> str:
        return f"{self.text.where}, line {self.document.start_mark.line + 1}"


def _objects(roots: Sequence[Node]) -> Iterator[Node]:
    for root in roots:
        yield from items(child(root, "items")) if plain(child(root, "kind")).endswith("List") else [root]


def _kind_and_name(document: Node) -> tuple[str, str, str]:
    """The group, the kind and the name."""
    return (
        plain(child(document, "apiVersion")).partition("/")[0],
        plain(child(document, "kind")),
        plain(child(document, "metadata", "name")),
    )


def _meant(named: Sequence[_Manifest], change: Change) -> _Manifest | None:
    """The manifest of a workload: of those with its name one that names its namespace, or else one that names none."""
    by_namespace = [
        [each for each in named if plain(child(each.document, "metadata", "namespace")) == namespace]
        for namespace in (change.workload.namespace, "")
    ]
    found = next(filter(None, by_namespace), [])
    if len(found) > 1:  # an overlay's patch has only what it changes
        found = [
            each for each in found if change.after.keys() <= _containers(each.document, change).keys()
        ] or found
    if len(found) > 1:
        raise TrimtabError(
            f"{change.workload.key} is in {' and in '.join(map(str, found))}; say which is meant: --file"
        )
    return found[0] if found else None


def _containers(document: Node, change: Change) -> dict[str, Node]:
    above = ("spec", "jobTemplate") if change.workload.kind == "CronJob" else ()
    spec = child(document, *above, "spec", "template", "spec")
    return {plain(child(each, "name")): each for name in _LISTS for each in items(child(spec, name))}


def _in_manifest(text: Text, document: Node, change: Change) -> Iterator[Splice]:
    containers = _containers(document, change)
    for name, after in change.after.items():
        owner = containers.get(name)
        if not isinstance(owner, MappingNode):
            raise TrimtabError(
                f"{text.where}: {change.workload.key} has no container {name} there; is the file old?"
            )
        yield from text.put(owner, "resources", wanted(change.before[name], after))


# Helm values


class _Place(NamedTuple):
    """A mapping in a values file that may be a container's resources."""

    path: tuple[str, ...]
    owner: MappingNode

    def __str__(self) -> str:
        return ".".join(self.path)


def in_values(
    content: str, changes: Sequence[Change], *, where: str, paths: Mapping[str, str]
) -> tuple[str, list[str]]:
    """A values file with the sizes in place, and the containers that it has no place for.

    `paths` names the place of a container's resources, by `container` or `workload/container`. Without, it is the one
    that holds what the container has now; of several, the one with the container's or the workload's name in its path.
    """
    text = Text(content, where=where)
    root = text.roots[0] if text.roots else None
    if not isinstance(root, MappingNode):
        raise TrimtabError(f"{where}: there are no values in it; name the values file of the chart")
    places = list(_places(root, ()))
    taken: dict[tuple[str, ...], tuple[str, Resources]] = {}
    splices: list[Splice] = []
    missing = []
    for change in changes:
        for name, after in change.after.items():
            given = paths.get(f"{change.workload.name}/{name}") or paths.get(name)
            place = _given(root, given, where) if given else _found(places, change, name, where)
            if place is None:
                missing.append(f"{change.workload.key} {name}")
                continue
            if place.path not in taken:
                splices += text.put(place.owner, place.path[-1], wanted(change.before[name], after))
            other, size = taken.setdefault(place.path, (f"{change.workload.key} {name}", after))
            if size != after:
                raise TrimtabError(
                    f"{where}: {place} sizes both {other} and {change.workload.key} {name}, which should differ; "
                    "see --helm-path and --namespace"
                )
    return text.with_(splices), missing


def _places(node: Node, path: tuple[str, ...]) -> Iterator[_Place]:
    """What is called resources, or has requests or limits."""
    for name, value in entries(node):
        here = (*path, plain(name))
        if plain(name).lower().endswith("resources") or _KEYS & {plain(key) for key, _ in entries(value)}:
            assert isinstance(node, MappingNode)
            yield _Place(here, node)
        else:
            yield from _places(value, here)


def _given(root: MappingNode, path: str, where: str) -> _Place:
    *above, last = path.split(".")
    owner = child(root, *above) if above else root
    if not isinstance(owner, MappingNode):
        raise TrimtabError(f"--helm-path {path}: {where} has no {'.'.join(above)}")
    return _Place((*above, last), owner)


def _found(places: Sequence[_Place], change: Change, container: str, where: str) -> _Place | None:
    now = change.before[container]
    same = [place for place in places if resources_at(child(place.owner, place.path[-1])) == now]
    if now == Resources():  # as good as everywhere: then only a name tells, or that there is no other
        names = (container, change.workload.name)
        same = [each for each in same if len(each.path) == 1 or any(_names(each, name) for name in names)]
    for name in (container, change.workload.name):
        named = [place for place in same if _names(place, name)]
        if len(named) == 1:
            return named[0]
        same = named or same
    if len(same) > 1:
        raise TrimtabError(
            f"{where}: {change.workload.key} {container} may be sized by {', '.join(map(str, same))}; "
            f"say by which: --helm-path {change.workload.name}/{container}={same[0]}"
        )
    return same[0] if same else None


def _names(place: _Place, name: str) -> bool:
    """Whether a path has a name in it; a release puts its own name before that of a workload."""
    words = name.lower().split("-")
    ends = {"".join(words[first:]) for first in range(len(words))}
    return any(part.replace("-", "").replace("_", "").lower() in ends for part in place.path[:-1])

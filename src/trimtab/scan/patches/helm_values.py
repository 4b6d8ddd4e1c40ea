"""Edits the values of users' Helm charts, where it is certain whose a place is.

It is certain by a path that the user gives; by rendering the chart; or by the identity of a HelmRelease or an
Application whose values name the container. Equal amounts never decide: they are only suggested.
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import yaml
from yaml.nodes import MappingNode, Node

from trimtab.errors import TrimtabError
from trimtab.kube.kinds.pods import Resources
from trimtab.scan.patches.change import Change
from trimtab.scan.patches.documents import (
    Builds,
    Document,
    Edits,
    Place,
    Unclear,
    check_owners,
    choose,
    read_documents,
    unbuilt,
)
from trimtab.scan.patches.helm_charts import Chart, Keys, Sized, is_place, places_in, sized_by
from trimtab.scan.patches.helm_releases import Values, values_in
from trimtab.scan.patches.quantities import resources_at, wanted
from trimtab.scan.patches.yaml_edit import Splice, Text, child, entries, plain

_INSTANCE = "app.kubernetes.io/instance"


class GivenPath(NamedTuple):
    """Where a container's resources are, as the user says."""

    container: str
    workload: str
    namespace: str
    file: str
    keys: Keys

    def __str__(self) -> str:
        return f"--helm-path {'.'.join(self.keys)}"

    @property
    def whose(self) -> str:
        return "/".join(filter(None, (self.namespace, self.workload, self.container)))

    def fits(self, change: Change, container: str) -> bool:
        workload = change.workload
        return (
            self.container == container
            and self.workload in {workload.name, ""}
            and self.namespace in {workload.namespace, ""}
        )


class _Claim(NamedTuple):
    """A container that is to be sized at a place."""

    change: Change
    container: str
    values: Values
    place: Place
    owner: tuple[str, str]
    """The document's owner that makes the workload."""
    sized: frozenset[Sized] = frozenset()
    """All that the place sizes, where the chart was rendered."""
    is_given: bool = False
    """Whether the user gave the path."""

    def __str__(self) -> str:
        return f"{self.change.workload.key} {self.container}"

    @property
    def after(self) -> Resources:
        return self.change.after[self.container]


def parse_path(text: str) -> GivenPath:
    """Parse a `--helm-path`: [[NAMESPACE/]WORKLOAD/]CONTAINER=[FILE:]path.to.resources."""
    whose, equals, where = text.partition("=")
    *above, container = whose.split("/")
    file, _, path = where.rpartition(":")
    keys = tuple(key.replace("\\.", ".") for key in re.split(r"(?<!\\)\.", path))
    if not equals or not container or len(above) > 2 or not all(keys) or not all(above):
        raise TrimtabError(
            f"--helm-path {text}: write it as CONTAINER=path.to.resources, or as "
            "NAMESPACE/WORKLOAD/CONTAINER=FILE:path.to.resources"
        )
    namespace, workload = ["", "", *above][-2:]
    return GivenPath(container, workload, namespace, posixpath.normpath(file) if file else "", keys)


def edit_values(
    files: Mapping[str, str],
    changes: Sequence[Change],
    *,
    paths: Sequence[GivenPath] = (),
    charts: Mapping[str, Chart] | None = None,
    builds: Builds = unbuilt,
    named: Collection[str] = (),
) -> Edits:
    """Put each change into the values of its release; what is not certain is reported and left as it is.

    `charts` has the chart of a values file, by the file's name. `builds` finds what the kustomizations make of a
    file, and `named` are the files that the user named.
    """
    documents, edits = read_documents(files, builds, named)
    there = list(_read_values(documents, edits))
    full = {each.document.text.where for each in there}
    edits.unclear += [
        f"{where}: it has no Helm values; name a values file, a HelmRelease or an Application"
        for where in files
        if where in named and where not in full and not any(line.startswith(where) for line in edits.unclear)
    ]
    finder = _Finder(there, paths, charts or {})
    claims: dict[tuple[MappingNode, Keys], list[_Claim]] = defaultdict(list)
    for change, container in [(each, name) for each in changes for name in each.after]:
        whose = f"{change.workload.key} {container}"
        try:
            found = finder.find(change, container)
        except TrimtabError as reason:
            edits.unclear.append(f"{whose}: left out: {reason}")
            continue
        if found is None:
            edits.absent.append(f"{whose}: left out: no file has the values of its release")
        else:
            claims[found.place.owner, found.place.path].append(found)
    _put(claims.values(), edits)
    sized = [(each, name) for each in changes for name in each.after]
    edits.absent += [
        f"--helm-path {given.whose}={'.'.join(given.keys)}: not used: no container {given.whose} is to change"
        for given in paths
        if not any(given.fits(*each) for each in sized)
    ]
    return edits


def _read_values(documents: Sequence[Document], edits: Edits) -> Iterator[Values]:
    for document in documents:
        try:
            yield from values_in(document)
        except TrimtabError as error:  # in values that are embedded as a text
            edits.unclear.append(str(error))


def _put(claims: Iterable[Sequence[_Claim]], edits: Edits) -> None:
    wants: dict[Values, dict[tuple[MappingNode, str], dict[str, Any]]] = defaultdict(dict)
    for group in claims:
        place = group[0].place
        try:
            amounts = _amounts(group)
            list(group[0].values.text.put(place.owner, place.path[0], amounts))
        except TrimtabError as reason:
            edits.unclear += [f"{each}: left out: {reason}" for each in group]
        else:
            # Two places that are not there yet may have a key in common, which must be added once.
            _merge(wants[group[0].values].setdefault((place.owner, place.path[0]), {}), amounts)
    splices: dict[Text, list[Splice]] = defaultdict(list)
    for values, places in wants.items():
        made = [
            splice
            for (owner, key), amounts in places.items()
            for splice in values.text.put(owner, key, amounts)
        ]
        try:
            splices[values.document.text] += values.splice(made)
        except TrimtabError as error:
            edits.unclear.append(f"{values.document}: left out: {error}")
    edits.add(splices)


def _amounts(claims: Sequence[_Claim]) -> dict[str, Any]:
    """Build what is to stand at the first key of a place; `Unclear` where it is not of these containers alone."""
    first = claims[0]
    where = f"{first.place.document.text.where}: {'.'.join(first.place.path)}"
    if len({each.after for each in claims}) > 1:
        names = " and ".join(map(str, claims))
        raise Unclear(f"{where} sizes {names}, which should differ; see --helm-path and --namespace")
    claimed = {
        Sized(each.change.workload.kind, *each.change.workload.key[1:], each.container) for each in claims
    }
    if others := sorted(first.sized - claimed):
        raise Unclear(f"{where} also sizes {', '.join(map(str, others))}, which is not to change alike")
    if len({each.owner for each in claims}) < len(claims) and not (first.sized or first.is_given):
        raise Unclear(f"{where} fits {' and '.join(map(str, claims))}; say which: --helm-path")
    check_owners(first.place, {each.owner: each.after for each in claims})
    amounts: dict[str, Any] = {}
    for each in claims:
        _merge(amounts, wanted(each.change.before[each.container], each.after))
    for key in reversed(first.place.path[1:]):  # what the values do not have yet
        amounts = {key: amounts}
    return amounts


def _merge(into: dict[str, Any], other: Mapping[str, Any]) -> None:
    for key, value in other.items():
        if isinstance(value, Mapping):
            _merge(into.setdefault(key, {}), value)
        else:
            into[key] = value


class _Finder:
    """Finds the one place of a container."""

    def __init__(
        self, values: Sequence[Values], paths: Sequence[GivenPath], charts: Mapping[str, Chart]
    ) -> None:
        self._values = values
        self._paths = paths
        self._charts = charts
        self._rendered: dict[tuple[str, str, str], _Rendering] = {}

    def find(self, change: Change, container: str) -> _Claim | None:
        """Find it; None when no file is about the workload's release."""
        given = [each for each in self._paths if each.fits(change, container)]
        if given:
            return self._at(
                max(given, key=lambda each: (each.workload != "", each.namespace != "")), change, container
            )
        fitting = [(each, owner) for each in self._values if (owner := each.owner_of(change.workload))]
        own = [(each, owner) for each, owner in fitting if each.says_namespace(owner)] or fitting
        for values, owner in own:
            if chart := self._charts.get(values.document.text.where):
                return self._by_chart([values], chart, values.release_of(owner), change, container, owner)
        if own:
            return self._by_name(own, change, container)
        plain_files = [each for each in self._values if each.is_plain]
        layers = [each for each in plain_files if each.document.text.where in self._charts]
        if layers:
            chart = self._charts[layers[-1].document.text.where]
            labels = dict(change.workload.labels)
            release = labels.get(_INSTANCE, change.workload.name)
            owner = change.workload.namespace, change.workload.name
            return self._by_chart(layers, chart, release, change, container, owner)
        if plain_files:
            raise Unclear(_suggestion(plain_files, change, container))
        return None

    def _at(self, given: GivenPath, change: Change, container: str) -> _Claim:
        """Take the path that the user gives, in the file of the workload's release."""
        there = [
            each for each in self._values if given.file in {"", posixpath.normpath(each.document.text.where)}
        ]
        own = [each for each in there if each.owner_of(change.workload)] or there
        if len(own) != 1:
            files = " and ".join(str(each.document) for each in own) or "no file"
            raise Unclear(
                f"{given} may be in {files}; say in which file: "
                f"--helm-path {container}=FILE:{'.'.join(given.keys)}"
            )
        values = own[0]
        *above, _ = given.keys
        owner = child(values.root, *above) if above else values.root
        if not isinstance(owner, MappingNode):
            raise Unclear(f"{given}: {values.document} has no {'.'.join(above)}")
        key = values.owner_of(change.workload) or (change.workload.namespace, change.workload.name)
        place = Place(values.document, owner, given.keys[-1:])
        return _Claim(change, container, values, place, key, is_given=True)

    def _by_name(
        self, own: Sequence[tuple[Values, tuple[str, str]]], change: Change, container: str
    ) -> _Claim:
        """Take the place that is named after the container in the values of its release."""
        found: dict[MappingNode, tuple[Values, tuple[str, str], Keys]] = {}
        places = []
        for values, owner in own:
            release = values.release_of(owner)
            for keys, mapping in _places(values.root, ()):
                if values.names(keys, change.workload, container, release):
                    places.append(Place(values.document, mapping, keys[-1:]))
                    found[mapping] = values, owner, keys
        files = " and ".join(str(each.document) for each, _ in own)
        if not places:
            raise Unclear(f"nothing in {files} is named after it; {_advice(change, container)}")
        place = choose(places)
        values, owner, keys = found[place.owner]
        held = resources_at(place.resources)
        if not any(_agrees(held, size) for size in (change.before[container], change.after[container])):
            raise Unclear(
                f"{'.'.join(keys)} in {files} does not hold what the cluster has: it was changed and not deployed "
                f"yet, or it is another's; {_advice(change, container)}"
            )
        return _Claim(change, container, values, place, owner)

    def _by_chart(
        self,
        layers: Sequence[Values],
        chart: Chart,
        release: str,
        change: Change,
        container: str,
        owner: tuple[str, str],
    ) -> _Claim:
        """Take the place that the rendered chart shows in the container."""
        workload = change.workload
        key = layers[-1].document.text.where, release, workload.namespace
        if key not in self._rendered:
            self._rendered[key] = _Rendering(chart, release, workload.namespace, layers)
        rendering = self._rendered[key]
        wanted = Sized(workload.kind, workload.namespace, workload.name, container)
        hits = [
            (place, sized)
            for place, sized in zip(rendering.places, rendering.sized, strict=True)
            if wanted in sized
        ]
        if len(hits) != 1:
            which = ", ".join(".".join(keys) for (_, keys), _ in hits) or "none of its values"
            raise Unclear(f"of the chart's release {release}, {which} size it; {_advice(change, container)}")
        (((layer, keys), sized),) = hits
        values = layers[layer]
        above, rest = values.root, keys
        while len(rest) > 1 and isinstance(below := child(above, rest[0]), MappingNode) and below.value:
            above, rest = below, rest[1:]
        return _Claim(change, container, values, Place(values.document, above, rest), owner, frozenset(sized))


class _Rendering:
    """The places of a chart's values and what each of them sizes."""

    def __init__(self, chart: Chart, release: str, namespace: str, layers: Sequence[Values]) -> None:
        loaded = [_loaded(each.root) for each in layers]
        self.places = [(number, keys) for number, each in enumerate(loaded) for keys in places_in(each)]
        known = {keys for _, keys in self.places}
        last = len(layers) - 1
        self.places += [(last, keys) for keys in places_in(chart.defaults) if keys not in known]
        self.sized = sized_by(chart, release, namespace, loaded, self.places)


def _loaded(node: Node) -> dict[str, Any]:
    found = yaml.load(yaml.serialize(node), Loader=yaml.CSafeLoader)
    return found if isinstance(found, dict) else {}


def _places(node: Node, path: Keys) -> Iterator[tuple[Keys, MappingNode]]:
    for name, value in entries(node):
        here = (*path, plain(name))
        if is_place(plain(name), {plain(key): None for key, _ in entries(value)}):
            assert isinstance(node, MappingNode)
            yield here, node
        else:
            yield from _places(value, here)


def _agrees(held: Resources | None, size: Resources) -> bool:
    """Whether the amounts at a place are those of a size; what the place leaves to the chart may be anything."""
    if held is None or (held == Resources() and size != Resources()):
        return False
    return all(getattr(held, field) in {None, getattr(size, field)} for field in Resources.__struct_fields__)


def _suggestion(values: Sequence[Values], change: Change, container: str) -> str:
    files = " and ".join(each.document.text.where for each in values)
    same = [
        keys
        for each in values
        for keys, mapping in _places(each.root, ())
        if resources_at(child(mapping, keys[-1])) == change.before[container]
    ]
    return (
        f"{files} does not say whose values it has; {_advice(change, container, same)}, or name its --chart"
    )


def _advice(change: Change, container: str, same: Sequence[Keys] = ()) -> str:
    path = ".".join(same[0]) if len(same) == 1 else "path.to.resources"
    return f"say where it is: --helm-path {change.workload.name}/{container}={path}"

"""Edit Helm values where it is certain which container a path sizes.

That is certain from a path that the user gives, from rendering the chart, or from a HelmRelease or Application whose
values name the container. Equal amounts are never proof: they only make a suggestion.
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
from trimtab.scan.patches.change import ResourceChange, parse_resources, plan_amounts
from trimtab.scan.patches.documents import (
    AmbiguousLocation,
    EditLocation,
    FileEdits,
    FindBuilds,
    YamlDocument,
    check_owners,
    choose_location,
    find_no_builds,
    read_documents,
)
from trimtab.scan.patches.helm_charts import (
    Chart,
    KeyPath,
    SizedContainer,
    find_resources_paths,
    find_sized_containers,
    is_resources_key,
)
from trimtab.scan.patches.helm_releases import HelmValues, find_values
from trimtab.scan.patches.yaml_edit import Splice, YamlText, find_child, mapping_items, scalar_text
from trimtab.yaml_documents import load_yaml

_INSTANCE = "app.kubernetes.io/instance"


class HelmPath(NamedTuple):
    """The location of a container's resources, as the user gives it."""

    container: str
    workload: str
    namespace: str
    file: str
    keys: KeyPath

    def __str__(self) -> str:
        return f"--helm-path {'.'.join(self.keys)}"

    @property
    def target(self) -> str:
        return "/".join(filter(None, (self.namespace, self.workload, self.container)))

    def matches(self, change: ResourceChange, container: str) -> bool:
        workload = change.workload
        return (
            self.container == container
            and self.workload in {workload.name, ""}
            and self.namespace in {workload.namespace, ""}
        )


class _Placement(NamedTuple):
    """A container to be sized at a location."""

    change: ResourceChange
    container: str
    values: HelmValues
    place: EditLocation
    owner: tuple[str, str]
    """The document's owner that creates the workload."""
    sized: frozenset[SizedContainer] = frozenset()
    """All containers that the location sizes; empty if the chart was not rendered."""
    is_given: bool = False
    """True if the user gave the path."""

    def __str__(self) -> str:
        return f"{self.change.workload.key} {self.container}"

    @property
    def after(self) -> Resources:
        return self.change.after[self.container]


def parse_helm_path(text: str) -> HelmPath:
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
    return HelmPath(container, workload, namespace, posixpath.normpath(file) if file else "", keys)


def edit_values(
    files: Mapping[str, str],
    changes: Sequence[ResourceChange],
    *,
    paths: Sequence[HelmPath] = (),
    charts: Mapping[str, Chart] | None = None,
    builds: FindBuilds = find_no_builds,
    named: Collection[str] = (),
) -> FileEdits:
    """Put each change into the values of its release; uncertain changes are reported and skipped.

    `charts` has the chart of a values file, by the file's name. `builds` finds what the kustomizations build
    from a file, and `named` are the files that the user named.
    """
    documents, edits = read_documents(files, builds, named)
    there = list(_read_values(documents, edits))
    full = {each.document.text.where for each in there}
    edits.ambiguous += [
        f"{where}: this file has no Helm values; name a values file, a HelmRelease or an Application"
        for where in files
        if where in named
        and where not in full
        and not any(line.startswith(where) for line in edits.ambiguous)
    ]
    finder = _LocationFinder(there, paths, charts or {})
    claims: dict[tuple[MappingNode, KeyPath], list[_Placement]] = defaultdict(list)
    for change, container in [(each, name) for each in changes for name in each.after]:
        whose = f"{change.workload.key} {container}"
        try:
            found = finder.find(change, container)
        except TrimtabError as reason:
            edits.ambiguous.append(f"{whose}: skipped: {reason}")
            continue
        if found is None:
            edits.not_found.append(
                f"{whose}: skipped: no file has the values of its release; add it with --file"
            )
        else:
            claims[found.place.owner, found.place.path].append(found)
    _apply_placements(claims.values(), edits)
    sized = [(each, name) for each in changes for name in each.after]
    edits.not_found += [
        f"--helm-path {given.target}={'.'.join(given.keys)}: not used: no container {given.target} changes"
        for given in paths
        if not any(given.matches(*each) for each in sized)
    ]
    return edits


def _read_values(documents: Sequence[YamlDocument], edits: FileEdits) -> Iterator[HelmValues]:
    for document in documents:
        try:
            yield from find_values(document)
        except TrimtabError as error:  # in values embedded as text
            edits.ambiguous.append(str(error))


def _apply_placements(claims: Iterable[Sequence[_Placement]], edits: FileEdits) -> None:
    wants: dict[HelmValues, dict[tuple[MappingNode, str], dict[str, Any]]] = defaultdict(dict)
    for group in claims:
        place = group[0].place
        try:
            amounts = _build_amounts(group, edits)
            list(group[0].values.text.put(place.owner, place.path[0], amounts))
        except TrimtabError as reason:
            edits.ambiguous += [f"{each}: skipped: {reason}" for each in group]
        else:
            # Two new paths may share a key, which must be added only once.
            _merge_into(wants[group[0].values].setdefault((place.owner, place.path[0]), {}), amounts)
    splices: dict[YamlText, list[Splice]] = defaultdict(list)
    for values, places in wants.items():
        made = [
            splice
            for (owner, key), amounts in places.items()
            for splice in values.text.put(owner, key, amounts)
        ]
        try:
            splices[values.document.text] += values.to_file_splices(made)
        except TrimtabError as error:
            edits.ambiguous.append(f"{values.document}: skipped: {error}")
    edits.add_splices(splices)


def _build_amounts(claims: Sequence[_Placement], edits: FileEdits) -> dict[str, Any]:
    """Build the value of a location's first key; raises `AmbiguousLocation` if other containers share the location."""
    first = claims[0]
    where = f"{first.place.document.text.where}: {'.'.join(first.place.path)}"
    # One place in the values may size several containers: with different sizes, the last one would win.
    if len({each.after for each in claims}) > 1:
        names = " and ".join(map(str, claims))
        raise AmbiguousLocation(
            f"{where} sizes {names}, which have different recommendations; see --helm-path and --namespace"
        )
    claimed = {
        SizedContainer(each.change.workload.kind, *each.change.workload.key[1:], each.container)
        for each in claims
    }
    if others := sorted(first.sized - claimed):
        raise AmbiguousLocation(
            f"{where} also sizes {', '.join(map(str, others))}, which must not change with it"
        )
    if len({each.owner for each in claims}) < len(claims) and not (first.sized or first.is_given):
        raise AmbiguousLocation(f"{where} matches {' and '.join(map(str, claims))}; choose with --helm-path")
    check_owners(first.place, {each.owner: each.after for each in claims})
    amounts: dict[str, Any] = {}
    for each in claims:
        plan = plan_amounts(first.place.resources, each.change, each.container)
        edits.add_plan(str(each), first.place, plan)
        _merge_into(amounts, plan.amounts)
    for key in reversed(first.place.path[1:]):  # keys that the values do not have yet
        amounts = {key: amounts}
    return amounts


def _merge_into(into: dict[str, Any], other: Mapping[str, Any]) -> None:
    for key, value in other.items():
        if isinstance(value, Mapping):
            _merge_into(into.setdefault(key, {}), value)
        else:
            into[key] = value


class _LocationFinder:
    """Finds the location of a container's resources."""

    def __init__(
        self, values: Sequence[HelmValues], paths: Sequence[HelmPath], charts: Mapping[str, Chart]
    ) -> None:
        self._values = values
        self._paths = paths
        self._charts = charts
        self._renderings: dict[tuple[str, str, str], _ChartRendering] = {}

    def find(self, change: ResourceChange, container: str) -> _Placement | None:
        """Find the location; None if no file has values of the workload's release."""
        given = [each for each in self._paths if each.matches(change, container)]
        if given:
            return self._find_by_path(
                max(given, key=lambda each: (each.workload != "", each.namespace != "")), change, container
            )
        fitting = [(each, owner) for each in self._values if (owner := each.find_owner(change.workload))]
        own = [(each, owner) for each, owner in fitting if each.has_namespace(owner)] or fitting
        for values, owner in own:
            if chart := self._charts.get(values.document.text.where):
                return self._find_by_chart(
                    [values], chart, values.get_release_name(owner), change, container, owner
                )
        if own:
            return self._find_by_name(own, change, container)
        plain_files = [each for each in self._values if each.is_plain]
        layers = [each for each in plain_files if each.document.text.where in self._charts]
        if layers:
            chart = self._charts[layers[-1].document.text.where]
            labels = dict(change.workload.labels)
            release = labels.get(_INSTANCE, change.workload.name)
            owner = change.workload.namespace, change.workload.name
            return self._find_by_chart(layers, chart, release, change, container, owner)
        if plain_files:
            raise AmbiguousLocation(_suggest_path(plain_files, change, container))
        return None

    def _find_by_path(self, given: HelmPath, change: ResourceChange, container: str) -> _Placement:
        """Use the path that the user gives, in the file of the workload's release."""
        there = [
            each for each in self._values if given.file in {"", posixpath.normpath(each.document.text.where)}
        ]
        own = [each for each in there if each.find_owner(change.workload)] or there
        if len(own) != 1:
            files = " and ".join(str(each.document) for each in own) or "no file"
            raise AmbiguousLocation(
                f"{given} may be in {files}; name the file: "
                f"--helm-path {container}=FILE:{'.'.join(given.keys)}"
            )
        values = own[0]
        *above, _ = given.keys
        owner = find_child(values.root, *above) if above else values.root
        if not isinstance(owner, MappingNode):
            raise AmbiguousLocation(f"{given}: {values.document} has no {'.'.join(above)}")
        key = values.find_owner(change.workload) or (change.workload.namespace, change.workload.name)
        place = EditLocation(values.document, owner, given.keys[-1:])
        return _Placement(change, container, values, place, key, is_given=True)

    def _find_by_name(
        self, own: Sequence[tuple[HelmValues, tuple[str, str]]], change: ResourceChange, container: str
    ) -> _Placement:
        """Use the path that is named after the container in the values of its release."""
        found: dict[MappingNode, tuple[HelmValues, tuple[str, str], KeyPath]] = {}
        places = []
        for values, owner in own:
            release = values.get_release_name(owner)
            for keys, mapping in _find_locations(values.root, ()):
                if values.path_names_container(keys, change.workload, container, release):
                    places.append(EditLocation(values.document, mapping, keys[-1:]))
                    found[mapping] = values, owner, keys
        files = " and ".join(str(each.document) for each, _ in own)
        if not places:
            raise AmbiguousLocation(
                f"no path in {files} is named after it; {_format_advice(change, container)}"
            )
        place = choose_location(places)
        values, owner, keys = found[place.owner]
        # A path may be named like the container and belong to another: it counts only with the size of the cluster, or with
        # the new one after an earlier run.
        existing = parse_resources(place.resources)
        if not any(
            _matches_size(existing, size) for size in (change.before[container], change.after[container])
        ):
            raise AmbiguousLocation(
                f"{'.'.join(keys)} in {files} differs from the cluster: the file was edited but not deployed yet, "
                f"or the path belongs to another container; {_format_advice(change, container)}"
            )
        return _Placement(change, container, values, place, owner)

    def _find_by_chart(
        self,
        layers: Sequence[HelmValues],
        chart: Chart,
        release: str,
        change: ResourceChange,
        container: str,
        owner: tuple[str, str],
    ) -> _Placement:
        """Use the path whose marker the rendered chart shows in the container."""
        workload = change.workload
        key = layers[-1].document.text.where, release, workload.namespace
        if key not in self._renderings:
            self._renderings[key] = _ChartRendering(chart, release, workload.namespace, layers)
        rendering = self._renderings[key]
        wanted = SizedContainer(workload.kind, workload.namespace, workload.name, container)
        hits = [
            (place, sized)
            for place, sized in zip(rendering.places, rendering.sized, strict=True)
            if wanted in sized
        ]
        if len(hits) != 1:
            which = ", ".join(".".join(keys) for (_, keys), _ in hits) or "none of its values"
            raise AmbiguousLocation(
                f"the chart's release {release} sizes it by {which}; {_format_advice(change, container)}"
            )
        (((layer, keys), sized),) = hits
        values = layers[layer]
        above, rest = values.root, keys
        while len(rest) > 1 and isinstance(below := find_child(above, rest[0]), MappingNode) and below.value:
            above, rest = below, rest[1:]
        return _Placement(
            change, container, values, EditLocation(values.document, above, rest), owner, frozenset(sized)
        )


class _ChartRendering:
    """The paths of a chart's values and the containers that each of them sizes."""

    def __init__(self, chart: Chart, release: str, namespace: str, layers: Sequence[HelmValues]) -> None:
        loaded = [_load_values(each.root) for each in layers]
        self.places = [
            (number, keys) for number, each in enumerate(loaded) for keys in find_resources_paths(each)
        ]
        known = {keys for _, keys in self.places}
        last = len(layers) - 1
        self.places += [(last, keys) for keys in find_resources_paths(chart.defaults) if keys not in known]
        self.sized = find_sized_containers(chart, release, namespace, loaded, self.places)


def _load_values(node: Node) -> dict[str, Any]:
    found = load_yaml(yaml.serialize(node))
    return found if isinstance(found, dict) else {}


def _find_locations(node: Node, path: KeyPath) -> Iterator[tuple[KeyPath, MappingNode]]:
    for name, value in mapping_items(node):
        here = (*path, scalar_text(name))
        if is_resources_key(scalar_text(name), {scalar_text(key): None for key, _ in mapping_items(value)}):
            assert isinstance(node, MappingNode)
            yield here, node
        else:
            yield from _find_locations(value, here)


def _matches_size(existing: Resources | None, size: Resources) -> bool:
    """Return whether the amounts at a location match a size; amounts left to the chart always match."""
    if existing is None or (existing == Resources() and size != Resources()):
        return False
    return all(
        getattr(existing, field) in {None, getattr(size, field)} for field in Resources.__struct_fields__
    )


def _suggest_path(values: Sequence[HelmValues], change: ResourceChange, container: str) -> str:
    files = " and ".join(each.document.text.where for each in values)
    same = [
        keys
        for each in values
        for keys, mapping in _find_locations(each.root, ())
        if parse_resources(find_child(mapping, keys[-1])) == change.before[container]
    ]
    return f"{files} does not name the release of its values; {_format_advice(change, container, same)}, or its --chart"


def _format_advice(change: ResourceChange, container: str, same: Sequence[KeyPath] = ()) -> str:
    path = ".".join(same[0]) if len(same) == 1 else "path.to.resources"
    return f"give its path: --helm-path {change.workload.name}/{container}={path}"

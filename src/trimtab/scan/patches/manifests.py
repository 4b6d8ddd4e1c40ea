"""Edit users' own manifests: only the amounts change, nothing else."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from yaml.nodes import MappingNode, Node

from trimtab.errors import TrimtabError
from trimtab.scan.patches.change import ResourceChange, plan_amounts
from trimtab.scan.patches.documents import (
    AmbiguousLocation,
    EditLocation,
    FileEdits,
    FindBuilds,
    YamlDocument,
    check_owners,
    choose_location,
    find_documents,
    find_no_builds,
    read_documents,
)
from trimtab.scan.patches.yaml_edit import NULL, Splice, YamlText, find_child, scalar_text, sequence_items

_PlacedChange = tuple[EditLocation, ResourceChange, str]
"""A change of a container with its place in the files."""

CONTAINER_LISTS = ("containers", "initContainers")


def edit_manifests(
    files: Mapping[str, str],
    changes: Sequence[ResourceChange],
    *,
    builds: FindBuilds = find_no_builds,
    named: Collection[str] = (),
) -> FileEdits:
    """Put each change into the manifest of its workload; uncertain changes are reported and skipped.

    `builds` finds what the kustomizations build from a file. `named` are the files that the user named: those may be
    edited even if several kustomizations share them.
    """
    documents, edits = read_documents(files, builds, named)
    by_kind: dict[tuple[str, str], list[YamlDocument]] = defaultdict(list)
    for each in documents:
        by_kind[each.kind].append(each)
    changes_by_container: dict[MappingNode, list[_PlacedChange]] = defaultdict(list)
    for change in changes:
        workload = change.workload
        found = find_documents(
            by_kind[workload.resource.group, workload.kind], workload.namespace, workload.name
        )
        if not found:
            edits.not_found.append(f"{workload.key}: skipped: no file has its manifest; add it with --file")
        for name in change.after if found else ():
            try:
                place = _find_location(found, change, name)
            except AmbiguousLocation as reason:
                edits.ambiguous.append(f"{workload.key} {name}: skipped: {reason}")
            else:
                changes_by_container[place.owner].append((place, change, name))
    splices: dict[YamlText, list[Splice]] = defaultdict(list)
    for group in changes_by_container.values():
        _edit_container(group, edits, splices)
    edits.add_splices(splices)
    return edits


def _edit_container(
    group: Sequence[_PlacedChange], edits: FileEdits, splices: dict[YamlText, list[Splice]]
) -> None:
    """Edit a container of a file, which may be that of several workloads."""
    place, change, name = group[0]
    try:
        check_owners(
            place,
            {
                (each.workload.namespace, each.workload.name): each.after[container]
                for _, each, container in group
            },
        )
        gone = NULL if place.document.is_patch else None
        plan = plan_amounts(place.resources, change, name, gone=gone)
        made = list(place.document.text.put(place.owner, place.path[-1], plan.amounts))
    except TrimtabError as reason:
        edits.ambiguous += [
            f"{each.workload.key} {container}: skipped: {reason}" for _, each, container in group
        ]
        return
    splices[place.document.text] += made
    if made:
        edits.made += [each for _, each, _ in group]
    edits.add_plan(f"{change.workload.key} {name}", place, plan)


def find_pod_spec(document: Node, kind: str) -> Node | None:
    """Find the pod spec in a workload's manifest or patch."""
    above = ("spec", "jobTemplate") if kind == "CronJob" else ()
    return find_child(document, *above, "spec", "template", "spec")


def find_containers(document: Node, kind: str) -> dict[str, MappingNode]:
    """Find the containers of a manifest or of its patch, by name."""
    spec = find_pod_spec(document, kind)
    return {
        scalar_text(find_child(each, "name")): each
        for name in CONTAINER_LISTS
        for each in sequence_items(find_child(spec, name))
        if isinstance(each, MappingNode)
    }


def _find_location(documents: Sequence[YamlDocument], change: ResourceChange, container: str) -> EditLocation:
    places = [
        EditLocation(document, owner, ("resources",))
        for document in documents
        if (owner := find_containers(document.node, change.workload.kind).get(container))
    ]
    if not places:
        raise AmbiguousLocation(
            f"{' and '.join(map(str, documents))} has no container {container}; update the file, or name another "
            "with --file"
        )
    return choose_location(places)

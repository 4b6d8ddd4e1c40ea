"""Edits users' own manifests: each file comes back with other amounts and nothing else different."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from yaml.nodes import MappingNode, Node

from trimtab.errors import TrimtabError
from trimtab.scan.patches.change import Change
from trimtab.scan.patches.documents import (
    Builds,
    Document,
    Edits,
    Place,
    Unclear,
    check_owners,
    choose,
    matching,
    read_documents,
    unbuilt,
)
from trimtab.scan.patches.quantities import wanted
from trimtab.scan.patches.yaml_edit import NULL, Splice, Text, child, items, plain

CONTAINER_LISTS = ("containers", "initContainers")


def edit_manifests(
    files: Mapping[str, str],
    changes: Sequence[Change],
    *,
    builds: Builds = unbuilt,
    named: Collection[str] = (),
) -> Edits:
    """Put each change into the manifest of its workload; what is not certain is reported and left as it is.

    `builds` finds what the kustomizations make of a file. `named` are the files that the user named: those may be
    edited although several kustomizations share them.
    """
    documents, edits = read_documents(files, builds, named)
    by_kind: dict[tuple[str, str], list[Document]] = defaultdict(list)
    for each in documents:
        by_kind[each.kind].append(each)
    chosen: dict[MappingNode, list[tuple[Place, Change, str]]] = defaultdict(list)
    for change in changes:
        workload = change.workload
        found = matching(by_kind[workload.resource.group, workload.kind], workload.namespace, workload.name)
        if not found:
            edits.absent.append(f"{workload.key}: left out: no file has its manifest")
        for name in change.after if found else ():
            try:
                place = _place(found, change, name)
            except Unclear as reason:
                edits.unclear.append(f"{workload.key} {name}: left out: {reason}")
            else:
                chosen[place.owner].append((place, change, name))
    splices: dict[Text, list[Splice]] = defaultdict(list)
    for group in chosen.values():
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
            amounts = wanted(change.before[name], change.after[name], gone=gone)
            made = list(place.document.text.put(place.owner, place.path[-1], amounts))
        except TrimtabError as reason:
            edits.unclear += [
                f"{each.workload.key} {container}: left out: {reason}" for _, each, container in group
            ]
        else:
            splices[place.document.text] += made
    edits.add(splices)
    return edits


def pod_spec(document: Node, kind: str) -> Node | None:
    """Find the spec of the pods that a workload's manifest, or its patch, makes."""
    above = ("spec", "jobTemplate") if kind == "CronJob" else ()
    return child(document, *above, "spec", "template", "spec")


def containers_of(document: Node, kind: str) -> dict[str, MappingNode]:
    """Find the containers of a manifest or of its patch, by name."""
    spec = pod_spec(document, kind)
    return {
        plain(child(each, "name")): each
        for name in CONTAINER_LISTS
        for each in items(child(spec, name))
        if isinstance(each, MappingNode)
    }


def _place(documents: Sequence[Document], change: Change, container: str) -> Place:
    places = [
        Place(document, owner, ("resources",))
        for document in documents
        if (owner := containers_of(document.node, change.workload.kind).get(container))
    ]
    if not places:
        raise Unclear(
            f"{' and '.join(map(str, documents))} has no container {container}; update the file, or name another "
            "with --file"
        )
    return choose(places)

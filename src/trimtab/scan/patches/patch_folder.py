"""Maintain a folder of strategic-merge patches, one file per workload, and the kustomization that lists them.

A patch file keeps all its containers: a container without a change today gets its size from the file, and would get
the size of the base without it. To stop sizing a container, remove it from the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from yaml.nodes import MappingNode

from trimtab.atomic_write import check_file_name
from trimtab.errors import TrimtabError
from trimtab.kube.kinds.workloads import Workload
from trimtab.scan.patches.change import ResourceChange, plan_amounts
from trimtab.scan.patches.documents import AmbiguousLocation, FileEdits
from trimtab.scan.patches.kustomize import KUSTOMIZATIONS
from trimtab.scan.patches.manifests import CONTAINER_LISTS, find_pod_spec
from trimtab.scan.patches.render import dump_yaml, render_manifest
from trimtab.scan.patches.yaml_edit import (
    NULL,
    Splice,
    YamlText,
    find_child,
    scalar_text,
    sequence_items,
)

_COMPONENT = "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\n"


class _PatchedObject(NamedTuple):
    """The identity of a patched object; objects in several namespaces may share everything but the namespace."""

    group: str
    kind: str
    name: str
    namespace: str


def build_file_name(workload: Workload) -> str:
    """Name the file of a workload's patch; a namespace and a kind have no dots, so no two workloads share it."""
    return check_file_name(f"{workload.namespace}.{workload.kind.lower()}.{workload.name}.yaml")


def update_folder(
    changes: Sequence[ResourceChange],
    existing: Mapping[str, str],
    *,
    is_kustomize: bool = False,
    namespaced: bool = False,
) -> FileEdits:
    """Put each change into the file of its workload, and add missing entries to the kustomization.

    `existing` maps the file names of the folder to their texts. A file that is not the patch of its workload is reported
    and not changed. `namespaced` puts the namespace into each new target of the kustomization.
    """
    edits = FileEdits()
    written: dict[str, Workload] = {}
    for change in changes:
        try:
            name, text = _build_patch(change, existing)
        except TrimtabError as error:
            edits.ambiguous.append(f"{change.workload.key}: skipped: {error}")
            continue
        written[name] = change.workload
        if existing.get(name) != text:
            edits.files[name] = text
            edits.made.append(change)
        edits.ambiguous += _list_removed_containers(change, name, text)
    if is_kustomize and written:
        where = next((name for name in KUSTOMIZATIONS if name in existing), KUSTOMIZATIONS[0])
        text = build_kustomization(written, existing, where, namespaced=namespaced)
        if existing.get(where) != text:
            edits.files[where] = text
    return edits


def build_kustomization(
    written: Mapping[str, Workload], existing: Mapping[str, str], where: str, *, namespaced: bool = False
) -> str:
    """Build the kustomization with an entry for each patch: extend the existing one, or create a component.

    A target has no namespace, because an overlay may set it, unless the target would match two workloads or
    `namespaced` asks for it.
    """
    if where not in existing:
        count = Counter(_build_object(each)[:3] for each in written.values())
        entries = [
            _build_entry(name, each, is_alone=not namespaced and count[_build_object(each)[:3]] == 1)
            for name, each in written.items()
        ]
        return _COMPONENT + dump_yaml({"patches": entries})
    text = YamlText(existing[where], where=where)
    root = text.roots[0] if text.roots else None
    if not isinstance(root, MappingNode):
        raise TrimtabError(f"{where}: this is not a kustomization; name another --directory")
    listed = {
        scalar_text(find_child(entry, "path")): entry for entry in sequence_items(find_child(root, "patches"))
    }
    # A patch may be listed under the older key of kustomize too; it is not listed again.
    merged = {scalar_text(entry) for entry in sequence_items(find_child(root, "patchesStrategicMerge"))}
    patched = {
        path: found for path in listed if (found := _read_patched_object(path, existing.get(path, "")))
    }
    patched |= {name: _build_object(each) for name, each in written.items()}
    count = Counter((found.group, found.kind, found.name) for found in patched.values())
    splices: list[Splice] = []
    for path, entry in listed.items():
        found, target = patched.get(path), find_child(entry, "target")
        if found and isinstance(target, MappingNode) and count[found[:3]] > 1:
            # An entry from before a namesake existed would now match both workloads.
            splices += text.put(target, "namespace", found.namespace)
    missing = [
        _build_entry(name, each, is_alone=not namespaced and count[_build_object(each)[:3]] == 1)
        for name, each in written.items()
        if name not in listed and name not in merged
    ]
    if missing:
        splices += text.append(root, "patches", dump_yaml(missing))
    return text.apply(splices)


def _build_patch(change: ResourceChange, existing: Mapping[str, str]) -> tuple[str, str]:
    """Find the file of a workload's patch, and build its new text."""
    workload = change.workload
    name = build_file_name(workload)
    former = f"{workload.namespace}-{workload.kind.lower()}-{workload.name}.yaml"
    own = _build_object(workload)
    if name in existing:
        if _read_patched_object(name, existing[name]) != own:
            raise AmbiguousLocation(
                f"{name} is not its patch; move that file away, or name another --directory"
            )
        return name, _update_patch(name, existing[name], change)
    # Older versions used names with dashes, which two workloads could share: the content decides.
    if former in existing and _read_patched_object(former, existing[former]) == own:
        return former, _update_patch(former, existing[former], change)
    return name, render_manifest(change)


def _update_patch(where: str, content: str, change: ResourceChange) -> str:
    text = YamlText(content, where=where)
    spec = find_pod_spec(text.roots[0], change.workload.kind)
    if not isinstance(spec, MappingNode):
        raise AmbiguousLocation(f"{where} has no pod spec; remove the file, or name another --directory")
    splices: list[Splice] = []
    wanted = change.patch["spec"]
    wanted = (wanted["jobTemplate"]["spec"] if change.workload.kind == "CronJob" else wanted)["template"][
        "spec"
    ]
    for name in CONTAINER_LISTS:
        there = {
            scalar_text(find_child(each, "name")): each for each in sequence_items(find_child(spec, name))
        }
        missing = []
        for each in wanted.get(name, ()):
            container = there.get(each["name"])
            if isinstance(container, MappingNode):
                plan = plan_amounts(find_child(container, "resources"), change, each["name"], gone=NULL)
                splices += text.put(container, "resources", plan.amounts)
            else:
                missing.append(each)
        if missing:
            splices += text.append(spec, name, dump_yaml(missing))
    return text.apply(splices)


def _list_removed_containers(change: ResourceChange, where: str, content: str) -> Iterator[str]:
    """Report containers of a patch that the workload does not have: applied, the patch would add them."""
    there = {each.name for each in change.workload.containers}
    spec = find_pod_spec(YamlText(content, where=where).roots[0], change.workload.kind)
    for name in CONTAINER_LISTS:
        for each in sequence_items(find_child(spec, name)):
            if scalar_text(find_child(each, "name")) not in there:
                yield (
                    f"{where}: {change.workload.key} has no container {scalar_text(find_child(each, 'name'))}; remove it from "
                    "the file, or deploy the workload that has it"
                )


def _read_patched_object(where: str, content: str) -> _PatchedObject | None:
    """Read the object that a patch file is for; None if the file is not a patch."""
    try:
        roots = YamlText(content, where=where).roots
    except TrimtabError:
        return None
    if len(roots) != 1:
        return None
    version, kind = (scalar_text(find_child(roots[0], key)) for key in ("apiVersion", "kind"))
    name, namespace = (scalar_text(find_child(roots[0], "metadata", key)) for key in ("name", "namespace"))
    return _PatchedObject(version.rpartition("/")[0], kind, name, namespace) if kind and name else None


def _build_object(workload: Workload) -> _PatchedObject:
    return _PatchedObject(workload.resource.group, workload.resource.kind, workload.name, workload.namespace)


def _build_entry(name: str, workload: Workload, *, is_alone: bool) -> dict[str, Any]:
    resource = workload.resource
    target = {
        "group": resource.group,
        "version": resource.version,
        "kind": resource.kind,
        "name": workload.name,
    }
    return {"path": name, "target": target if is_alone else {**target, "namespace": workload.namespace}}

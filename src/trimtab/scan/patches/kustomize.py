"""Resolve which objects a repository's kustomizations build from its files.

A manifest often leaves its namespace and a part of its name to the kustomizations that include it, and one base may
become several objects. The module is pure: the caller reads the files. Inline patches, generators and remote resources
are not supported.
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import yaml

from trimtab.yaml_documents import load_yaml_documents

KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "Kustomization")
"""The file names of a kustomization; kustomize rejects a folder with two of them."""
FLUX = "kustomize.toolkit.fluxcd.io"
"""The API group of Flux's Kustomization, which names a folder to build and a target namespace."""

_PLAIN_NAME = re.compile(r"[a-z0-9.-]+")
_Body = Mapping[str, Any]


class Build(NamedTuple):
    """One object, or the patch of one, that is built from a file."""

    root: str
    """The kustomization that is built; empty for a file that none includes."""
    namespace: str = ""
    """The namespace that the kustomizations set; empty if it comes from the file."""
    prefix: str = ""
    suffix: str = ""
    is_patch: bool = False
    target: str | None = None
    """The name of the patched object: None if the file gives it, empty if the target may match several objects."""


UNBUILT = frozenset({Build("")})
"""The build of a file that no kustomization includes: it is applied as it is."""


class KustomizationTree:
    """The kustomizations of a repository, by absolute paths."""

    def __init__(self, texts: Mapping[str, str], paths: Collection[str] = ()) -> None:
        """Take the texts of kustomizations and of files with Flux's Kustomizations, and the paths of all files."""
        bodies = {path: list(_load_mappings(text)) for path, text in texts.items()}
        self._kustomizations = {
            posixpath.dirname(path): found[0]
            for path, found in bodies.items()
            if posixpath.basename(path) in KUSTOMIZATIONS and found
        }
        self._builds: dict[str, set[Build]] = defaultdict(set)
        self._roots: dict[str, set[str]] = defaultdict(set)
        """The topmost folders that include a file or a folder."""
        self._unlisted: list[tuple[str, Build]] = []
        """The folders without a kustomization that Flux builds; every file below is included."""
        folders = {above for path in {*paths, *texts} for above in _list_folders_above(path)}
        flux = [
            (folder, Build(f"{path}: {_as_text(_get_mapping(body, 'metadata').get('name'))}", namespace))
            for path, found in bodies.items()
            for body in found
            if str(body.get("apiVersion", "")).startswith(f"{FLUX}/")
            for folder, namespace in _find_flux_folders(path, _get_mapping(body, "spec"), folders)
        ]
        for folder, build in flux:
            if folder in self._kustomizations:
                self._visit(folder, build, ())
            else:
                self._unlisted.append((folder, build))
                for below in self._find_topmost_below(folder):
                    self._visit(below, build, ())
        included = {entry for folder in self._kustomizations for entry in self._list_entries(folder)}
        rooted = included | {folder for folder, _ in flux}
        for folder, body in self._kustomizations.items():
            is_below_flux = any(_is_below(folder, above) for above, _ in self._unlisted)
            if folder not in rooted and body.get("kind") != "Component" and not is_below_flux:
                self._visit(folder, Build(folder), ())

    def find_builds(self, path: str) -> frozenset[Build]:
        """Find the objects that are built from a file."""
        found = set(self._builds.get(path, ()))
        for folder, build in self._unlisted:
            between = [
                above for above in _list_folders_above(path) if above == folder or _is_below(above, folder)
            ]
            if between and not any(above in self._kustomizations for above in between):
                found.add(build)
        return frozenset(found) or UNBUILT

    def find_roots(self, path: str) -> frozenset[str]:
        """Find the topmost kustomizations, by folder, that include a file or the kustomization of a folder."""
        return frozenset(self._roots.get(path, ()))

    def list_roots(self) -> frozenset[str]:
        """List the topmost kustomizations, by folder."""
        return frozenset(root for roots in self._roots.values() for root in roots)

    def _visit(self, folder: str, above: Build, visited: tuple[str, ...]) -> None:
        if folder in visited:  # a cycle, which kustomize rejects
            return
        body = self._kustomizations[folder]
        root = (*visited, folder)[0]
        self._roots[folder].add(root)
        here = above._replace(
            # The outermost kustomization wins: it transforms the namespace and names last.
            namespace=above.namespace or _as_text(body.get("namespace")),
            prefix=above.prefix + _as_text(body.get("namePrefix")),
            suffix=_as_text(body.get("nameSuffix")) + above.suffix,
        )
        for entry in self._list_entries(folder):
            if entry in self._kustomizations:
                self._visit(entry, here, (*visited, folder))
            else:
                self._builds[entry].add(here)
                self._roots[entry].add(root)
        for name, target in _list_patches(body):
            patch = _join_path(folder, name)
            self._builds[patch].add(here._replace(is_patch=True, target=target))
            self._roots[patch].add(root)

    def _list_entries(self, folder: str) -> Iterator[str]:
        body = self._kustomizations[folder]
        for key in ("resources", "bases", "components"):
            for entry in _as_list(body.get(key)):
                if isinstance(entry, str):
                    yield _join_path(folder, entry)

    def _find_topmost_below(self, folder: str) -> list[str]:
        below = [each for each in self._kustomizations if _is_below(each, folder)]
        return [each for each in below if not any(_is_below(each, other) for other in below)]


def _list_patches(body: _Body) -> Iterator[tuple[str, str | None]]:
    """List the patch files, each with the name of its target."""
    for entry in _as_list(body.get("patchesStrategicMerge")):
        if isinstance(entry, str) and "\n" not in entry:
            yield entry, None
    for entry in _as_list(body.get("patches")):
        if isinstance(entry, dict) and isinstance(entry.get("path"), str):
            target = entry.get("target")
            yield entry["path"], None if target is None else _read_target_name(target)


def _read_target_name(target: Any) -> str:
    """Return the name of a patch's target; empty for an expression or a selector, which may match several objects."""
    name = _as_text(_get_mapping({"target": target}, "target").get("name"))
    is_one = bool(_PLAIN_NAME.fullmatch(name)) and not {"labelSelector", "annotationSelector"} & target.keys()
    return name if is_one else ""


def _find_flux_folders(path: str, spec: _Body, folders: Collection[str]) -> Iterator[tuple[str, str]]:
    """Find the folder that Flux builds; its path is relative to the repository's root, which may be any folder above."""
    wanted, namespace = _as_text(spec.get("path")), _as_text(spec.get("targetNamespace"))
    for above in _list_folders_above(path):
        folder = posixpath.normpath(posixpath.join(above, wanted.lstrip("/")))
        if wanted.strip("./") and folder in folders:
            yield folder, namespace


def _load_mappings(text: str) -> Iterator[_Body]:
    """Load the mappings of a text; invalid YAML has none, and does not affect other files."""
    try:
        for body in load_yaml_documents(text):
            if isinstance(body, dict):
                yield body
    except yaml.YAMLError:
        return


def _list_folders_above(path: str) -> Iterator[str]:
    while (folder := posixpath.dirname(path)) != path:
        yield folder
        path = folder


def _join_path(folder: str, entry: str) -> str:
    return posixpath.normpath(posixpath.join(folder, entry))


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(f"{folder.rstrip('/')}/")


def _get_mapping(body: _Body, key: str) -> _Body:
    found = body.get(key)
    return found if isinstance(found, dict) else {}


def _as_list(found: Any) -> list[Any]:
    return found if isinstance(found, list) else []


def _as_text(found: Any) -> str:
    return found if isinstance(found, str) else ""

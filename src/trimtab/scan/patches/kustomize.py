"""Resolves which objects a repository's kustomizations make of its files.

A manifest often leaves its namespace, and a part of its name, to the kustomizations that include it, and one base may
become several objects. Pure: the caller reads the files. Left out: patches written inside a kustomization, generators,
and whatever is fetched from elsewhere.
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import yaml

KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "Kustomization")
"""The names that such a file may have; kustomize refuses a folder with two of them."""
FLUX = "kustomize.toolkit.fluxcd.io"
"""The API group of Flux's own Kustomization, which names a folder to build and where to put its objects."""

_PLAIN_NAME = re.compile(r"[a-z0-9.-]+")
_Body = Mapping[str, Any]


class Build(NamedTuple):
    """One object, or the patch of one, that a file becomes."""

    root: str
    """The kustomization that is built; "" for a file that none includes."""
    namespace: str = ""
    """The namespace that the kustomizations set; "" leaves it to the file."""
    prefix: str = ""
    suffix: str = ""
    is_patch: bool = False
    target: str | None = None
    """The name of the patched object, where the kustomization says it; "" where it may be several objects."""


UNBUILT = frozenset({Build("")})
"""A file that no kustomization includes is applied as it is."""


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
        self._unlisted: list[tuple[str, Build]] = []
        """Folders without a kustomization that Flux builds: all that lies below is included."""
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
        """Find what a file becomes."""
        found = set(self._builds.get(path, ()))
        for folder, build in self._unlisted:
            between = [
                above for above in _list_folders_above(path) if above == folder or _is_below(above, folder)
            ]
            if between and not any(above in self._kustomizations for above in between):
                found.add(build)
        return frozenset(found) or UNBUILT

    def _visit(self, folder: str, above: Build, seen: tuple[str, ...]) -> None:
        if folder in seen:  # two that include each other: kustomize refuses them
            return
        body = self._kustomizations[folder]
        here = above._replace(
            # The namespace and the names are set on the way up: the outermost kustomization is the last to do so.
            namespace=above.namespace or _as_text(body.get("namespace")),
            prefix=above.prefix + _as_text(body.get("namePrefix")),
            suffix=_as_text(body.get("nameSuffix")) + above.suffix,
        )
        for entry in self._list_entries(folder):
            if entry in self._kustomizations:
                self._visit(entry, here, (*seen, folder))
            else:
                self._builds[entry].add(here)
        for patch, target in _list_patches(body):
            self._builds[_join_path(folder, patch)].add(here._replace(is_patch=True, target=target))

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
    """Find the files of patches, each with the name that it is for."""
    for entry in _as_list(body.get("patchesStrategicMerge")):
        if isinstance(entry, str) and "\n" not in entry:
            yield entry, None
    for entry in _as_list(body.get("patches")):
        if isinstance(entry, dict) and isinstance(entry.get("path"), str):
            target = entry.get("target")
            yield entry["path"], None if target is None else _read_target_name(target)


def _read_target_name(target: Any) -> str:
    """Find the one name that a patch is for; a name may be an expression, and a selector fits any number."""
    name = _as_text(_get_mapping({"target": target}, "target").get("name"))
    is_one = bool(_PLAIN_NAME.fullmatch(name)) and not {"labelSelector", "annotationSelector"} & target.keys()
    return name if is_one else ""


def _find_flux_folders(path: str, spec: _Body, folders: Collection[str]) -> Iterator[tuple[str, str]]:
    """Find the folder that Flux builds: its path is from the repository's root, which may be any folder above."""
    wanted, namespace = _as_text(spec.get("path")), _as_text(spec.get("targetNamespace"))
    for above in _list_folders_above(path):
        folder = posixpath.normpath(posixpath.join(above, wanted.lstrip("/")))
        if wanted.strip("./") and folder in folders:
            yield folder, namespace


def _load_mappings(text: str) -> Iterator[_Body]:
    """Read the mappings of a text; one that is no YAML has none, and says nothing of other files."""
    try:
        for body in yaml.load_all(text, Loader=yaml.CSafeLoader):
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

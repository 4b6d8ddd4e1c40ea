"""Read the repository around users' files, and verify edits with the kustomizations that include them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from trimtab.errors import TrimtabError
from trimtab.scan.patches.change import ResourceChange
from trimtab.scan.patches.documents import FileEdits
from trimtab.scan.patches.kustomize import FLUX, KUSTOMIZATIONS, Build, KustomizationTree
from trimtab.scan.patches.kustomize_build import compare_builds, find_kustomize, find_namesakes
from trimtab.scan.patches.patch_folder import update_folder

ENDINGS = (".yaml", ".yml", ".json")


def list_manifests_below(folder: Path) -> Iterator[Path]:
    """List the files below a folder that may hold manifests; hidden folders and links out of the repository are skipped.

    Raises an error if the folder itself is behind such a link.
    """
    check_links([folder], folder)
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "node_modules")
        for name in sorted(names):
            path = Path(place, name)
            leads_out = path.is_symlink() and _find_left(path, folder)
            if (name.endswith(ENDINGS) or name in KUSTOMIZATIONS) and not leads_out:
                yield path


def check_links(paths: Iterable[Path], folder: Path) -> None:
    """Raise for a path behind a link out of its repository: whoever may commit there would choose which file is written.

    Without a repository, links may not lead out of the given folder.
    """
    for path in paths:
        if left := _find_left(path, folder):
            raise TrimtabError(
                f"{path}: a link leads out of {left}, so nothing is written; "
                f"replace the link, or name {os.path.realpath(path)}"
            )


def _find_left(path: Path, folder: Path) -> Path | None:
    """Return the repository, or else the folder, that a path leaves by a link; None if it stays."""
    # The links of a path are part of the question, so its repositories are those of the path as it is written.
    place = Path(os.path.normpath(path.absolute()))
    around = [each for each in (place, *place.parents) if (each / ".git").exists()]
    real = Path(os.path.realpath(path))
    return next(
        (each for each in around or [folder] if not real.is_relative_to(os.path.realpath(each))), None
    )


def read_bytes(path: Path) -> bytes:
    """Read a file of a folder; one that cannot be read says nothing."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


@dataclass(frozen=True)
class Repositories:
    """The repositories that the given paths are in."""

    given: Sequence[Path]

    @cached_property
    def folders(self) -> frozenset[Path]:
        return frozenset(_find_repository(path.resolve()) for path in self.given)

    @cached_property
    def kustomizations(self) -> KustomizationTree:
        texts, paths = {}, []
        for root in self.folders:
            for path in list_manifests_below(root):
                paths.append(str(path))
                if path.name in KUSTOMIZATIONS or FLUX.encode() in read_bytes(path):
                    texts[str(path)] = read_bytes(path).decode(errors="replace")
        return KustomizationTree(texts, paths)

    def find_builds(self, path: str) -> frozenset[Build]:
        return self.kustomizations.find_builds(os.path.realpath(path))

    def drop_changes_without_effect(
        self, edits: FileEdits, changes: Sequence[ResourceChange]
    ) -> list[ResourceChange]:
        """Return the changes that take effect in every kustomization; the others are reported.

        An overlay can override the edited file in ways that only kustomize itself understands.
        """
        command = find_kustomize()
        if command is None or not edits.files:
            return list(changes)
        without_effect: dict[str, str] = {}
        for folder in self.folders:
            edited = {
                Path(path): text
                for path, text in edits.files.items()
                if Path(path).resolve().is_relative_to(folder)
            }
            roots = {
                root for path in edited for root in self.kustomizations.find_roots(os.path.realpath(path))
            }
            if not roots:
                continue
            effects = compare_builds(command, folder, roots, edited)
            edits.notices += [
                f"{root}: kustomize could not build it, so the edits below are not verified: {reason}"
                for root, reason in effects.failures.items()
            ]
            for change in edits.made:
                if root := effects.find_unchanged(change):
                    without_effect[str(change.workload.key)] = root
        edits.ambiguous += [
            f"{key}: skipped: an edit of its manifest changes nothing in what kustomize builds from {root}: "
            "a patch or component there decides; change it there"
            for key, root in without_effect.items()
        ]
        return [each for each in changes if str(each.workload.key) not in without_effect]


def update_component(
    changes: Sequence[ResourceChange], existing: Mapping[str, str], directory: Path
) -> FileEdits:
    """Update a folder of kustomize patches so that they size their own workloads in every build, and no others."""
    edits = update_folder(changes, existing, is_kustomize=True)
    command = find_kustomize()
    if command is None or not edits.files:
        return edits
    repositories = Repositories([directory])
    (folder,) = repositories.folders
    path = directory.resolve()
    roots = repositories.kustomizations.find_roots(str(path))
    if not roots:
        alone, shared = find_namesakes(command, repositories.kustomizations.list_roots(), changes)
        if shared and not alone:
            edits = update_folder(changes, existing, is_kustomize=True, namespaced=True)
        where = (
            f" of {alone[0]}"
            if alone
            else f" of {shared[0]}"
            if shared
            else ", in the overlay that builds them"
        )
        edits.notices.append(f"{directory}: has no effect yet: list it under `components:`{where}")
        return edits
    for namespaced in (False, True):
        edits = update_folder(changes, existing, is_kustomize=True, namespaced=namespaced)
        effects = compare_builds(
            command, folder, roots, {path / name: text for name, text in edits.files.items()}
        )
        others = effects.find_others(changes)
        unchanged = {root: each for each in edits.made if (root := effects.find_unchanged(each))}
        if not others and not unchanged:
            return edits
    problems = [
        f"{directory}: {root}: would change {each} too; give each overlay its own" for root, each in others
    ]
    problems += [
        f"{each.workload.key}: {root} builds it as before: a patch there comes after the component and decides; "
        "change that patch, or list the component in the kustomization above"
        for root, each in unchanged.items()
    ]
    return FileEdits(ambiguous=problems)


def _find_repository(path: Path) -> Path:
    """Find the folder of the repository; where there is none, the folder that is given or that the file is in."""
    folder = path if path.is_dir() else path.parent
    return next((each for each in (folder, *folder.parents) if (each / ".git").exists()), folder)

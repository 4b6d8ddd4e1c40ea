"""Build kustomizations before and after an edit with the user's own kustomize, to see what the edit really changes.

A repository can decide the size of a container in many places: patches in lines, JSON patches, components, replacements.
Only kustomize knows which of them wins.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from trimtab.api.errors import QuantityError
from trimtab.errors import TrimtabError
from trimtab.kube.kinds.pods import Resources
from trimtab.printable import escape_invisible
from trimtab.scan.patches.change import ResourceChange
from trimtab.yaml_documents import load_yaml_documents

_TIMEOUT = 30.0
"""The seconds for one build: a kustomization may name a remote one, which kustomize fetches."""
_COMMANDS = (("kustomize", "build"), ("kubectl", "kustomize"))
_CONTAINER_LISTS = ("initContainers", "containers")


class BuiltContainer(NamedTuple):
    """A container of an object that a kustomization builds; the namespace is empty if none sets it."""

    kind: str
    namespace: str
    name: str
    container: str

    def belongs_to(self, change: ResourceChange) -> bool:
        workload = change.workload
        return (self.kind, self.name) == (workload.resource.kind, workload.name) and self.namespace in {
            workload.namespace,
            "",
        }

    def __str__(self) -> str:
        owner = "/".join(filter(None, (self.namespace, self.name)))
        return f"{self.kind} {owner} {self.container}"


@dataclass(slots=True)
class BuildEffects:
    """The difference that an edit makes in what kustomizations build."""

    changed: dict[str, set[BuiltContainer]] = field(default_factory=dict)
    """The containers with other resources after the edit, by kustomization."""
    built: dict[str, set[BuiltContainer]] = field(default_factory=dict)
    """All containers, by kustomization."""
    failures: dict[str, str] = field(default_factory=dict)
    """The reason for each kustomization that could not be built."""

    def find_unchanged(self, change: ResourceChange) -> str | None:
        """Find a kustomization that builds the workload, and builds it as before; None if there is none."""
        names = change.after.keys()
        for root, built in self.built.items():
            own = {each for each in built if each.belongs_to(change) and each.container in names}
            if own and not own & self.changed[root]:
                return root
        return None

    def find_others(self, changes: Sequence[ResourceChange]) -> list[tuple[str, BuiltContainer]]:
        """Find the containers that change although none of the changes is about them."""
        return sorted(
            (root, each)
            for root, changed in self.changed.items()
            for each in changed
            if not any(each.belongs_to(change) for change in changes)
        )


def find_kustomize() -> Sequence[str] | None:
    """Find the command that builds a kustomization; None if none is installed."""
    return next((command for command in _COMMANDS if shutil.which(command[0])), None)


def compare_builds(
    command: Sequence[str], repository: Path, roots: Collection[str], edited: Mapping[Path, str]
) -> BuildEffects:
    """Build kustomizations of a repository as they are and with edited files, and compare their containers.

    The repository itself is not written to: the edit is tried on a copy.
    """
    effects = BuildEffects()
    with tempfile.TemporaryDirectory(prefix="trimtab-kustomize-") as folder:
        copy = Path(folder, "repository")
        _copy_tree(repository, copy)
        for path, text in edited.items():
            place = copy / path.resolve().relative_to(repository)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.unlink(missing_ok=True)  # it may be a link to the user's own file
            place.write_text(text)
        for root in sorted(roots):
            try:
                before = _build(command, Path(root))
                after = _build(command, copy / Path(root).relative_to(repository))
            except TrimtabError as error:
                effects.failures[root] = str(error)
            else:
                effects.built[root] = {*before, *after}
                effects.changed[root] = {
                    each for each in effects.built[root] if before.get(each) != after.get(each)
                }
    return effects


def find_namesakes(
    command: Sequence[str], roots: Collection[str], changes: Sequence[ResourceChange]
) -> tuple[list[str], list[str]]:
    """Find the kustomizations that build the workloads of changes: those without and with namesakes elsewhere."""
    wanted = {(each.workload.resource.kind, each.workload.name) for each in changes}
    alone: list[str] = []
    shared: list[str] = []
    for root in sorted(roots):
        try:
            built = _build(command, Path(root))
        except TrimtabError:
            continue
        own = {each for each in built if any(each.belongs_to(change) for change in changes)}
        if not own:
            continue
        is_shared = any((each.kind, each.name) in wanted for each in built.keys() - own)
        (shared if is_shared else alone).append(root)
    return alone, shared


def _copy_tree(source: Path, target: Path) -> None:
    """Copy a tree by links, which takes no space; where the file system refuses them, by content."""
    ignored = shutil.ignore_patterns(".git", "node_modules")
    try:
        shutil.copytree(source, target, symlinks=True, ignore=ignored, copy_function=os.link)
    except (shutil.Error, OSError):
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target, symlinks=True, ignore=ignored)


def _build(command: Sequence[str], folder: Path) -> dict[BuiltContainer, Resources | None]:
    try:
        done = subprocess.run(  # noqa: S603 - the user's own kustomize
            [*command, str(folder)],
            capture_output=True,
            check=False,
            timeout=_TIMEOUT,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise TrimtabError(f"no answer within {_TIMEOUT:.0f} s") from None
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        raise TrimtabError(escape_invisible(lines[-1] if lines else f"exit code {done.returncode}"))
    try:
        objects = load_yaml_documents(done.stdout)
    except yaml.YAMLError as error:
        raise TrimtabError(f"its output is not YAML: {error}") from None
    return {key: resources for body in objects for key, resources in _read_containers(body)}


def _read_containers(body: Any) -> Iterator[tuple[BuiltContainer, Resources | None]]:
    metadata, kind = _get_mapping(body, "metadata"), str(_get(body, "kind"))
    above = ("spec", "jobTemplate") if kind == "CronJob" else ()
    spec = _get_mapping(body, *above, "spec", "template", "spec")
    for each in (item for name in _CONTAINER_LISTS for item in spec.get(name) or ()):
        key = BuiltContainer(
            kind, str(metadata.get("namespace") or ""), str(metadata.get("name")), str(_get(each, "name"))
        )
        try:
            yield (
                key,
                Resources.parse(
                    _get_mapping(each, "resources", "requests"), _get_mapping(each, "resources", "limits")
                ),
            )
        except QuantityError:  # a variable that is substituted later
            yield key, None


def _get(body: Any, key: str) -> Any:
    return body.get(key) if isinstance(body, dict) else None


def _get_mapping(body: Any, *keys: str) -> dict[str, Any]:
    for key in keys:
        body = _get(body, key)
    return body if isinstance(body, dict) else {}

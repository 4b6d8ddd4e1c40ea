"""Match the objects in users' files with the objects of a cluster that they create.

A document belongs to a workload only if it names it: by kind, name and namespace, or through the kustomizations that
include its file. If several documents match, or one matches several workloads, the location is ambiguous and not edited.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from yaml.nodes import MappingNode, Node

from trimtab.errors import TrimtabError
from trimtab.kube.kinds.pods import Resources
from trimtab.scan.patches.change import AmountEdits, ResourceChange
from trimtab.scan.patches.kustomize import UNBUILT, Build
from trimtab.scan.patches.yaml_edit import (
    Splice,
    TemplateError,
    YamlText,
    find_child,
    scalar_text,
    sequence_items,
)

FindBuilds = Callable[[str], frozenset[Build]]
"""Callback that finds what the kustomizations build from a file."""


def find_no_builds(_path: str) -> frozenset[Build]:
    """Take every file as one that no kustomization includes."""
    return UNBUILT


class DocumentOwner(NamedTuple):
    """An object that a document creates or patches; an empty namespace or name is not given by the file."""

    root: str
    namespace: str
    name: str


@dataclass(frozen=True, eq=False, slots=True)
class YamlDocument:
    """An object in one of the files."""

    text: YamlText
    node: Node
    kind: tuple[str, str]
    """The API group and the kind."""
    owners: frozenset[DocumentOwner]
    is_patch: bool
    is_named: bool
    """True if the user named the file itself, not only a folder above it."""

    def is_owned_by(self, namespace: str, name: str) -> bool:
        return any((each.namespace, each.name) == (namespace, name) for each in self.owners)

    def __str__(self) -> str:
        return f"{self.text.where}, line {self.node.start_mark.line + 1}"


class EditLocation(NamedTuple):
    """A mapping that holds, or may get, the resources of a container under a key."""

    document: YamlDocument
    owner: MappingNode
    path: tuple[str, ...]
    """The keys below the mapping; the last one is that of the resources."""

    @property
    def resources(self) -> Node | None:
        return find_child(self.owner, *self.path)


@dataclass(slots=True)
class FileEdits:
    """The edited files, and everything that was not edited."""

    files: dict[str, str] = field(default_factory=dict)
    """The new text of each file that changes."""
    not_found: list[str] = field(default_factory=list)
    """Workloads that none of the files is about, each with the reason."""
    ambiguous: list[str] = field(default_factory=list)
    """The skipped changes whose location is not certain, each with the reason and the remedy."""
    made: list[ResourceChange] = field(default_factory=list, compare=False)
    """The changes that the new texts make."""
    notices: list[str] = field(default_factory=list)
    """Facts about edits that were made, for users to check."""

    def add_plan(self, target: str, place: EditLocation, plan: AmountEdits) -> None:
        """Report the amounts that the plan leaves alone, and those that the file and the cluster disagree about."""
        self.ambiguous += [f"{target}: skipped: {place.document}: {each}" for each in plan.variables]
        self.notices += [
            f"{target}: {place.document}: {each}; check that nothing else sets it"
            for each in plan.differences
        ]

    def add_splices(self, splices: Mapping[YamlText, Sequence[Splice]]) -> None:
        """Apply the splices of files; a file that would change in anything but resources is skipped."""
        for text, made in splices.items():
            try:
                new = text.apply_checked(list(made))
            except TrimtabError as error:
                self.ambiguous.append(f"{text.where}: skipped: {error}")
            else:
                if new != text.text:
                    self.files[text.where] = new


class AmbiguousLocation(TrimtabError):
    """The location of a container's resources is not certain."""


def read_documents(
    files: Mapping[str, str], builds: FindBuilds, named: Collection[str]
) -> tuple[list[YamlDocument], FileEdits]:
    """Parse the files; those that cannot be parsed are reported and skipped."""
    found: list[YamlDocument] = []
    edits = FileEdits()
    for where, content in files.items():
        try:
            text = YamlText(content, where=where)
        except TemplateError as error:
            # A folder may hold the templates of a chart, which are not edited.
            if where in named:
                edits.ambiguous.append(str(error))
            else:
                edits.not_found.append(f"{where}: skipped: the file is a template, not plain YAML")
            continue
        except TrimtabError as error:
            edits.ambiguous.append(str(error))
            continue
        found += [
            _build_document(text, node, builds(where), is_named=where in named)
            for node in _list_objects(text.roots)
        ]
    return found, edits


def find_documents(documents: Iterable[YamlDocument], namespace: str, name: str) -> list[YamlDocument]:
    """Find the documents of an object: those that name its namespace, or else those that leave it open."""
    # A base often leaves the namespace to its overlays, so a document without one may belong to several workloads.
    there = list(documents)
    return [each for each in there if each.is_owned_by(namespace, name)] or [
        each for each in there if each.is_owned_by("", name)
    ]


def choose_location(places: Sequence[EditLocation]) -> EditLocation:
    """Choose the location that takes effect; raises `AmbiguousLocation` if several do."""
    patches = [each for each in places if each.document.is_patch]
    # A patch that sets resources overrides the base, and one that sets none leaves the base in effect.
    effective = (
        [each for each in patches if each.resources is not None]
        or [each for each in places if not each.document.is_patch]
        or patches
    )
    if len(effective) > 1:
        raise AmbiguousLocation(
            f"its resources are in {' and in '.join(str(each.document) for each in effective)}; "
            "name the right file with --file"
        )
    (found,) = effective
    if _is_shared(found.document) and not found.document.is_named:
        own = [each for each in patches if not _is_shared(each.document)]
        return own[0] if len(own) == 1 else found
    return found


def check_owners(place: EditLocation, wanted: Mapping[tuple[str, str], Resources]) -> None:
    """Reject a location that sizes objects with different recommendations, or objects that are not selected.

    `wanted` maps the namespace and name of each object to its recommended resources.
    """
    document = place.document
    if len(set(wanted.values())) > 1:
        names = " and ".join("/".join(key) for key in wanted)
        raise AmbiguousLocation(
            f"{document} sizes {names}, which have different recommendations; choose one with --namespace"
        )
    if document.is_named or not _is_shared(document):
        return
    builds = Counter((each.namespace, each.name) for each in document.owners)
    others = [
        key
        for key, count in builds.items()
        if count > 1 or not (key in wanted or _has_open_namespace(key, wanted))
    ]
    if others:
        roots = sorted(
            {each.root or document.text.where for each in document.owners if each[1:] in set(others)}
        )
        raise AmbiguousLocation(
            f"{document} is used by {', '.join(roots[:3])}{' and others' * (len(roots) > 3)} too; write a patch for one of them with --format kustomize, "
            "or name the file with --file"
        )


def _has_open_namespace(key: tuple[str, str], wanted: Collection[tuple[str, str]]) -> bool:
    return not key[0] and any(name == key[1] for _, name in wanted)


def _is_shared(document: YamlDocument) -> bool:
    return len(document.owners) > 1


def _build_document(text: YamlText, node: Node, builds: Iterable[Build], *, is_named: bool) -> YamlDocument:
    name, namespace = (scalar_text(find_child(node, "metadata", key)) for key in ("name", "namespace"))
    owners = set()
    is_patch = False
    for build in builds:
        own = name if build.target is None else build.target
        full = f"{build.prefix}{own}{build.suffix}" if own else ""
        owners.add(DocumentOwner(build.root, build.namespace or namespace, full))
        is_patch |= build.is_patch
    group = scalar_text(find_child(node, "apiVersion")).rpartition("/")[0]
    return YamlDocument(
        text,
        node,
        (group, scalar_text(find_child(node, "kind"))),
        frozenset(owners),
        is_patch=is_patch,
        is_named=is_named,
    )


def _list_objects(roots: Sequence[Node]) -> Iterator[Node]:
    for root in roots:
        yield from (
            sequence_items(find_child(root, "items"))
            if scalar_text(find_child(root, "kind")).endswith("List")
            else [root]
        )

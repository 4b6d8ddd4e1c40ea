"""Find the Helm release that a document has values for, and the release of a workload.

Flux's HelmRelease and Argo CD's Application name their release and its namespace. A plain values file names neither.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from yaml.nodes import MappingNode, Node

from trimtab.kube.kinds.workloads import Workload
from trimtab.scan.patches.documents import YamlDocument
from trimtab.scan.patches.yaml_edit import (
    Splice,
    YamlText,
    find_child,
    mapping_items,
    scalar_text,
    sequence_items,
)

HELM_RELEASE = ("helm.toolkit.fluxcd.io", "HelmRelease")
APPLICATION = ("argoproj.io", "Application")
KINDS = (HELM_RELEASE[1], APPLICATION[1])

_INSTANCE = "app.kubernetes.io/instance"
_FLUX_NAME, _FLUX_NAMESPACE = (f"{HELM_RELEASE[0]}/{part}" for part in ("name", "namespace"))
_ARGO_INSTANCE = "argocd.argoproj.io/instance"
_GENERIC_KEYS = {"controllers", "containers"}
"""Generic keys above names in values: `controllers.web.containers.app.resources`."""


@dataclass(frozen=True, eq=False, slots=True)
class HelmValues:
    """The Helm values that a document holds."""

    document: YamlDocument
    text: YamlText
    """The text that holds the values: the document's own, or the one embedded in `block`."""
    root: MappingNode
    block: Node | None = None
    chart: str = ""
    """The name of the chart; empty if the document does not give it."""
    release: str | None = None
    """The name of the release; None for the default of the document's kind."""
    namespace: str = ""
    """The namespace of the release; empty if the document does not give it."""

    @property
    def is_plain(self) -> bool:
        """True for a plain values file, which names no release."""
        return self.document.kind not in {HELM_RELEASE, APPLICATION}

    def to_file_splices(self, made: Sequence[Splice]) -> Sequence[Splice]:
        """Turn splices of the values into splices of the file."""
        return (
            [self.document.text.replace_embedded(self.block, self.text.apply_checked(made))]
            if self.block and made
            else made
        )

    def find_owner(self, workload: Workload) -> tuple[str, str] | None:
        """Find the namespace and name of the document's owner that creates the workload; None if there is none."""
        if self.document.kind == APPLICATION:
            return self._find_application_owner(workload)
        return self._find_release_owner(workload)

    def has_namespace(self, owner: tuple[str, str]) -> bool:
        """Return whether the namespace of an owner's release is known."""
        return bool(self.namespace or (owner[0] and self.document.kind != APPLICATION))

    def get_release_name(self, owner: tuple[str, str]) -> str:
        """Return the name of the release that an owner creates."""
        if self.release is not None:
            return self.release
        _, name = owner
        if self.document.kind == HELM_RELEASE and self.namespace:
            return f"{self.namespace}-{name}"
        return name

    def _find_release_owner(self, workload: Workload) -> tuple[str, str] | None:
        labels = dict(workload.labels)
        if _ARGO_INSTANCE in labels:
            return None
        for _, namespace, name in sorted(self.document.owners, reverse=True):
            if _FLUX_NAME in labels:  # Flux labels every object with its HelmRelease
                where, there = namespace, labels.get(_FLUX_NAMESPACE, "")
                is_its = name == labels[_FLUX_NAME]
            else:
                where, there = self.namespace or namespace, workload.namespace
                is_its = self.get_release_name((namespace, name)) == labels.get(_INSTANCE, workload.name)
            # A file without a namespace only counts if the user named it.
            if is_its and (where == there or (not where and self.document.is_named)):
                return namespace, name
        return None

    def _find_application_owner(self, workload: Workload) -> tuple[str, str] | None:
        labels = dict(workload.labels)
        if _FLUX_NAME in labels or self.namespace not in {workload.namespace, ""}:
            return None
        for _, namespace, name in sorted(self.document.owners):
            # Argo CD labels objects with the Application, charts with the release; both may use the same key.
            if _ARGO_INSTANCE in labels:
                is_its = labels[_ARGO_INSTANCE] == name
            elif _INSTANCE in labels:
                is_its = labels[_INSTANCE] in {name, self.get_release_name((namespace, name))}
            else:
                is_its = workload.name == self.get_release_name((namespace, name))
            if is_its:
                return namespace, name
        return None

    def path_names_container(
        self, path: Sequence[str], workload: Workload, container: str, release: str
    ) -> bool:
        """Return whether every key of a path is named after the workload or the container.

        `controllers.web.containers.app.resources` is the container app of the workload web; `resources` alone is the
        only container of the workload that is named after the release.
        """
        *above, last = path
        if last != "resources":
            return False
        role = next((each.role for each in workload.containers if each.name == container), "")
        lists = _GENERIC_KEYS | ({"initcontainers"} if role == "sidecar" else set())
        parts = [
            part for part in map(_normalize_key, above) if part not in lists and part != workload.kind.lower()
        ]
        full = self._build_fullname(release)
        heads = [f"{head}-" for head in (full, release) if workload.name.startswith(f"{head}-")]
        own = {_normalize_key(workload.name)} | {
            _normalize_key(workload.name.removeprefix(head)) for head in heads[:1]
        }
        if not set(parts) <= own | {_normalize_key(container)}:
            return False
        # A container's name alone may belong to another workload, unless it is in a list of containers.
        is_main = workload.name == full and (not parts or not lists.isdisjoint(map(_normalize_key, above)))
        mains = [each.name for each in workload.containers if each.role == "main"]
        return (is_main or not own.isdisjoint(parts)) and (
            _normalize_key(container) in parts or mains == [container]
        )

    def _build_fullname(self, release: str) -> str:
        """Build the name that charts from `helm create` give to their main workload."""
        given = scalar_text(find_child(self.root, "fullnameOverride"))
        if given:
            return given
        return release if self.chart in release else f"{release}-{self.chart}"


def find_values(document: YamlDocument) -> Iterator[HelmValues]:
    """Find the Helm values of a document; other kinds of documents have none."""
    node = document.node
    spec = find_child(node, "spec")
    if document.kind == HELM_RELEASE:
        values = find_child(spec, "values")
        if isinstance(values, MappingNode):
            yield HelmValues(
                document,
                document.text,
                values,
                chart=posixpath.basename(scalar_text(find_child(spec, "chart", "spec", "chart"))),
                release=scalar_text(find_child(spec, "releaseName")) or None,
                namespace=scalar_text(find_child(spec, "targetNamespace")),
            )
    elif document.kind == APPLICATION:
        for source in [find_child(spec, "source"), *sequence_items(find_child(spec, "sources"))]:
            yield from _find_source_values(
                document, source, scalar_text(find_child(spec, "destination", "namespace"))
            )
    elif isinstance(node, MappingNode) and mapping_items(node) and find_child(node, "apiVersion") is None:
        yield HelmValues(document, document.text, node)


def _find_source_values(document: YamlDocument, source: Node | None, namespace: str) -> Iterator[HelmValues]:
    helm = find_child(source, "helm")
    block, inline = find_child(helm, "values"), find_child(helm, "valuesObject")
    embedded = document.text.parse_embedded(block)
    found: list[tuple[YamlText, Node | None, Node | None]] = [(document.text, inline, None)]
    # Argo CD ignores `values` if there is a `valuesObject`.
    if embedded and inline is None and len(embedded.roots) == 1:
        found = [(embedded, embedded.roots[0], block)]
    for text, root, origin in found:
        if isinstance(root, MappingNode):
            yield HelmValues(
                document,
                text,
                root,
                block=origin,
                chart=scalar_text(find_child(source, "chart")),
                release=scalar_text(find_child(helm, "releaseName")) or None,
                namespace=namespace,
            )


def _normalize_key(key: str) -> str:
    return key.replace("-", "").replace("_", "").lower()

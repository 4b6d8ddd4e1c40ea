"""The objects of the fake API server: their versions, their history, and what a write does to them."""

from __future__ import annotations

import json
import secrets
import uuid
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from harness.fake_api.kinds import (
    BUILT_IN,
    CRDS,
    NAMESPACES,
    PODS,
    ServedKind,
    kinds_of_definition,
    set_defaults,
)
from harness.fake_api.patches import manage_update
from harness.fake_api.status import (
    ApiFailure,
    already_exists,
    bad_request,
    conflict,
    expired,
    invalid,
    not_found,
    unknown_path,
)

Object = dict[str, Any]
Key = tuple[str, str]
"""The namespace, empty for objects of the cluster, and the name."""

ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


_QUARTER = {"maxSurge": "25%", "maxUnavailable": "25%"}
_SPEC_DEFAULTS: dict[str, Object] = {
    "pods": {"restartPolicy": "Always"},
    "deployments": {"replicas": 1, "strategy": {"type": "RollingUpdate", "rollingUpdate": _QUARTER}},
    "statefulsets": {"replicas": 1, "updateStrategy": {"type": "RollingUpdate"}},
    "daemonsets": {"updateStrategy": {"type": "RollingUpdate"}},
    "replicasets": {"replicas": 1},
    "jobs": {"parallelism": 1, "completions": 1},
    "cronjobs": {"suspend": False},
    "horizontalpodautoscalers": {"minReplicas": 1},
}


@dataclass(frozen=True)
class Change:
    """One write, as watches report it."""

    version: int
    kind: ServedKind
    type: Literal["ADDED", "MODIFIED", "DELETED"]
    new: Object
    old: Object | None


class ObjectStore:
    """All objects by their resource; `on_change` receives the writes, in order."""

    def __init__(self) -> None:
        self.version = 1000
        self.compacted = 1000
        self.kinds: list[ServedKind] = list(BUILT_IN)
        self.history: list[Change] = []
        self.on_change: list[Callable[[Change], None]] = []
        self._objects: dict[tuple[str, str], dict[Key, Object]] = {}
        self._snapshots: dict[int, list[Object]] = {}
        for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
            self.create(NAMESPACES, "", {"metadata": {"name": name}})

    # Kinds

    def find_kind(self, group: str, version: str, plural: str) -> ServedKind:
        for kind in self.kinds:
            if (kind.group, kind.version, kind.plural) == (group, version, plural):
                return kind
        raise unknown_path()

    def kind_named(self, plural: str) -> ServedKind:
        return next(kind for kind in BUILT_IN if kind.plural == plural)

    # Reading

    def find(self, kind: ServedKind, namespace: str, name: str) -> Object | None:
        return self._all(kind).get((namespace, name))

    def get(self, kind: ServedKind, namespace: str, name: str) -> Object:
        found = self.find(kind, namespace, name)
        if found is None:
            raise not_found(kind, name)
        return found

    def select(self, kind: ServedKind, namespace: str | None = None) -> list[Object]:
        """Return the objects of a namespace or of all, in the order of their names."""
        return [
            body
            for (where, _), body in sorted(self._all(kind).items())
            if namespace is None or where == namespace
        ]

    def snapshot(self, version: int, bodies: list[Object]) -> None:
        """Keep a list for the pages that follow."""
        self._snapshots[version] = bodies

    def find_snapshot(self, version: int) -> list[Object] | None:
        return self._snapshots.get(version)

    def compact(self) -> None:
        """Forget every version but the present one, as the API server does itself every five minutes."""
        self.compacted = self.version
        self.history.clear()
        self._snapshots.clear()

    def changes_since(self, version: int) -> Iterator[Change]:
        if version < self.compacted:
            raise expired(f"too old resource version: {version} ({self.compacted})")
        return iter([change for change in self.history if change.version > version])

    # Writing

    def create(
        self,
        kind: ServedKind,
        namespace: str,
        given: Object,
        *,
        manager: str = "unknown",
        dry_run: bool = False,
    ) -> Object:
        body = deepcopy(given)
        metadata = body.setdefault("metadata", {})
        if not isinstance(metadata, dict):
            raise bad_request(f"{kind.kind} in version {kind.version!r} cannot be handled as a {kind.kind}")
        name = _set_name(kind, metadata)
        if kind.namespaced:
            if metadata.setdefault("namespace", namespace) != namespace:
                raise bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request"
                )
            if self.find(NAMESPACES, "", namespace) is None:
                raise not_found(NAMESPACES, namespace)
        if (kind.namespaced and namespace, name) in self._all(kind) or self.find(kind, namespace, name):
            raise already_exists(kind, name)
        if metadata.get("resourceVersion"):
            raise bad_request("resourceVersion should not be set on objects to be created")
        metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": now()}
        if kind.has_status:
            body.pop("status", None)
        self._admit(kind, body)
        if "managedFields" not in metadata:
            manage_update(kind, None, body, manager=manager, subresource="")
        return self._store(kind, namespace if kind.namespaced else "", body, None, dry_run=dry_run)

    def update(
        self,
        kind: ServedKind,
        namespace: str,
        given: Object,
        *,
        subresource: str = "",
        manager: str = "unknown",
        dry_run: bool = False,
        managed: bool = False,
    ) -> Object:
        """Replace an object, or the part of it that a subresource is; `managed` if the owners of fields are set."""
        body, name = deepcopy(given), given["metadata"]["name"]
        old = self.get(kind, namespace, name)
        version, uid = body["metadata"].get("resourceVersion"), body["metadata"].get("uid")
        if version and version != old["metadata"]["resourceVersion"]:
            raise conflict(kind, name)
        if uid and uid != old["metadata"]["uid"]:
            raise conflict(
                kind,
                name,
                f"Precondition failed: UID in precondition: {uid}, UID in object meta: {old['metadata']['uid']}",
            )
        if subresource == "status":
            metadata = {**old["metadata"], "managedFields": body["metadata"].get("managedFields", [])}
            body = {**old, "metadata": metadata, "status": body.get("status") or {}}
        elif kind.has_status:
            body.pop("status", None)
            if "status" in old:
                body["status"] = old["status"]
        for field in ("uid", "creationTimestamp", "namespace", "deletionTimestamp", "generation"):
            if field in old["metadata"]:
                body["metadata"][field] = old["metadata"][field]
        self._admit(kind, body, old)
        if not managed:
            manage_update(kind, old, body, manager=manager, subresource=subresource)
        return self._store(kind, namespace, body, old, dry_run=dry_run)

    def set_status(self, kind: ServedKind, body: Object, status: Object) -> Object:
        """Write the status of an object, as its controller does."""
        where = body["metadata"].get("namespace", "")
        live = self.get(kind, where, body["metadata"]["name"])
        merged = {**live, "status": {**live.get("status", {}), **status}}
        return self.update(kind, where, merged, subresource="status", manager="kube-controller-manager")

    def delete(
        self,
        kind: ServedKind,
        namespace: str,
        name: str,
        *,
        preconditions: Object | None = None,
        orphan: bool = False,
        dry_run: bool = False,
    ) -> Object:
        old = self.get(kind, namespace, name)
        for field, key in (("uid", "uid"), ("resourceVersion", "resourceVersion")):
            wanted = (preconditions or {}).get(field)
            if wanted and wanted != old["metadata"][key]:
                raise conflict(
                    kind,
                    name,
                    f"the {field} in the precondition ({wanted}) does not match the {field} in record ({old['metadata'][key]})",
                )
        if dry_run:
            return old
        if old["metadata"].get("finalizers"):
            if "deletionTimestamp" in old["metadata"]:
                return old
            metadata = {**old["metadata"], "deletionTimestamp": now()}
            return self._store(kind, namespace, {**old, "metadata": metadata}, old)
        return self._remove(kind, namespace, old, orphan=orphan)

    # Inside

    def _all(self, kind: ServedKind) -> dict[Key, Object]:
        return self._objects.setdefault((kind.group, kind.plural), {})

    def _admit(self, kind: ServedKind, body: Object, old: Object | None = None) -> None:
        """Set defaults and check what our tests rely on."""
        body["apiVersion"], body["kind"] = kind.api_version, kind.kind
        metadata = body["metadata"]
        if kind.is_custom:
            set_defaults(body, {"properties": kind.schema.get("properties", {})})
        if "spec" in body:
            metadata["generation"] = (
                1 if old is None else old["metadata"].get("generation", 1) + (old.get("spec") != body["spec"])
            )
        if kind == NAMESPACES:
            metadata.setdefault("labels", {})["kubernetes.io/metadata.name"] = metadata["name"]
            body["status"] = {"phase": "Active"}
        elif kind == PODS:
            if not body.get("spec", {}).get("containers"):
                raise invalid(kind, metadata["name"], "spec.containers", "Required value")
            body.setdefault("status", {"phase": "Pending", "qosClass": qos_class(body)})
        elif kind == CRDS and old is None:
            conditions = [{"type": kind_, "status": "True"} for kind_ in ("NamesAccepted", "Established")]
            body["status"] = {"conditions": conditions, "acceptedNames": body["spec"]["names"]}
        if not kind.is_custom:
            for field, value in _SPEC_DEFAULTS.get(kind.plural, {}).items():
                body["spec"].setdefault(field, deepcopy(value))

    def _store(
        self, kind: ServedKind, namespace: str, body: Object, old: Object | None, *, dry_run: bool = False
    ) -> Object:
        name = body["metadata"]["name"]
        if old is not None and _content(old) == _content(body):
            return old
        if dry_run:
            return body
        if (
            old is not None
            and "deletionTimestamp" in body["metadata"]
            and not body["metadata"].get("finalizers")
        ):
            return self._remove(kind, namespace, old)
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        self._all(kind)[namespace, name] = body
        if kind == CRDS:
            self._define(body)
        self._tell(Change(self.version, kind, "ADDED" if old is None else "MODIFIED", body, old))
        if kind == NAMESPACES and old is None:
            self.create(self.kind_named("serviceaccounts"), name, {"metadata": {"name": "default"}})
            authority = {"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": ""}}
            self.create(self.kind_named("configmaps"), name, authority)
        return self._all(kind).get((namespace, name), body)

    def _remove(self, kind: ServedKind, namespace: str, old: Object, *, orphan: bool = False) -> Object:
        name = old["metadata"]["name"]
        self.version += 1
        gone = deepcopy(old)
        gone["metadata"]["resourceVersion"] = str(self.version)
        del self._all(kind)[namespace, name]
        self._tell(Change(self.version, kind, "DELETED", gone, old))
        for other, dependent in self._dependents(old["metadata"]["uid"]):
            where = dependent["metadata"].get("namespace", "")
            if orphan:
                freed = deepcopy(dependent)
                freed["metadata"]["ownerReferences"] = [
                    each
                    for each in freed["metadata"]["ownerReferences"]
                    if each["uid"] != old["metadata"]["uid"]
                ]
                self._store(other, where, freed, dependent)
            elif self.find(other, where, dependent["metadata"]["name"]):
                self._remove(other, where, dependent)
        if kind == CRDS:
            self._undefine(old)
        if kind == NAMESPACES:
            for each in [each for each in self.kinds if each.namespaced]:
                for body in self.select(each, name):
                    if self.find(each, name, body["metadata"]["name"]):
                        self._remove(each, name, body)
        return gone

    def _dependents(self, uid: str) -> list[tuple[ServedKind, Object]]:
        return [
            (kind, body)
            for kind in self.kinds
            for body in self.select(kind)
            if any(each["uid"] == uid for each in body["metadata"].get("ownerReferences") or ())
        ]

    def _define(self, definition: Object) -> None:
        self._forget_kinds(definition)
        self.kinds += kinds_of_definition(definition)

    def _undefine(self, definition: Object) -> None:
        for kind in kinds_of_definition(definition)[:1]:
            for body in self.select(kind):
                self._remove(kind, body["metadata"].get("namespace", ""), body)
        self._forget_kinds(definition)

    def _forget_kinds(self, definition: Object) -> None:
        spec = definition["spec"]
        whose = (spec["group"], spec["names"]["plural"])
        self.kinds = [kind for kind in self.kinds if (kind.group, kind.plural) != whose]

    def _tell(self, change: Change) -> None:
        self.history.append(change)
        for listener in list(self.on_change):
            listener(change)


def _set_name(kind: ServedKind, metadata: Object) -> str:
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = metadata["generateName"] + random_suffix()
    if not metadata.get("name"):
        raise invalid(kind, "", "metadata.name", "Required value: name or generateName is required")
    return str(metadata["name"])


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def random_suffix() -> str:
    return "".join(secrets.choice(ALPHABET) for _ in range(5))


def qos_class(pod: Object) -> str:
    """Return the QoS class of a pod by its requests and limits."""
    sizes = [each.get("resources") or {} for each in pod["spec"]["containers"]]
    if not any(size.get("requests") or size.get("limits") for size in sizes):
        return "BestEffort"
    for size in sizes:
        limits = size.get("limits") or {}
        if not {"cpu", "memory"} <= limits.keys() or (size.get("requests") or limits) != limits:
            return "Burstable"
    return "Guaranteed"


def _content(body: Object) -> str:
    """Return what a write must change to be one: neither a version nor the times of managed fields."""
    metadata = {key: value for key, value in body["metadata"].items() if key != "resourceVersion"}
    managed = [{**each, "time": ""} for each in metadata.get("managedFields") or ()]
    return json.dumps({**body, "metadata": {**metadata, "managedFields": managed}}, sort_keys=True)


__all__ = ["ALPHABET", "ApiFailure", "Change", "Object", "ObjectStore"]

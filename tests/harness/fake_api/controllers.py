"""The controllers that make pods: of Deployments, ReplicaSets, StatefulSets, DaemonSets, Jobs and CronJobs.

They act at once, inside the write that gives them something to do; nothing is scheduled and no container starts.
"""

from __future__ import annotations

import hashlib
import json
from copy import deepcopy
from typing import Any

from harness.fake_api.kinds import NAMESPACES, ServedKind
from harness.fake_api.objects import ALPHABET, Change, Object, ObjectStore, random_suffix

_SCALED = {"replicasets", "statefulsets", "jobs"}
_KIND_BY_NAME = {
    "ReplicaSet": "replicasets",
    "StatefulSet": "statefulsets",
    "DaemonSet": "daemonsets",
    "Job": "jobs",
}


class Controllers:
    """Follows the writes of a store."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._busy = False
        self._queue: list[tuple[ServedKind, str, str]] = []
        store.on_change.append(self._on_change)

    def _on_change(self, change: Change) -> None:
        metadata = change.new["metadata"]
        namespace = metadata.get("namespace", "")
        if change.type != "DELETED" and change.kind.plural in {"deployments", "daemonsets", *_SCALED}:
            self._queue.append((change.kind, namespace, metadata["name"]))
        owner = next((each for each in metadata.get("ownerReferences") or () if each.get("controller")), None)
        if owner is not None:
            plural = {**_KIND_BY_NAME, "Deployment": "deployments"}.get(owner["kind"])
            if plural:
                self._queue.append((self._store.kind_named(plural), namespace, owner["name"]))
        if change.kind.plural == "nodes":
            sets = self._store.kind_named("daemonsets")
            self._queue += [
                (sets, each["metadata"]["namespace"], each["metadata"]["name"])
                for each in self._store.select(sets)
            ]
        if self._busy:
            return
        self._busy = True
        try:
            while self._queue:
                kind, where, name = self._queue.pop(0)
                body = self._store.find(kind, where, name)
                is_there = self._store.find(NAMESPACES, "", where) is not None
                if is_there and body is not None and "deletionTimestamp" not in body["metadata"]:
                    self._reconcile(kind, body)
        finally:
            self._busy = False

    def _reconcile(self, kind: ServedKind, body: Object) -> None:
        match kind.plural:
            case "deployments":
                self._roll_out(kind, body)
            case "daemonsets":
                nodes = [
                    each["metadata"]["name"] for each in self._store.select(self._store.kind_named("nodes"))
                ]
                self._make_pods(
                    kind, body, [f"{body['metadata']['name']}-{_digest(node)[:5]}" for node in nodes]
                )
                self._report(kind, body, desiredNumberScheduled=len(nodes), currentNumberScheduled=len(nodes))
            case "jobs":
                self._make_pods(kind, body, body["spec"]["parallelism"])
                self._report(kind, body, active=len(self._pods(body)))
            case "statefulsets":
                names = [f"{body['metadata']['name']}-{number}" for number in range(body["spec"]["replicas"])]
                self._make_pods(kind, body, names)
                self._report_replicas(kind, body, self._pods(body))
            case _:
                self._make_pods(kind, body, body["spec"]["replicas"])
                self._report_replicas(kind, body, self._pods(body))

    def _roll_out(self, kind: ServedKind, body: Object) -> None:
        """Have a ReplicaSet of the present template with all replicas, and the others without any."""
        metadata, spec = body["metadata"], body["spec"]
        sets = self._store.kind_named("replicasets")
        digest = _digest(json.dumps(spec["template"], sort_keys=True))
        template = deepcopy(spec["template"])
        labels = template.setdefault("metadata", {}).setdefault("labels", {})
        labels["pod-template-hash"] = digest
        name = f"{metadata['name']}-{digest}"
        owned = [each for each in self._store.select(sets, metadata["namespace"]) if _is_owned(each, body)]
        if not any(each["metadata"]["name"] == name for each in owned):
            revision = str(len(owned) + 1)
            wanted = {
                "metadata": {
                    "name": name,
                    "labels": dict(labels),
                    "ownerReferences": [_reference(kind, body)],
                    "annotations": {"deployment.kubernetes.io/revision": revision},
                },
                "spec": {
                    "replicas": spec["replicas"],
                    "selector": {
                        "matchLabels": {
                            **spec["selector"].get("matchLabels", {}),
                            "pod-template-hash": digest,
                        }
                    },
                    "template": template,
                },
            }
            self._store.create(sets, metadata["namespace"], wanted, manager="kube-controller-manager")
        for each in owned:
            replicas = spec["replicas"] if each["metadata"]["name"] == name else 0
            if each["spec"]["replicas"] != replicas:
                changed = {**each, "spec": {**each["spec"], "replicas": replicas}}
                self._store.update(sets, metadata["namespace"], changed, manager="kube-controller-manager")
        made = self._store.find(sets, metadata["namespace"], name)
        self._report_replicas(kind, body, self._pods(made) if made else [])

    def _make_pods(self, kind: ServedKind, body: Object, wanted: int | list[str]) -> None:
        metadata, pods = body["metadata"], self._pods(body)
        kind_of_pods = self._store.kind_named("pods")
        names = [each["metadata"]["name"] for each in pods]
        if isinstance(wanted, int):
            extra = names[wanted:]
            missing = [f"{metadata['name']}-{random_suffix()}" for _ in range(wanted - len(names))]
        else:
            extra = [name for name in names if name not in wanted]
            missing = [name for name in wanted if name not in names]
        for name in extra:
            self._store.delete(kind_of_pods, metadata["namespace"], name)
        template = body["spec"]["template"]
        for name in missing:
            own = {**template.get("metadata", {}), "name": name, "ownerReferences": [_reference(kind, body)]}
            pod = {"metadata": own, "spec": template["spec"]}
            self._store.create(kind_of_pods, metadata["namespace"], pod, manager="kube-controller-manager")

    def _pods(self, owner: Object) -> list[Object]:
        pods = self._store.select(self._store.kind_named("pods"), owner["metadata"]["namespace"])
        return [each for each in pods if _is_owned(each, owner)]

    def _report_replicas(self, kind: ServedKind, body: Object, pods: list[Object]) -> None:
        ready = sum(_is_ready(each) for each in pods)
        found: Object = {"replicas": len(pods), "readyReplicas": ready, "availableReplicas": ready}
        if kind.plural == "deployments":
            state = "True" if ready >= len(pods) else "False"
            found |= {"updatedReplicas": len(pods), "unavailableReplicas": len(pods) - ready}
            found["conditions"] = [
                {"type": "Available", "status": state, "reason": "", "message": ""},
                {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable", "message": ""},
            ]
            kept = (body.get("status") or {}).get("conditions") or ()
            found["conditions"] += [each for each in kept if each["type"] not in {"Available", "Progressing"}]
        self._report(kind, body, **found)

    def _report(self, kind: ServedKind, body: Object, **status: Any) -> None:
        live = self._store.find(kind, body["metadata"]["namespace"], body["metadata"]["name"])
        if live is not None:
            observed = {"observedGeneration": live["metadata"].get("generation", 1)}
            self._store.set_status(kind, live, {**observed, **status})


def _is_owned(body: Object, owner: Object) -> bool:
    references = body["metadata"].get("ownerReferences") or ()
    return any(each["uid"] == owner["metadata"]["uid"] for each in references)


def _reference(kind: ServedKind, owner: Object) -> Object:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _is_ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _digest(text: str) -> str:
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
    found = ""
    for _ in range(9):
        number, place = divmod(number, len(ALPHABET))
        found += ALPHABET[place]
    return found

"""Find the top-level workload of a pod: the object that users write and whose template sizing changes.

An existing pod is resolved by its owner references. Intermediate owners (ReplicaSets, Jobs) change with every rollout
and run, so they are skipped if they have an owner themselves. An owner above a workload, such as an operator's custom
resource, is ignored because it has no containers.

A deleted pod is resolved by its name alone. Controllers name pods by stable rules: the workload's name, an identifier of
the run or template, and five characters of an alphabet without vowels. A name that two workloads could have produced is
assigned to neither, because no owner is better than a wrong one.

Pure: records in, names out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from trimtab.kube.cache.projection import OwnerReference
from trimtab.kube.kinds.metadata import Metadata
from trimtab.kube.kinds.pods import Container, Pod, Role
from trimtab.kube.kinds.workloads import Workload, WorkloadKey

_SAFE_CHARACTER = "[bcdfghjklmnpqrstvwxz2456789]"
_RANDOM_SUFFIX = rf"-{_SAFE_CHARACTER}{{5}}"
_HASH = rf"-{_SAFE_CHARACTER}{{1,10}}"
_INDEX = r"-\d{1,6}"
_SCHEDULED = r"-\d{8,11}"

MAX_NAME_LENGTH = 63
_TRUNCATED_LENGTH = MAX_NAME_LENGTH - 5
"""The length to which a name is cut before five characters are appended; the dash may be lost."""

_RULES = {
    "Deployment": (_HASH + _RANDOM_SUFFIX,),
    "ReplicaSet": (_RANDOM_SUFFIX,),
    "DaemonSet": (_RANDOM_SUFFIX,),
    "StatefulSet": (_INDEX,),
    "Job": (_RANDOM_SUFFIX, _INDEX + _RANDOM_SUFFIX),
    "CronJob": (_SCHEDULED + _RANDOM_SUFFIX, _SCHEDULED + _INDEX + _RANDOM_SUFFIX),
}
_ANY_RULE = (_HASH + _RANDOM_SUFFIX, _RANDOM_SUFFIX, _INDEX)
"""The rules for other kinds: pods of their own ReplicaSets, pods without one, or numbered pods."""

_RULE_PATTERNS = {kind: re.compile("|".join(rules)) for kind, rules in _RULES.items()}
_ANY_RULE_PATTERN = re.compile("|".join(_ANY_RULE))
_TRUNCATED_HASH = re.compile(rf"-{_SAFE_CHARACTER}{{0,10}}-?")
_TRUNCATED_SCHEDULE = re.compile(r"-\d{5,11}(-\d{0,6})?-?")
"""The truncated schedule: a CronJob's name has at most 52 characters, so at least this much of it remains."""


def build_pod_name_pattern(kind: str, name: str) -> str:
    """Return a regular expression that matches the full names of a workload's pods."""
    return f"{re.escape(name)}({'|'.join(_RULES.get(kind, _ANY_RULE))})"


@dataclass(slots=True)
class PodNameIndex:
    """An index of workloads by the pod names that they produce."""

    _by_name: dict[tuple[str, str], list[WorkloadKey]] = field(default_factory=lambda: defaultdict(list))
    _long_names: dict[str, list[WorkloadKey]] = field(default_factory=lambda: defaultdict(list))

    def add(self, workloads: Iterable[WorkloadKey]) -> None:
        for key in workloads:
            self._by_name[key.namespace, key.name].append(key)
            if len(key.name) > MAX_NAME_LENGTH - 17:  # a dash, a ten-character hash, a dash, five characters
                self._long_names[key.namespace].append(key)

    def find_owner(self, namespace: str, pod: str) -> WorkloadKey | None:
        """Return the workload that names pods like this, longest name first; None if ambiguous."""
        for name, rest in _split_at_dashes(pod):
            found = [
                key
                for key in self._by_name.get((namespace, name), ())
                if _RULE_PATTERNS.get(key.kind, _ANY_RULE_PATTERN).fullmatch(rest)
            ]
            if found:
                return found[0] if len(found) == 1 else None
        return self._find_truncated_owner(namespace, pod)

    def _find_truncated_owner(self, namespace: str, pod: str) -> WorkloadKey | None:
        if len(pod) != MAX_NAME_LENGTH or not re.fullmatch(_SAFE_CHARACTER + "{5}", pod[_TRUNCATED_LENGTH:]):
            return None
        base = pod[:_TRUNCATED_LENGTH]
        found = [key for key in self._long_names.get(namespace, ()) if _matches_truncated(key, base)]
        return found[0] if len(found) == 1 else None


def _split_at_dashes(pod: str) -> Iterator[tuple[str, str]]:
    """Yield the text before and after each dash, longest name first; no rule has more than three parts."""
    end = len(pod)
    for _ in range(3):
        end = pod.rfind("-", 0, end)
        if end <= 0:
            return
        yield pod[:end], pod[end:]


def _matches_truncated(key: WorkloadKey, base: str) -> bool:
    """Return if the truncated pod names of a workload with a long name begin like this."""
    if len(key.name) >= _TRUNCATED_LENGTH:
        return key.name.startswith(base)
    rest = base.removeprefix(key.name)
    if rest == base:
        return False
    if key.kind in {"ReplicaSet", "DaemonSet", "Job"}:
        return rest == "-"
    if key.kind == "CronJob":
        return _TRUNCATED_SCHEDULE.fullmatch(rest) is not None
    return key.kind != "StatefulSet" and _TRUNCATED_HASH.fullmatch(rest) is not None


_INTERMEDIATE_KINDS = {"ReplicaSet", "Job"}
_MAX_OWNER_DEPTH = 8
"""The maximum length of an owner chain; a longer one is a cycle."""


class WorkloadContainer(NamedTuple):
    """The names that identify a container of a workload, which is the unit of sizing."""

    namespace: str
    kind: str
    name: str
    container: str

    @classmethod
    def from_workload(cls, workload: WorkloadKey, container: str) -> WorkloadContainer:
        return cls(workload.namespace, workload.kind, workload.name, container)

    @property
    def workload(self) -> WorkloadKey:
        return WorkloadKey(self.kind, self.namespace, self.name)

    def __str__(self) -> str:
        return f"{self.workload} {self.container}"


class _OwnerRecord(NamedTuple):
    key: WorkloadKey
    owner: OwnerReference | None


class PodOwnerIndex:
    """An index from pods to their workloads.

    It needs all workloads, at least the metadata of ReplicaSets and Jobs, and the existing pods.
    """

    def __init__(
        self,
        workloads: Iterable[Workload],
        *,
        replica_sets: Iterable[Metadata] = (),
        jobs: Iterable[Metadata] = (),
        pods: Iterable[Pod] = (),
    ) -> None:
        self._by_uid: dict[str, _OwnerRecord] = {}
        self._roles: dict[WorkloadContainer, Role] = {}
        self._pods: dict[tuple[str, str], WorkloadKey] = {}
        self._pod_names = PodNameIndex()
        workloads = tuple(workloads)
        for workload in workloads:
            self._by_uid[workload.uid] = _OwnerRecord(workload.key, workload.owner)
        for kind, between in (("ReplicaSet", replica_sets), ("Job", jobs)):
            for record in between:
                key = WorkloadKey(kind, record.namespace, record.name)
                self._by_uid.setdefault(record.uid, _OwnerRecord(key, record.owner))
        self._pod_names.add({known.key for known in self._by_uid.values()})
        self._by_key = {known.key: known for known in self._by_uid.values()}
        for workload in workloads:
            self._record_roles(
                self._resolve_top(_OwnerRecord(workload.key, workload.owner)), workload.containers
            )
        for pod in pods:
            self._pods[pod.namespace, pod.name] = top = self.resolve_pod(pod)
            self._record_roles(top, pod.containers)

    def resolve_pod(self, pod: Pod) -> WorkloadKey:
        """Return the workload of an existing pod; a pod without a controller is its own workload."""
        bare = WorkloadKey("Pod", pod.namespace, pod.name)
        owner = pod.owner
        if owner is None or owner.kind == "Node":  # the kubelet creates static pods from files
            return bare
        known = self._by_uid.get(owner.uid)
        if known:
            return self._resolve_top(known)
        if owner.kind in _INTERMEDIATE_KINDS and (
            by_name := self._pod_names.find_owner(pod.namespace, pod.name)
        ):
            return self._resolve_top(self._by_key[by_name])
        return WorkloadKey(owner.kind, pod.namespace, owner.name)

    def find_workload(self, namespace: str, pod: str) -> WorkloadKey | None:
        """Return the workload of an existing or deleted pod; None if it is ambiguous or unknown."""
        if existing := self._pods.get((namespace, pod)):
            return existing
        by_name = self._pod_names.find_owner(namespace, pod)
        return self._resolve_top(self._by_key[by_name]) if by_name else None

    def container_role(self, container: WorkloadContainer) -> Role:
        """Return if the container is a regular one, an init container or a native sidecar."""
        return self._roles.get(container, "main")

    def _resolve_top(self, known: _OwnerRecord) -> WorkloadKey:
        for _ in range(_MAX_OWNER_DEPTH):
            owner = known.owner
            if owner is None:
                break
            above = self._by_uid.get(owner.uid)
            if above is None:
                # The owner is of a kind that is not watched, such as a Rollout; its ReplicaSets still come and go.
                if known.key.kind in _INTERMEDIATE_KINDS:
                    return WorkloadKey(owner.kind, known.key.namespace, owner.name)
                break
            known = above
        return known.key

    def _record_roles(self, workload: WorkloadKey, containers: Iterable[Container]) -> None:
        for container in containers:
            self._roles[WorkloadContainer.from_workload(workload, container.name)] = container.role

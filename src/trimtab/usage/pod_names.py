"""Find the workload of a deleted pod by its name alone.

Controllers name pods by stable rules: the workload's name, an identifier of the run or template, and five
characters of an alphabet without vowels. A name that two workloads could have produced is assigned to
neither, because no owner is better than a wrong one. Pure.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from trimtab.kube.kinds.workloads import WorkloadKey

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

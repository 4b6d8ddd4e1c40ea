"""Whose a pod was, by its name alone: for pods that are gone, of which only their samples are left.

Controllers name pods by rules that have been the same for years: a name, what tells the pods of one run or template
apart, and five letters of an alphabet without vowels. A name that two workloads could have given is nobody's: no
owner is better than a wrong one. Pure.
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
"""What is longer is cut here before five letters are added, and then the dash may be missing."""

_RULES = {
    "Deployment": (_HASH + _RANDOM_SUFFIX,),
    "ReplicaSet": (_RANDOM_SUFFIX,),
    "DaemonSet": (_RANDOM_SUFFIX,),
    "StatefulSet": (_INDEX,),
    "Job": (_RANDOM_SUFFIX, _INDEX + _RANDOM_SUFFIX),
    "CronJob": (_SCHEDULED + _RANDOM_SUFFIX, _SCHEDULED + _INDEX + _RANDOM_SUFFIX),
}
_ANY_RULE = (_HASH + _RANDOM_SUFFIX, _RANDOM_SUFFIX, _INDEX)
"""For kinds that are not built in: with replica sets of their own, without, or with pods that have a number."""

_RULE_PATTERNS = {kind: re.compile("|".join(rules)) for kind, rules in _RULES.items()}
_ANY_RULE_PATTERN = re.compile("|".join(_ANY_RULE))
_TRUNCATED_HASH = re.compile(rf"-{_SAFE_CHARACTER}{{0,10}}-?")
_TRUNCATED_SCHEDULE = re.compile(r"-\d{5,11}(-\d{0,6})?-?")
"""A CronJob's own name is no longer than 52 letters, so that this much is left of its schedule."""


def build_pod_name_pattern(kind: str, name: str) -> str:
    """A regular expression, to be matched whole, for the names of the pods of a workload."""
    return f"{re.escape(name)}({'|'.join(_RULES.get(kind, _ANY_RULE))})"


@dataclass(slots=True)
class PodNameIndex:
    """The workloads whose pods names may be of."""

    _by_name: dict[tuple[str, str], list[WorkloadKey]] = field(default_factory=lambda: defaultdict(list))
    _long_names: dict[str, list[WorkloadKey]] = field(default_factory=lambda: defaultdict(list))

    def add(self, workloads: Iterable[WorkloadKey]) -> None:
        for key in workloads:
            self._by_name[key.namespace, key.name].append(key)
            if len(key.name) > MAX_NAME_LENGTH - 17:  # a dash, ten letters of a hash, a dash, five letters
                self._long_names[key.namespace].append(key)

    def find_owner(self, namespace: str, pod: str) -> WorkloadKey | None:
        """The one workload that would name a pod so; of two, the one with the longer name; None when in doubt."""
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
    """The name before each dash and what follows, the longest name first; no rule has more than three parts."""
    end = len(pod)
    for _ in range(3):
        end = pod.rfind("-", 0, end)
        if end <= 0:
            return
        yield pod[:end], pod[end:]


def _matches_truncated(key: WorkloadKey, base: str) -> bool:
    """Whether the pods of a workload with a long name begin like this, cut short."""
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

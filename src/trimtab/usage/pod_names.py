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

_SAFE = "[bcdfghjklmnpqrstvwxz2456789]"
_RANDOM = rf"-{_SAFE}{{5}}"
_HASH = rf"-{_SAFE}{{1,10}}"
_INDEX = r"-\d{1,6}"
_SCHEDULED = r"-\d{8,11}"

LONGEST = 63
_BEFORE_RANDOM = LONGEST - 5
"""What is longer is cut here before five letters are added, and then the dash may be missing."""

_RULES = {
    "Deployment": (_HASH + _RANDOM,),
    "ReplicaSet": (_RANDOM,),
    "DaemonSet": (_RANDOM,),
    "StatefulSet": (_INDEX,),
    "Job": (_RANDOM, _INDEX + _RANDOM),
    "CronJob": (_SCHEDULED + _RANDOM, _SCHEDULED + _INDEX + _RANDOM),
}
_ANY_RULE = (_HASH + _RANDOM, _RANDOM, _INDEX)
"""For kinds that are not built in: with replica sets of their own, without, or with pods that have a number."""

_COMPILED = {kind: re.compile("|".join(rules)) for kind, rules in _RULES.items()}
_ANY = re.compile("|".join(_ANY_RULE))
_CUT_HASH = re.compile(rf"-{_SAFE}{{0,10}}-?")
_CUT_SCHEDULE = re.compile(r"-\d{5,11}(-\d{0,6})?-?")
"""A CronJob's own name is no longer than 52 letters, so that this much is left of its schedule."""


def pod_pattern(kind: str, name: str) -> str:
    """A regular expression, to be matched whole, for the names of the pods of a workload."""
    return f"{re.escape(name)}({'|'.join(_RULES.get(kind, _ANY_RULE))})"


@dataclass(slots=True)
class PodNames:
    """The workloads whose pods names may be of."""

    _by_name: dict[tuple[str, str], list[WorkloadKey]] = field(default_factory=lambda: defaultdict(list))
    _long: dict[str, list[WorkloadKey]] = field(default_factory=lambda: defaultdict(list))

    def add(self, workloads: Iterable[WorkloadKey]) -> None:
        for key in workloads:
            self._by_name[key.namespace, key.name].append(key)
            if len(key.name) > LONGEST - 17:  # a dash, ten letters of a hash, a dash, five letters
                self._long[key.namespace].append(key)

    def owner(self, namespace: str, pod: str) -> WorkloadKey | None:
        """The one workload that would name a pod so; of two, the one with the longer name; None when in doubt."""
        for name, rest in _cuts(pod):
            found = [
                key
                for key in self._by_name.get((namespace, name), ())
                if _COMPILED.get(key.kind, _ANY).fullmatch(rest)
            ]
            if found:
                return found[0] if len(found) == 1 else None
        return self._cut_short(namespace, pod)

    def _cut_short(self, namespace: str, pod: str) -> WorkloadKey | None:
        if len(pod) != LONGEST or not re.fullmatch(_SAFE + "{5}", pod[_BEFORE_RANDOM:]):
            return None
        base = pod[:_BEFORE_RANDOM]
        found = [key for key in self._long.get(namespace, ()) if _could_begin(key, base)]
        return found[0] if len(found) == 1 else None


def _cuts(pod: str) -> Iterator[tuple[str, str]]:
    """The name before each dash and what follows, the longest name first; no rule has more than three parts."""
    end = len(pod)
    for _ in range(3):
        end = pod.rfind("-", 0, end)
        if end <= 0:
            return
        yield pod[:end], pod[end:]


def _could_begin(key: WorkloadKey, base: str) -> bool:
    """Whether the pods of a workload with a long name begin like this, cut short."""
    if len(key.name) >= _BEFORE_RANDOM:
        return key.name.startswith(base)
    rest = base.removeprefix(key.name)
    if rest == base:
        return False
    if key.kind in {"ReplicaSet", "DaemonSet", "Job"}:
        return rest == "-"
    if key.kind == "CronJob":
        return _CUT_SCHEDULE.fullmatch(rest) is not None
    return key.kind != "StatefulSet" and _CUT_HASH.fullmatch(rest) is not None

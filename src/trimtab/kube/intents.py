"""Intents, folded to who they are and what they want."""

from __future__ import annotations

from trimtab.api import Intent as IntentKind
from trimtab.api.intent import IntentSpec, TargetRef
from trimtab.kube.declared import Declared, declared
from trimtab.kube.records import Folding, Shape
from trimtab.kube.workloads import WorkloadKey, kind_name

IntentKey = tuple[str, str]
"""The namespace and the name of an intent."""


class Intent(Declared[IntentSpec], frozen=True, eq=False):
    """One Intent."""

    @property
    def target(self) -> WorkloadKey | None:
        """The workload that it is about, be it there or not."""
        return target_key(self.spec.target_ref, self.namespace) if self.spec else None

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def target_key(target: TargetRef, namespace: str) -> WorkloadKey:
    group, slash, _ = target.api_version.rpartition("/")
    # A kind may be spelled with its group, as policies do.
    kind = target.kind if "." in target.kind else kind_name(target.kind, group if slash else "")
    return WorkloadKey(kind, namespace, target.name)


def intents(folding: Folding | None = None) -> Shape[Intent]:
    """Read Intents as records."""
    return declared(IntentKind, Intent, folding)

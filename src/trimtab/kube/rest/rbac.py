"""What each of our processes may do in a cluster, and whether the server lets it.

The lists are the one source of what is asked for: `trimtab doctor` checks them, and each process's manifest grants
exactly them, which a test of the manifests holds them to. Another holds the operator's to what it really asks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from trimtab.api import GROUP
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import ACCESS_REVIEWS

Process = Literal["scan", "operator", "dashboard", "agent"]

HOME = "trimtab-system"
"""The namespace that our manifests put us in."""


@dataclass(frozen=True, slots=True)
class Right:
    """Verbs on a resource, which may name a subresource as `pods/resize`."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()
    """Only on objects of these names; on all when empty."""
    home: bool = False
    """Only in our own namespace."""

    def __str__(self) -> str:
        name = f"{self.resource}.{self.group}" if self.group else self.resource
        which = f" {', '.join(self.names)}" if self.names else ""
        return f"{', '.join(self.verbs)} {name}{which}"


_READ = ("get", "list", "watch")
_FOLLOW = ("list", "watch")
_ADMISSION = "admissionregistration.k8s.io"

_WORKLOADS = (
    Right("apps", "deployments", _READ),
    Right("apps", "statefulsets", _READ),
    Right("apps", "daemonsets", _READ),
    Right("apps", "replicasets", _READ),
    Right("batch", "jobs", _READ),
    Right("batch", "cronjobs", _READ),
)

_SCAN = (
    Right("", "pods", _READ),
    Right("", "nodes", _READ),
    Right("", "namespaces", _READ),
    Right("", "services", ("list",)),
    Right("", "limitranges", _READ),
    Right("", "resourcequotas", _READ),
    *_WORKLOADS,
    Right("autoscaling", "horizontalpodautoscalers", _READ),
    Right("metrics.k8s.io", "pods", ("list",)),
)

RIGHTS: dict[Process, tuple[Right, ...]] = {
    "scan": _SCAN,
    "operator": (
        Right("", "pods", _FOLLOW),
        Right("", "nodes", _FOLLOW),
        Right("", "namespaces", _FOLLOW),
        Right("", "services", ("list",)),
        Right("", "limitranges", _FOLLOW),
        Right("", "resourcequotas", _FOLLOW),
        Right("autoscaling", "horizontalpodautoscalers", _FOLLOW),
        Right("metrics.k8s.io", "pods", ("list",)),
        Right("", "pods/resize", ("patch",)),
        Right("", "pods/eviction", ("create",)),
        # Before a workload is changed it is looked at once more, not in a cache.
        *(Right(right.group, right.resource, (*_READ, "patch")) for right in _WORKLOADS),
        Right(GROUP, "optimizationpolicies", _READ),
        Right(GROUP, "optimizationpolicies/status", ("patch",)),
        Right(GROUP, "intents", _FOLLOW),
        Right(GROUP, "intents/status", ("patch",)),
        Right(GROUP, "kpiprofiles", _FOLLOW),
        Right(GROUP, "kpiprofiles/status", ("patch",)),
        Right(GROUP, "nodeqospolicies", _FOLLOW),
        Right(GROUP, "nodeqospolicies/status", ("patch",)),
        # What an intent scales.
        Right("apps", "deployments/scale", ("patch",)),
        Right("apps", "statefulsets/scale", ("patch",)),
        Right("apps", "replicasets/scale", ("patch",)),
        # An event is applied, which makes it where it is not there.
        Right("events.k8s.io", "events", ("create", "patch")),
        Right("autoscaling.k8s.io", "verticalpodautoscalers", _FOLLOW),
        Right("autoscaling.k8s.io", "verticalpodautoscalers/status", ("patch",)),
        Right("autoscaling.k8s.io", "verticalpodautoscalercheckpoints", ("list",)),
        Right("coordination.k8s.io", "leases", ("get", "create", "update"), home=True),
        # Its webhook: the certificate, and that the API server trusts it.
        Right("", "secrets", ("create",), home=True),  # which no name can be said of
        Right("", "secrets", ("get", "update"), names=("trimtab-webhook",), home=True),
        Right(_ADMISSION, "validatingwebhookconfigurations", ("get", "patch"), names=("trimtab",)),
        Right(_ADMISSION, "mutatingwebhookconfigurations", ("get", "patch"), names=("trimtab",)),
    ),
    # Beside the operator's own, in the same account, where its dashboard is on.
    "dashboard": (
        Right("authentication.k8s.io", "tokenreviews", ("create",)),
        Right("authorization.k8s.io", "subjectaccessreviews", ("create",)),
        Right(GROUP, "nodemetrics", _FOLLOW),
    ),
    "agent": (
        Right("", "pods", _FOLLOW),
        Right("", "nodes", _FOLLOW),
        Right("", "nodes/pods", ("get",)),
        Right("", "pods/eviction", ("create",)),
        Right(GROUP, "nodeqospolicies", _FOLLOW),
        Right(GROUP, "nodemetrics", ("get", "create")),
        Right(GROUP, "nodemetrics/status", ("patch",)),
    ),
}


async def missing_rights(
    client: Client, rights: Iterable[Right], *, namespace: str | None = None, home: str = HOME
) -> tuple[Right, ...]:
    """What of these the server would refuse us, in a namespace or everywhere; `home` is our own."""
    asked = [replace(right, verbs=(verb,)) for right in rights for verb in right.verbs]
    allowed = await asyncio.gather(
        *(_is_allowed(client, right, home if right.home else namespace or "") for right in asked)
    )
    refused: dict[Right, list[str]] = {}
    for right, is_allowed in zip(asked, allowed, strict=True):
        if not is_allowed:
            refused.setdefault(replace(right, verbs=()), []).append(right.verbs[0])
    return tuple(replace(right, verbs=tuple(verbs)) for right, verbs in refused.items())


async def _is_allowed(client: Client, right: Right, namespace: str) -> bool:
    resource, _, subresource = right.resource.partition("/")
    attributes = {
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "verb": right.verbs[0],
        "name": right.names[0] if right.names else "",
        "namespace": namespace,
    }
    review = await client.review(ACCESS_REVIEWS, {"spec": {"resourceAttributes": attributes}})
    return bool(review["status"]["allowed"])

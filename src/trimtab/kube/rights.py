"""What each of our processes may do in a cluster, and whether the server lets it.

The lists are the one source of what is asked for: `trimtab doctor` checks them, and each process's manifest is to grant
exactly them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from trimtab.api import GROUP
from trimtab.kube.client import Client
from trimtab.kube.resources import ACCESS_REVIEWS

Process = Literal["scan", "operator", "agent"]


@dataclass(frozen=True, slots=True)
class Right:
    """Verbs on a resource, which may name a subresource as `pods/resize`."""

    group: str
    resource: str
    verbs: tuple[str, ...]

    def __str__(self) -> str:
        name = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{', '.join(self.verbs)} {name}"


_READ = ("get", "list", "watch")

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
        *_SCAN,
        Right("", "pods/resize", ("patch",)),
        Right("", "pods/eviction", ("create",)),
        *(
            Right(right.group, right.resource, ("patch",))
            for right in _WORKLOADS
            if right.resource != "replicasets"
        ),
        Right(GROUP, "optimizationpolicies", _READ),
        Right(GROUP, "optimizationpolicies/status", ("patch",)),
        Right("events.k8s.io", "events", ("create", "patch")),
        Right("coordination.k8s.io", "leases", ("get", "create", "update")),
    ),
    "agent": (
        Right("", "pods", _READ),
        Right("", "nodes", _READ),
        Right("", "pods/eviction", ("create",)),
        Right(GROUP, "nodeqospolicies", _READ),
        Right(GROUP, "nodemetrics", ("get", "create", "patch")),
        Right(GROUP, "nodemetrics/status", ("patch",)),
        Right("events.k8s.io", "events", ("create", "patch")),
    ),
}


async def missing_rights(
    client: Client, rights: Iterable[Right], *, namespace: str | None = None
) -> tuple[Right, ...]:
    """What of these the server would refuse us, in a namespace or everywhere."""
    asked = [Right(right.group, right.resource, (verb,)) for right in rights for verb in right.verbs]
    allowed = await asyncio.gather(*(_is_allowed(client, right, namespace) for right in asked))
    refused = [right for right, is_allowed in zip(asked, allowed, strict=True) if not is_allowed]
    names = dict.fromkeys((right.group, right.resource) for right in refused)
    return tuple(
        Right(
            group, resource, tuple(r.verbs[0] for r in refused if (r.group, r.resource) == (group, resource))
        )
        for group, resource in names
    )


async def _is_allowed(client: Client, right: Right, namespace: str | None) -> bool:
    resource, _, subresource = right.resource.partition("/")
    attributes = {
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "verb": right.verbs[0],
        "namespace": namespace or "",
    }
    review = await client.review(ACCESS_REVIEWS, {"spec": {"resourceAttributes": attributes}})
    return bool(review["status"]["allowed"])

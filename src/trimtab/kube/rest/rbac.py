"""The permissions that each process needs in a cluster, and a check of those that it has.

These lists are the only source: `trimtab doctor` checks them, and each process's manifest grants exactly them. Tests
compare the manifests with the lists, and the operator's list with the requests that it really sends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from trimtab.api import GROUP
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import ACCESS_REVIEWS

Component = Literal["scan", "operator", "dashboard", "agent"]

SYSTEM_NAMESPACE = "trimtab-system"
"""The namespace of our manifests."""


@dataclass(frozen=True, slots=True)
class RbacRule:
    """Verbs on a resource, or on a subresource such as `pods/resize`."""

    group: str
    resource: str
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()
    """The names of the objects that the rule covers; empty for all."""
    own_namespace: bool = False
    """The rule applies in our own namespace only."""

    def __str__(self) -> str:
        name = f"{self.resource}.{self.group}" if self.group else self.resource
        which = f" {', '.join(self.names)}" if self.names else ""
        return f"{', '.join(self.verbs)} {name}{which}"


_READ = ("get", "list", "watch")
_LIST_WATCH = ("list", "watch")
_ADMISSION = "admissionregistration.k8s.io"

_WORKLOAD_RULES = (
    RbacRule("apps", "deployments", _READ),
    RbacRule("apps", "statefulsets", _READ),
    RbacRule("apps", "daemonsets", _READ),
    RbacRule("apps", "replicasets", _READ),
    RbacRule("batch", "jobs", _READ),
    RbacRule("batch", "cronjobs", _READ),
)

_SCAN_RULES = (
    RbacRule("", "pods", _READ),
    RbacRule("", "nodes", _READ),
    RbacRule("", "namespaces", _READ),
    RbacRule("", "services", ("list",)),
    RbacRule("", "limitranges", _READ),
    RbacRule("", "resourcequotas", _READ),
    *_WORKLOAD_RULES,
    RbacRule("autoscaling", "horizontalpodautoscalers", _READ),
    RbacRule("metrics.k8s.io", "pods", ("list",)),
)

RBAC_RULES: dict[Component, tuple[RbacRule, ...]] = {
    "scan": _SCAN_RULES,
    "operator": (
        RbacRule("", "pods", _LIST_WATCH),
        RbacRule("", "nodes", _LIST_WATCH),
        RbacRule("", "namespaces", _LIST_WATCH),
        RbacRule("", "services", ("list",)),
        RbacRule("", "limitranges", _LIST_WATCH),
        RbacRule("", "resourcequotas", _LIST_WATCH),
        RbacRule("autoscaling", "horizontalpodautoscalers", _LIST_WATCH),
        RbacRule("metrics.k8s.io", "pods", ("list",)),
        RbacRule("", "pods/resize", ("patch",)),
        RbacRule("", "pods/eviction", ("create",)),
        # Before a workload is changed, it is read once more from the server and not from a cache.
        *(RbacRule(rule.group, rule.resource, (*_READ, "patch")) for rule in _WORKLOAD_RULES),
        RbacRule(GROUP, "optimizationpolicies", _READ),
        RbacRule(GROUP, "optimizationpolicies/status", ("patch",)),
        RbacRule(GROUP, "intents", _LIST_WATCH),
        RbacRule(GROUP, "intents/status", ("patch",)),
        RbacRule(GROUP, "kpiprofiles", _LIST_WATCH),
        RbacRule(GROUP, "kpiprofiles/status", ("patch",)),
        RbacRule(GROUP, "nodeqospolicies", _LIST_WATCH),
        RbacRule(GROUP, "nodeqospolicies/status", ("patch",)),
        # Intents scale these.
        RbacRule("apps", "deployments/scale", ("patch",)),
        RbacRule("apps", "statefulsets/scale", ("patch",)),
        RbacRule("apps", "replicasets/scale", ("patch",)),
        # Events are written by server-side apply, which creates the missing ones.
        RbacRule("events.k8s.io", "events", ("create", "patch")),
        RbacRule("autoscaling.k8s.io", "verticalpodautoscalers", _LIST_WATCH),
        RbacRule("autoscaling.k8s.io", "verticalpodautoscalers/status", ("patch",)),
        RbacRule("autoscaling.k8s.io", "verticalpodautoscalercheckpoints", ("list",)),
        RbacRule("coordination.k8s.io", "leases", ("get", "create", "update"), own_namespace=True),
        # The webhook needs its certificate, and registers it with the API server.
        RbacRule("", "secrets", ("create",), own_namespace=True),  # a creation cannot be restricted by name
        RbacRule("", "secrets", ("get", "update"), names=("trimtab-webhook",), own_namespace=True),
        RbacRule(_ADMISSION, "validatingwebhookconfigurations", ("get", "patch"), names=("trimtab",)),
        RbacRule(_ADMISSION, "mutatingwebhookconfigurations", ("get", "patch"), names=("trimtab",)),
    ),
    # In addition to the operator's rules, in the same service account, if the dashboard is on.
    "dashboard": (
        RbacRule("authentication.k8s.io", "tokenreviews", ("create",)),
        RbacRule("authorization.k8s.io", "subjectaccessreviews", ("create",)),
        RbacRule(GROUP, "nodemetrics", _LIST_WATCH),
    ),
    "agent": (
        RbacRule("", "pods", _LIST_WATCH),
        RbacRule("", "nodes", _LIST_WATCH),
        RbacRule("", "nodes/pods", ("get",)),
        RbacRule("", "pods/eviction", ("create",)),
        RbacRule(GROUP, "nodeqospolicies", _LIST_WATCH),
        RbacRule(GROUP, "nodemetrics", ("get", "create")),
        RbacRule(GROUP, "nodemetrics/status", ("patch",)),
    ),
}


async def find_missing_rules(
    client: Client,
    rules: Iterable[RbacRule],
    *,
    namespace: str | None = None,
    system_namespace: str = SYSTEM_NAMESPACE,
) -> tuple[RbacRule, ...]:
    """Return the rules that the server would deny us in a namespace or everywhere; `system_namespace` is our own."""
    checks = [replace(rule, verbs=(verb,)) for rule in rules for verb in rule.verbs]
    allowed = await asyncio.gather(
        *(
            _is_allowed(client, rule, system_namespace if rule.own_namespace else namespace or "")
            for rule in checks
        )
    )
    denied: dict[RbacRule, list[str]] = {}
    for rule, is_allowed in zip(checks, allowed, strict=True):
        if not is_allowed:
            denied.setdefault(replace(rule, verbs=()), []).append(rule.verbs[0])
    return tuple(replace(rule, verbs=tuple(verbs)) for rule, verbs in denied.items())


async def _is_allowed(client: Client, rule: RbacRule, namespace: str) -> bool:
    resource, _, subresource = rule.resource.partition("/")
    attributes = {
        "group": rule.group,
        "resource": resource,
        "subresource": subresource,
        "verb": rule.verbs[0],
        "name": rule.names[0] if rule.names else "",
        "namespace": namespace,
    }
    review = await client.review(ACCESS_REVIEWS, {"spec": {"resourceAttributes": attributes}})
    return bool(review["status"]["allowed"])

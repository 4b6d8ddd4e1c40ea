"""The permissions that each process needs in a cluster, and a check of those that it has.

These lists are the only source: `trimtab doctor` checks them, and each process's manifest grants exactly them. Tests
compare the manifests with the lists, and the operator's list with the requests that it really sends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from trimtab.api import GROUP
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import ACCESS_REVIEWS

Component = Literal["scan", "scan-policies", "stop", "operator", "dashboard", "kubelet-source", "agent"]

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
    risk: str = field(default="", compare=False)
    """The harm that somebody who has the process's token can do by this rule, for docs/reference/permissions.md."""
    limit: str = field(default="", compare=False)
    """The bounds of that harm; empty if there are none."""

    def __str__(self) -> str:
        name = f"{self.resource}.{self.group}" if self.group else self.resource
        which = f" {', '.join(self.names)}" if self.names else ""
        return f"{', '.join(self.verbs)} {name}{which}"


def _explain(risk: str, limit: str, *rules: RbacRule) -> tuple[RbacRule, ...]:
    return tuple(replace(rule, risk=risk, limit=limit) for rule in rules)


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

_LIST = ("list",)

# `scan`, `explain`, `diff`, `patch`, `backtest` and `train` read once, and watch nothing.
_SCAN_RULES = (
    *_explain(
        "read the specs of all pods and templates, with literal values of environment variables",
        "no access to Secrets and ConfigMaps; keep secrets out of pod specs",
        RbacRule("", "pods", _LIST),
        *(RbacRule(rule.group, rule.resource, _LIST) for rule in _WORKLOAD_RULES),
    ),
    *_explain(
        "read them",
        "",
        RbacRule("", "nodes", _LIST),
        # `get` suffices in a Role of one namespace, for commands that cover only that.
        RbacRule("", "namespaces", ("get", "list")),
        RbacRule("", "services", _LIST),
        RbacRule("", "limitranges", _LIST),
        RbacRule("", "resourcequotas", _LIST),
        RbacRule("autoscaling", "horizontalpodautoscalers", _LIST),
    ),
    *_explain("read usage", "", RbacRule("metrics.k8s.io", "pods", _LIST)),
)

_SCAN_POLICY_RULES = (
    *_explain(
        "read them",
        "",
        RbacRule(GROUP, "optimizationpolicies", _LIST),
        RbacRule(GROUP, "intents", _LIST),
        RbacRule("autoscaling.k8s.io", "verticalpodautoscalers", _LIST),
    ),
    *_explain(
        "read the policies of the operator's namespace, which apply to all namespaces",
        "the operator's namespace",
        RbacRule(GROUP, "optimizationpolicies", _LIST, own_namespace=True),
    ),
    *_explain(
        "read the operator's configuration, and the reason of an emergency stop",
        "the operator's namespace; by name; the configuration contains no secrets",
        RbacRule("", "configmaps", ("get",), names=("trimtab-operator", "trimtab-stop"), own_namespace=True),
    ),
)

_STOP_RULES = _explain(
    "read the reason of an emergency stop",
    "its own namespace; by name",
    RbacRule("", "configmaps", _LIST_WATCH, names=("trimtab-stop",), own_namespace=True),
)

RBAC_RULES: dict[Component, tuple[RbacRule, ...]] = {
    "scan": _SCAN_RULES,
    # In addition where the operator is installed: the commands follow its policies.
    "scan-policies": _SCAN_POLICY_RULES,
    "stop": (
        *_explain(
            "stop all changes",
            "its own namespace",
            # A creation cannot be restricted by name.
            RbacRule("", "configmaps", ("create",), own_namespace=True),
        ),
        *_explain(
            "end an emergency stop",
            "its own namespace; by name",
            RbacRule("", "configmaps", ("delete",), names=("trimtab-stop",), own_namespace=True),
        ),
    ),
    "operator": (
        *_explain(
            "read the specs of all pods, with literal values of environment variables",
            "no access to Secrets and ConfigMaps; keep secrets out of pod specs",
            RbacRule("", "pods", _LIST_WATCH),
            RbacRule("", "nodes", _LIST_WATCH),
            RbacRule("", "namespaces", _LIST_WATCH),
            RbacRule("", "limitranges", _LIST_WATCH),
            RbacRule("", "resourcequotas", _LIST_WATCH),
            RbacRule("autoscaling", "horizontalpodautoscalers", _LIST_WATCH),
        ),
        *_explain(
            "read them",
            "",
            RbacRule("", "services", ("list",)),
            RbacRule("metrics.k8s.io", "pods", ("list",)),
            RbacRule("autoscaling.k8s.io", "verticalpodautoscalercheckpoints", ("list",)),
        ),
        # For the usage source nodemetric.
        *_explain("read usage", "", RbacRule(GROUP, "nodemetrics", ("list",))),
        # Before a workload is changed, it is read once more from the server and not from a cache.
        *_explain(
            "read their templates, with literal values of environment variables",
            "no access to Secrets and ConfigMaps; keep secrets out of pod specs",
            *_WORKLOAD_RULES,
        ),
        *_explain(
            "starve or inflate every workload; without the policy: run any image as any account",
            "policy `trimtab-operator-workloads`: requests, limits and annotations of `trimtab.io/` only; "
            "ResourceQuota and LimitRange",
            *(RbacRule(rule.group, rule.resource, ("patch",)) for rule in _WORKLOAD_RULES),
        ),
        *_explain(
            "starve or inflate running pods",
            "the subresource changes resources only; ResourceQuota and LimitRange",
            RbacRule("", "pods/resize", ("patch",)),
        ),
        *_explain(
            "restart any pod, again and again",
            "PodDisruptionBudgets; API priority and fairness",
            RbacRule("", "pods/eviction", ("create",)),
        ),
        # Intents scale these.
        *_explain(
            "scale a workload to none, or to many",
            "the subresource changes replicas only; ResourceQuota; HPAs write the field back",
            RbacRule("apps", "deployments/scale", ("patch",)),
            RbacRule("apps", "statefulsets/scale", ("patch",)),
            RbacRule("apps", "replicasets/scale", ("patch",)),
        ),
        *_explain("read policies", "", RbacRule(GROUP, "optimizationpolicies", _READ)),
        *_explain(
            "read them",
            "",
            RbacRule(GROUP, "intents", _LIST_WATCH),
            RbacRule(GROUP, "kpiprofiles", _LIST_WATCH),
            RbacRule(GROUP, "nodeqospolicies", _LIST_WATCH),
            RbacRule("autoscaling.k8s.io", "verticalpodautoscalers", _LIST_WATCH),
        ),
        *_explain(
            "write false statuses",
            "the subresource changes no spec",
            RbacRule(GROUP, "optimizationpolicies/status", ("patch",)),
            RbacRule(GROUP, "intents/status", ("patch",)),
            RbacRule(GROUP, "kpiprofiles/status", ("patch",)),
            RbacRule(GROUP, "nodeqospolicies/status", ("patch",)),
        ),
        *_explain(
            "write false recommendations, which a VPA updater would apply",
            "`containerPolicies` of each VPA",
            RbacRule("autoscaling.k8s.io", "verticalpodautoscalers/status", ("patch",)),
        ),
        # Events are written by server-side apply, which creates the missing ones.
        *_explain(
            "write false Events",
            "nothing acts on Events",
            RbacRule("events.k8s.io", "events", ("create", "patch")),
        ),
        *_explain(
            "keep other replicas from leading",
            "its own namespace",
            RbacRule("coordination.k8s.io", "leases", ("get", "create", "update"), own_namespace=True),
        ),
        *_STOP_RULES,
        # The webhook needs its certificate, and registers it with the API server.
        *_explain(
            "get the token of any account of this namespace",
            "its own namespace; policy `trimtab-operator-secrets`: the webhook's Secret only",
            # A creation cannot be restricted by name.
            RbacRule("", "secrets", ("create",), own_namespace=True),
        ),
        *_explain(
            "read and replace the webhook's key",
            "its own namespace; by name; policy `trimtab-operator-secrets`",
            RbacRule("", "secrets", ("get", "update"), names=("trimtab-webhook",), own_namespace=True),
        ),
        *_explain(
            "falsify policies as they are written; without the policies: see and change every object of the cluster",
            "by name; policies `trimtab-operator-webhooks` and `trimtab-operator-pod-webhook`",
            RbacRule(_ADMISSION, "validatingwebhookconfigurations", ("get", "patch"), names=("trimtab",)),
            RbacRule(_ADMISSION, "mutatingwebhookconfigurations", ("get", "patch"), names=("trimtab",)),
        ),
    ),
    # In addition to the operator's rules, in the same service account, if the dashboard is on.
    "dashboard": (
        *_explain(
            "learn whose a token is",
            "the token has to be known",
            RbacRule("authentication.k8s.io", "tokenreviews", ("create",)),
        ),
        *_explain(
            "learn what others may do",
            "",
            RbacRule("authorization.k8s.io", "subjectaccessreviews", ("create",)),
        ),
        *_explain("read usage", "", RbacRule(GROUP, "nodemetrics", _LIST_WATCH)),
    ),
    # In addition to the operator's rules, in the same service account, if usage is read from kubelets.
    "kubelet-source": (
        *_explain(
            "read the usage of all nodes and pods",
            "the subresource runs and changes nothing",
            RbacRule("", "nodes/stats", ("get",)),
        ),
    ),
    "agent": (
        *_STOP_RULES,
        *_explain(
            "read the specs of all pods of the cluster",
            "no access to Secrets and ConfigMaps",
            RbacRule("", "pods", _LIST_WATCH),
            RbacRule("", "nodes", _LIST_WATCH),
        ),
        *_explain(
            "read the pods of any kubelet",
            "the subresource runs and changes nothing",
            RbacRule("", "nodes/pods", ("get",)),
        ),
        *_explain(
            "restart pods",
            "policies `trimtab-agent-evictions` and `trimtab-agent-evictions-labelled`: those of its own node; "
            "PodDisruptionBudgets",
            RbacRule("", "pods/eviction", ("create",)),
        ),
        *_explain("read them", "", RbacRule(GROUP, "nodeqospolicies", _LIST_WATCH)),
        *_explain(
            "read usage of all nodes; create false reports",
            "policy `trimtab-agent-nodemetrics`: its own node",
            RbacRule(GROUP, "nodemetrics", ("get", "create")),
        ),
        *_explain(
            "report false usage, which the usage source `nodemetric` would read",
            "policy `trimtab-agent-nodemetrics`: its own node; implausible values are dropped",
            RbacRule(GROUP, "nodemetrics/status", ("patch",)),
        ),
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

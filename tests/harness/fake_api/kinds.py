"""The kinds that the fake API server has: those of Kubernetes that we use, and those of CustomResourceDefinitions."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ServedKind:
    """A resource, with its subresources."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    subresources: frozenset[str] = frozenset()
    schema: dict[str, Any] = field(default_factory=dict, compare=False, hash=False)
    """The OpenAPI schema of a custom resource."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def full_name(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def is_custom(self) -> bool:
        return bool(self.schema)

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources


_STATUS = frozenset({"status"})
_SCALE = frozenset({"status", "scale"})
_RBAC = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"

BUILT_IN = (
    ServedKind("", "v1", "pods", "Pod", subresources=frozenset({"status", "resize", "eviction"})),
    ServedKind("", "v1", "nodes", "Node", namespaced=False, subresources=_STATUS),
    ServedKind("", "v1", "namespaces", "Namespace", namespaced=False, subresources=_STATUS),
    ServedKind("", "v1", "services", "Service", subresources=_STATUS),
    ServedKind("", "v1", "serviceaccounts", "ServiceAccount", subresources=frozenset({"token"})),
    ServedKind("", "v1", "limitranges", "LimitRange"),
    ServedKind("", "v1", "resourcequotas", "ResourceQuota", subresources=_STATUS),
    ServedKind("", "v1", "configmaps", "ConfigMap"),
    ServedKind("", "v1", "secrets", "Secret"),
    ServedKind("events.k8s.io", "v1", "events", "Event"),
    ServedKind("coordination.k8s.io", "v1", "leases", "Lease"),
    ServedKind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"),
    ServedKind("apps", "v1", "deployments", "Deployment", subresources=_SCALE),
    ServedKind("apps", "v1", "statefulsets", "StatefulSet", subresources=_SCALE),
    ServedKind("apps", "v1", "daemonsets", "DaemonSet", subresources=_STATUS),
    ServedKind("apps", "v1", "replicasets", "ReplicaSet", subresources=_SCALE),
    ServedKind("batch", "v1", "jobs", "Job", subresources=_STATUS),
    ServedKind("batch", "v1", "cronjobs", "CronJob", subresources=_STATUS),
    ServedKind(
        "autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", subresources=_STATUS
    ),
    ServedKind("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", subresources=_STATUS),
    ServedKind(_RBAC, "v1", "roles", "Role"),
    ServedKind(_RBAC, "v1", "rolebindings", "RoleBinding"),
    ServedKind(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False),
    ServedKind(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    ServedKind(
        _ADMISSION,
        "v1",
        "validatingwebhookconfigurations",
        "ValidatingWebhookConfiguration",
        namespaced=False,
    ),
    ServedKind(
        _ADMISSION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", namespaced=False
    ),
    ServedKind(
        "apiextensions.k8s.io",
        "v1",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        namespaced=False,
        subresources=_STATUS,
    ),
)
CRDS = BUILT_IN[-1]
NAMESPACES = BUILT_IN[2]
PODS = BUILT_IN[0]


def kinds_of_definition(definition: dict[str, Any]) -> list[ServedKind]:
    """Return the kinds that a CustomResourceDefinition adds, a kind a version."""
    spec = definition["spec"]
    return [
        ServedKind(
            group=spec["group"],
            version=version["name"],
            plural=spec["names"]["plural"],
            kind=spec["names"]["kind"],
            namespaced=spec["scope"] == "Namespaced",
            subresources=frozenset(version.get("subresources", {})),
            schema=version["schema"]["openAPIV3Schema"],
        )
        for version in spec["versions"]
        if version["served"]
    ]


def set_defaults(value: Any, schema: dict[str, Any]) -> None:
    """Set the defaults of a schema, as the server does before it stores a custom resource."""
    if isinstance(value, dict):
        for name, property_ in schema.get("properties", {}).items():
            if name not in value and "default" in property_:
                value[name] = property_["default"]
            if name in value:
                set_defaults(value[name], property_)
        additional = schema.get("additionalProperties")
        if isinstance(additional, dict):
            for each in value.values():
                set_defaults(each, additional)
    elif isinstance(value, list):
        for each in value:
            set_defaults(each, schema.get("items", {}))

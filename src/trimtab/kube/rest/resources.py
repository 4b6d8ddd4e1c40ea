"""Resource types and their paths on the API server."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

JSON = "application/json"
"""The default media type."""


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource type as the API server knows it."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self, *, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """Return the URL path; without a namespace it spans all namespaces."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace:
            if not self.namespaced:
                raise ValueError(f"{self.kind} is cluster-scoped, but the namespace {namespace!r} was given")
            parts += ["namespaces", namespace]
        elif name and self.namespaced:
            raise ValueError(f"{self.kind} {name!r}: a namespace is required")
        parts.append(self.plural)
        if name:
            parts.append(name)
        if subresource:
            parts.append(subresource)
        return "/" + "/".join(quote(part, safe="") for part in parts)

    def __str__(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


PODS = Resource("", "v1", "pods", "Pod")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
SERVICES = Resource("", "v1", "services", "Service")
LIMIT_RANGES = Resource("", "v1", "limitranges", "LimitRange")
RESOURCE_QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
EVENTS = Resource("events.k8s.io", "v1", "events", "Event")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
STATEFUL_SETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
DAEMON_SETS = Resource("apps", "v1", "daemonsets", "DaemonSet")
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet")
JOBS = Resource("batch", "v1", "jobs", "Job")
CRON_JOBS = Resource("batch", "v1", "cronjobs", "CronJob")
HPAS = Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
VPAS = Resource("autoscaling.k8s.io", "v1", "verticalpodautoscalers", "VerticalPodAutoscaler")
VPA_CHECKPOINTS = Resource(
    "autoscaling.k8s.io", "v1", "verticalpodautoscalercheckpoints", "VerticalPodAutoscalerCheckpoint"
)
OPTIMIZATION_POLICIES = Resource("trimtab.io", "v1alpha1", "optimizationpolicies", "OptimizationPolicy")
NODE_METRICS = Resource("trimtab.io", "v1alpha1", "nodemetrics", "NodeMetric", namespaced=False)
NODE_QOS_POLICIES = Resource("trimtab.io", "v1alpha1", "nodeqospolicies", "NodeQoSPolicy", namespaced=False)
INTENTS = Resource("trimtab.io", "v1alpha1", "intents", "Intent")
KPI_PROFILES = Resource("trimtab.io", "v1alpha1", "kpiprofiles", "KPIProfile")
DISRUPTION_BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)

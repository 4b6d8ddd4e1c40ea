"""The workloads that a policy selects: by namespace, label and kind."""

from typing import Annotated

from pydantic import Field

from trimtab.api.fields import KindName, NamespaceName, UniqueItems
from trimtab.api.meta import Labels, LabelSelector
from trimtab.api.model import ApiModel, ValidationRule


class NamespaceFilter(ApiModel):
    """Namespaces by name; a denied namespace is excluded even if it is also allowed."""

    allow: Annotated[tuple[NamespaceName, ...], Field(max_length=256), UniqueItems()] = ()
    """The only namespaces that are selected; when left out, every namespace for a policy in the operator's namespace.
    A policy elsewhere selects in its own namespace only."""

    deny: Annotated[tuple[NamespaceName, ...], Field(max_length=256), UniqueItems()] = ()
    """The namespaces that are never selected."""

    def matches(self, namespace: str) -> bool:
        return namespace not in self.deny and (not self.allow or namespace in self.allow)


class WorkloadTypeFilter(ApiModel):
    """Workloads by kind."""

    rules = (
        ValidationRule(
            field="exclude",
            message="names a kind that include names too; keep it in one of the two",
            predicate=lambda self: not set(self.include) & set(self.exclude),
            cel="!has(self.include) || !has(self.exclude) || !self.exclude.exists(kind, kind in self.include)",
        ),
    )

    include: Annotated[tuple[KindName, ...], Field(max_length=32), UniqueItems()] = ()
    """The only kinds that are selected, such as Deployment, StatefulSet, DaemonSet, ReplicaSet, Job, CronJob, or any
    kind with a scale subresource (Rollout.argoproj.io); every kind when left out."""

    exclude: Annotated[tuple[KindName, ...], Field(max_length=32), UniqueItems()] = ()
    """The kinds that are never selected."""

    def matches(self, kind: str) -> bool:
        return kind not in self.exclude and (not self.include or kind in self.include)


class PolicySelector(ApiModel):
    """The workloads that a policy selects; all parts must match. An empty selector matches every workload of the
    policy's namespace, or of the cluster if the policy is in the operator's namespace.
    """

    namespace_selector: LabelSelector | None = None
    """Select only workloads in namespaces with these labels."""

    workload_selector: LabelSelector | None = None
    """Select only workloads with these labels."""

    namespaces: NamespaceFilter = NamespaceFilter()
    """The namespaces to allow or deny by name; deny takes precedence."""

    workload_types: WorkloadTypeFilter = WorkloadTypeFilter()
    """The kinds of workloads to include or exclude."""

    def matches(self, *, kind: str, namespace: str, labels: Labels, namespace_labels: Labels) -> bool:
        return (
            self.namespaces.matches(namespace)
            and self.workload_types.matches(kind)
            and (self.namespace_selector is None or self.namespace_selector.matches(namespace_labels))
            and (self.workload_selector is None or self.workload_selector.matches(labels))
        )

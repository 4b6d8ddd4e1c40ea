"""Which workloads a policy is about: by namespace, label and kind."""

from typing import Annotated

from pydantic import Field

from trimtab.api.fields import KindName, NamespaceName, UniqueItems
from trimtab.api.meta import Labels, LabelSelector
from trimtab.api.model import ApiModel, ValidationRule


class NamespaceFilter(ApiModel):
    """Namespaces by name; a namespace that is denied stays out even when it is allowed as well."""

    allow: Annotated[tuple[NamespaceName, ...], Field(max_length=256), UniqueItems()] = ()
    """Only these namespaces; every namespace when left out."""

    deny: Annotated[tuple[NamespaceName, ...], Field(max_length=256), UniqueItems()] = ()
    """Never these namespaces."""

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
    """Only these kinds, such as Deployment, StatefulSet, DaemonSet, ReplicaSet, Job, CronJob, or any kind with a
    scale subresource (Rollout.argoproj.io); every kind when left out."""

    exclude: Annotated[tuple[KindName, ...], Field(max_length=32), UniqueItems()] = ()
    """Never these kinds."""

    def matches(self, kind: str) -> bool:
        return kind not in self.exclude and (not self.include or kind in self.include)


class PolicySelector(ApiModel):
    """Which workloads a policy is about; all parts must agree, and an empty selector means every workload."""

    namespace_selector: LabelSelector | None = None
    """Only workloads in namespaces with these labels."""

    workload_selector: LabelSelector | None = None
    """Only workloads with these labels."""

    namespaces: NamespaceFilter = NamespaceFilter()
    """Namespaces to allow or deny by name; deny wins."""

    workload_types: WorkloadTypeFilter = WorkloadTypeFilter()
    """Kinds of workloads to include or exclude."""

    def matches(self, *, kind: str, namespace: str, labels: Labels, namespace_labels: Labels) -> bool:
        return (
            self.namespaces.matches(namespace)
            and self.workload_types.matches(kind)
            and (self.namespace_selector is None or self.namespace_selector.matches(namespace_labels))
            and (self.workload_selector is None or self.workload_selector.matches(labels))
        )

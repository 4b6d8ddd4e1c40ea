"""Which workloads a policy is about: by namespace, label and kind."""

from typing import Annotated

from pydantic import Field

from trimtab.api.fields import KindName, NamespaceName, Unique
from trimtab.api.meta import Labels, LabelSelector
from trimtab.api.model import Model, Rule


class Namespaces(Model):
    """Namespaces by name; a namespace that is denied stays out even when it is allowed as well."""

    allow: Annotated[tuple[NamespaceName, ...], Field(max_length=256), Unique()] = ()
    """Only these namespaces; every namespace when left out."""

    deny: Annotated[tuple[NamespaceName, ...], Field(max_length=256), Unique()] = ()
    """Never these namespaces."""

    def admits(self, namespace: str) -> bool:
        return namespace not in self.deny and (not self.allow or namespace in self.allow)


class WorkloadTypes(Model):
    """Workloads by kind."""

    rules = (
        Rule(
            field="exclude",
            message="names a kind that include names too; keep it in one of the two",
            holds=lambda self: not set(self.include) & set(self.exclude),
            cel="!has(self.include) || !has(self.exclude) || !self.exclude.exists(kind, kind in self.include)",
        ),
    )

    include: Annotated[tuple[KindName, ...], Field(max_length=32), Unique()] = ()
    """Only these kinds, such as Deployment, StatefulSet, DaemonSet, ReplicaSet, Job, CronJob, or any kind with a
    scale subresource (Rollout.argoproj.io); every kind when left out."""

    exclude: Annotated[tuple[KindName, ...], Field(max_length=32), Unique()] = ()
    """Never these kinds."""

    def admits(self, kind: str) -> bool:
        return kind not in self.exclude and (not self.include or kind in self.include)


class Selector(Model):
    """Which workloads a policy is about; all parts must agree, and an empty selector means every workload."""

    namespace_selector: LabelSelector | None = None
    """Only workloads in namespaces with these labels."""

    workload_selector: LabelSelector | None = None
    """Only workloads with these labels."""

    namespaces: Namespaces = Namespaces()
    """Namespaces to allow or deny by name; deny wins."""

    workload_types: WorkloadTypes = WorkloadTypes()
    """Kinds of workloads to include or exclude."""

    def selects(self, *, kind: str, namespace: str, labels: Labels, namespace_labels: Labels) -> bool:
        return (
            self.namespaces.admits(namespace)
            and self.workload_types.admits(kind)
            and (self.namespace_selector is None or self.namespace_selector.matches(namespace_labels))
            and (self.workload_selector is None or self.workload_selector.matches(labels))
        )

"""The port to a cluster: the operations that actuation needs, on a real cluster (`kube_cluster`) or a
simulated one.

Reads return the present state, never that of a cache that may lag: an object is read again before it is
changed, which is rare. Errors are those of `trimtab.kube.errors`, whoever raises them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from trimtab.actuation.pod_options import OptionsAnnotation
from trimtab.actuation.resources import Sizes
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.kube.runtime.event_correlator import EventType


class ClusterPort(Protocol):
    """The operations of a cluster that actuation uses."""

    async def get_workload(self, key: WorkloadKey) -> Workload | None:
        """Return the workload as it is now; None if it is gone."""
        ...

    async def list_pods(self, workload: Workload) -> Sequence[Pod]:
        """Return all pods of the workload as they are now."""
        ...

    async def resize(self, pod: Pod, sizes: Sizes) -> None:
        """Resize a pod in place; raise Conflict if the pod has changed since it was read."""
        ...

    async def evict(self, pod: Pod) -> None:
        """Evict exactly this pod; raise Conflict if it has changed since it was read, and DisruptionBlocked if a
        disruption budget forbids it.
        """
        ...

    async def patch_template(self, workload: Workload, sizes: Sizes, *, take_ownership: bool) -> None:
        """Write these sizes to the pod template; raise Conflict if the workload has changed since it was read, and
        FieldManagerConflict if another manager owns them and is not to be overruled.
        """
        ...

    async def patch_options(self, workload: Workload, annotation: OptionsAnnotation) -> None:
        """Write the options in effect to the pod template, together with their annotation; raise
        FieldManagerConflict if another manager owns one of them.
        """
        ...

    async def scale(self, workload: Workload, replicas: int) -> None:
        """Scale the workload from the number of replicas that it was read with; raise Conflict if that has
        changed.
        """
        ...

    async def annotate(self, workload: Workload, annotations: Mapping[str, str]) -> None:
        """Replace our annotations on the workload; raise Conflict if it has changed since it was read."""
        ...

    def emit(
        self,
        workload: Workload,
        *,
        type: EventType,  # noqa: A002 - Kubernetes' own word for it
        reason: str,
        message: str,
    ) -> None:
        """Record an Event about the workload."""
        ...

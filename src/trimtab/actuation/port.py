"""The port to a cluster: the operations that actuation needs, on a real cluster (`kube_cluster`) or a
simulated one.

Every write carries the version of the record on which it was decided, and returns the record as it is afterwards. A
Conflict means that the object has changed since: nothing was written, and whoever decided does so again from a newer
record. Errors are those of `trimtab.kube.errors`, whoever raises them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from trimtab.actuation.pod_options import OptionsAnnotation
from trimtab.actuation.resources import Sizes
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.kube.runtime.event_correlator import EventType


class RecordPort(Protocol):
    """The records of workloads and pods that informers keep; they may lag behind the server."""

    def get(self, key: WorkloadKey) -> Workload | None:
        """Return a workload; None if there is none."""
        ...

    def list_pods(self, workload: Workload) -> Sequence[Pod]:
        """Return all pods of a workload."""
        ...

    def update(self, record: Workload | Pod) -> None:
        """Show a record that a write returned, until the informer has it or a newer one."""
        ...

    def outdated_reason(self, workload: Workload) -> str:
        """Return why the records of a workload and its pods are not kept current; empty if they are."""
        ...


# The name stays: applied by a new manager, annotations of the first version would keep the old one as a co-owner and
# could no longer be removed.
ANNOTATIONS_MANAGER = "trimtab.io-marks"


class ClusterPort(Protocol):
    """The operations of a cluster that actuation uses."""

    async def get_workload(self, key: WorkloadKey) -> Workload | None:
        """Return the workload as it is now; None if it is gone."""
        ...

    async def list_pods(self, workload: Workload) -> Sequence[Pod]:
        """Return all pods of the workload as they are now."""
        ...

    async def resize(self, pod: Pod, sizes: Sizes) -> Pod:
        """Resize a pod in place."""
        ...

    async def evict(self, pod: Pod) -> Pod:
        """Evict exactly this pod, if it still exists, and return it as being deleted; raise DisruptionBlocked if a
        disruption budget forbids it.
        """
        ...

    async def patch_template(self, workload: Workload, sizes: Sizes, *, take_ownership: bool) -> Workload:
        """Write these sizes to the pod template; raise FieldManagerConflict if another manager owns them and is not to
        be overruled.
        """
        ...

    async def patch_options(self, workload: Workload, annotation: OptionsAnnotation) -> Workload:
        """Write the options in effect to the pod template, together with their annotation; raise
        FieldManagerConflict if another manager owns one of them.
        """
        ...

    async def scale(self, workload: Workload, replicas: int) -> Workload:
        """Scale the workload."""
        ...

    async def annotate(
        self, workload: Workload, annotations: Mapping[str, str], *, manager: str = ANNOTATIONS_MANAGER
    ) -> Workload:
        """Replace the annotations on the workload that this field manager wrote."""
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

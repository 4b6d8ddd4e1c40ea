"""The port to a cluster: what applying needs of one, real (`live`) or simulated.

Reads are of the present, never of a cache that may lag: what is about to be changed is looked at afresh, and that is
rare. Failures are those of `trimtab.kube.errors`, whoever raises them.
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
    """What can be asked of a cluster, and done to it."""

    async def get_workload(self, key: WorkloadKey) -> Workload | None:
        """The workload as it is now; None when it is gone."""
        ...

    async def list_pods(self, workload: Workload) -> Sequence[Pod]:
        """All its pods as they are now."""
        ...

    async def resize(self, pod: Pod, sizes: Sizes) -> None:
        """Ask for these sizes in place; Conflict when the pod has changed since it was read."""
        ...

    async def evict(self, pod: Pod) -> None:
        """Have this very pod replaced; DisruptionBlocked when a budget forbids it."""
        ...

    async def patch_template(self, workload: Workload, sizes: Sizes, *, take_ownership: bool) -> None:
        """Give the pod template these sizes; FieldOwned when another owns them and is not to be overruled."""
        ...

    async def patch_options(self, workload: Workload, annotation: OptionsAnnotation) -> None:
        """Give the pod template the options that the mark has in effect, and leave the mark; FieldOwned when another
        owns one of them.
        """
        ...

    async def scale(self, workload: Workload, replicas: int) -> None:
        """Have it run this many pods, from the number that it was read with; Conflict when that has changed."""
        ...

    async def annotate(self, workload: Workload, annotations: Mapping[str, str]) -> None:
        """Make these our only annotations on it; Conflict when it has changed since it was read."""
        ...

    def emit(
        self,
        workload: Workload,
        *,
        type: EventType,  # noqa: A002 - Kubernetes' own word for it
        reason: str,
        message: str,
    ) -> None:
        """Tell users what was done, or was not."""
        ...

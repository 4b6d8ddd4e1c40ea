"""From a recommendation to the cluster: in place, by replacing pods, or not at all; with limits, canary, verification and revert.

`decide.next_actions` is pure and chooses the next actions. `executor.ChangeExecutor` observes the cluster, asks it, and
carries the actions out through the port `port.ClusterPort`. The state of a change is stored on the workload itself
(`change_annotations`), so that another leader can continue after a crash.
"""

from typing import TYPE_CHECKING

from trimtab.lazy import lazy_exports

if TYPE_CHECKING:
    from trimtab.actuation.decide.context import ChangeContext, DesiredChange, LocalObservations
    from trimtab.actuation.decide.next_actions import next_actions
    from trimtab.actuation.executor import ChangeExecutor, ReconcileResult
    from trimtab.actuation.kube_cluster import KubeCluster
    from trimtab.actuation.port import ClusterPort

__all__ = [
    "ChangeContext",
    "ChangeExecutor",
    "ClusterPort",
    "DesiredChange",
    "KubeCluster",
    "LocalObservations",
    "ReconcileResult",
    "next_actions",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "ChangeContext": "decide.context",
        "ChangeExecutor": "executor",
        "ClusterPort": "port",
        "DesiredChange": "decide.context",
        "KubeCluster": "kube_cluster",
        "LocalObservations": "decide.context",
        "ReconcileResult": "executor",
        "next_actions": "decide.next_actions",
    },
)

"""From a recommendation to the cluster: in place, by replacing pods, or not at all; with limits, canary, verification and revert.

`decide.transitions` is pure and chooses the next actions. `executor.ChangeExecutor` observes the cluster, asks it, and
carries the actions out through the port `port.ClusterPort`. The state of a change is stored on the workload itself
(`change_annotations`), so that another leader can continue after a crash.
"""

from typing import TYPE_CHECKING

from trimtab.lazy import lazy_exports

if TYPE_CHECKING:
    from trimtab.actuation.decide.observation import DesiredChange, LocalObservations, Observation
    from trimtab.actuation.decide.transitions import next_actions
    from trimtab.actuation.executor import ChangeExecutor, ReconcileResult
    from trimtab.actuation.kube_cluster import KubeCluster
    from trimtab.actuation.port import ClusterPort

__all__ = [
    "ChangeExecutor",
    "ClusterPort",
    "DesiredChange",
    "KubeCluster",
    "LocalObservations",
    "Observation",
    "ReconcileResult",
    "next_actions",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "ChangeExecutor": "executor",
        "ClusterPort": "port",
        "DesiredChange": "decide.observation",
        "KubeCluster": "kube_cluster",
        "LocalObservations": "decide.observation",
        "Observation": "decide.observation",
        "ReconcileResult": "executor",
        "next_actions": "decide.transitions",
    },
)

"""Build the view of a node and its pods that node strategies and collectors read."""

import uuid
from collections.abc import Sequence
from typing import Any

from harness.cluster.kubepods import Kubepods
from trimtab.kube.kinds.pods import Resources
from trimtab.node.cgroups import QosClass
from trimtab.node.model import ContainerView, Cpu, NodeView, PodView, Tier


def pod_view(cgroup: str, containers: Sequence[str] = (), **more: Any) -> PodView:
    """A pod that lies in these cgroups; its containers are c0, c1 and so on."""
    defaults: dict[str, Any] = {
        "uid": str(uuid.uuid4()),
        "namespace": "default",
        "name": "pod",
        "tier": Tier.LS,
        "qos": QosClass.BURSTABLE,
        "priority": 0,
    }
    views = tuple(
        ContainerView(name=f"c{n}", id=path.rpartition("/")[2], resources=Resources(), cgroup=path)
        for n, path in enumerate(containers)
    )
    return PodView(cgroup=cgroup, containers=views, **(defaults | more))


def node_view(kubepods: Kubepods, *pods: PodView) -> NodeView:
    layout = kubepods.layout
    return NodeView(
        name="node",
        cpus=tuple(Cpu(n, n, 0, 0) for n in range(2)),
        memory=1 << 30,
        pods=pods,
        pods_cgroup=layout.pods_path,
        best_effort_cgroup=layout.qos_path(QosClass.BEST_EFFORT),
    )

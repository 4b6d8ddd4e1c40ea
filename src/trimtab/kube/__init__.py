"""The Kubernetes client: credentials, requests, caches, kinds, and the parts that controllers run on.

- `auth`, `rest`, `errors`: credentials, requests to the API server, and their failures.
- `cache`, `kinds`: copies of cluster objects, kept current by list and watch, as small records.
- `runtime`: work queue, leader election, Events.
"""

from typing import TYPE_CHECKING

from trimtab.lazy import lazy_exports

if TYPE_CHECKING:
    from trimtab.kube.auth import Connection, load_connection
    from trimtab.kube.cache.informer import Informer, Scope
    from trimtab.kube.cache.informer_set import InformerSet
    from trimtab.kube.errors import Conflict
    from trimtab.kube.kinds.nodes import Node, node_projection
    from trimtab.kube.kinds.pods import Pod, Resources, pod_projection
    from trimtab.kube.rest.client import Client
    from trimtab.kube.rest.resources import NODES, PODS
    from trimtab.kube.runtime.event_recorder import EventRecorder
    from trimtab.kube.runtime.leader_election import LeaderElector
    from trimtab.kube.runtime.workqueue import WorkQueue

__all__ = [
    "NODES",
    "PODS",
    "Client",
    "Conflict",
    "Connection",
    "EventRecorder",
    "Informer",
    "InformerSet",
    "LeaderElector",
    "Node",
    "Pod",
    "Resources",
    "Scope",
    "WorkQueue",
    "load_connection",
    "node_projection",
    "pod_projection",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "NODES": "rest.resources",
        "PODS": "rest.resources",
        "Client": "rest.client",
        "Conflict": "errors",
        "Connection": "auth",
        "EventRecorder": "runtime.event_recorder",
        "Informer": "cache.informer",
        "InformerSet": "cache.informer_set",
        "LeaderElector": "runtime.leader_election",
        "Node": "kinds.nodes",
        "Pod": "kinds.pods",
        "Resources": "kinds.pods",
        "Scope": "cache.informer",
        "WorkQueue": "runtime.workqueue",
        "load_connection": "auth",
        "node_projection": "kinds.nodes",
        "pod_projection": "kinds.pods",
    },
)

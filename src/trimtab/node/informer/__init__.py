"""The node informer: pods from the kubelet and the API server, cgroups, topology and the policy."""

from trimtab.node.informer.informer import NodeInformer

__all__ = ["NodeInformer"]

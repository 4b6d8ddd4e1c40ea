"""What is there and what is wanted: pods from the kubelet and the API server, cgroups, topology, the policy."""

from trimtab.node.informer.informer import NodeInformer

__all__ = ["NodeInformer"]

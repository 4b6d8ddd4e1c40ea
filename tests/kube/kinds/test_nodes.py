"""Nodes are folded to what fits on them, however the server writes it."""

from harness.builders.records import project_object
from trimtab.kube.kinds.nodes import NodeResources, node_projection


def test_node_with_a_thousand_pods_is_read() -> None:
    status = {"capacity": {"cpu": "8", "memory": "16Gi", "pods": "1k"}, "allocatable": {"pods": "110"}}
    node = project_object(node_projection(), {"metadata": {"name": "large"}, "status": status})
    assert node.capacity == NodeResources(cpu=8000, memory=16 << 30, pods=1000)
    assert node.allocatable.pods == 110


def test_node_record_has_the_version_of_its_kubelet() -> None:
    wire = {"metadata": {"name": "old"}, "status": {"nodeInfo": {"kubeletVersion": "v1.33.4"}}}
    assert project_object(node_projection(), wire).kubelet_version == "v1.33.4"
    assert project_object(node_projection(), {"metadata": {"name": "silent"}}).kubelet_version == ""

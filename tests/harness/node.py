"""This machine as a node of a test cluster: containerd, kubelet and metrics-server."""

from typing import TYPE_CHECKING, Self

from harness import UnavailableError

if TYPE_CHECKING:
    from harness.cluster import Cluster


class Node:
    """A running node."""

    @classmethod
    def start(cls, cluster: "Cluster") -> Self:
        raise UnavailableError("the node is not built yet")

    def stop(self) -> None:
        """End it."""

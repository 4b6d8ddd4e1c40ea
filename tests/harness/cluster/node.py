"""Make this machine a node of a test cluster: containerd, the kubelet and metrics-server.

Real containers run on it, from the images of `images`. There is one such node on a machine at a time, since the
kubelet takes the machine's cgroups for its own; so its folder in the cache is always the same, and what a crashed
run left in it is cleared by the next. The node's name is localhost, so that connections by name arrive.
"""

import fcntl
import os
from collections.abc import Callable
from contextlib import ExitStack
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Self

import yaml

from harness import UnavailableError, build, packages
from harness.builders.certificates import LOOPBACK
from harness.cluster import container_cleanup as remains
from harness.cluster import images
from harness.cluster.containerd import Containerd
from harness.cluster.images import Image
from harness.cluster.metricsserver import MetricsServer
from harness.process import Process, free_port

if TYPE_CHECKING:
    from harness.cluster.cluster import Cluster

NAME = "localhost"


def prepare() -> None:
    """Build and install what a node needs, or say why this machine cannot be one."""
    if os.geteuid() != 0:
        raise UnavailableError("the node needs root: containers are made by it")
    if not any(os.access(folder, os.W_OK) for folder in ("/sys/fs/cgroup/memory", "/sys/fs/cgroup")):
        raise UnavailableError(
            "the node needs cgroups, and /sys/fs/cgroup cannot be written to on this machine"
        )
    packages.install("runc", "containernetworking-plugins", "busybox-static", "gcc", "libc6-dev")
    build.CONTAINERD.built()
    build.METRICS_SERVER.built()


class Node:
    """A running node of a cluster."""

    def __init__(self, cluster: "Cluster") -> None:
        prepare()
        self._cluster = cluster
        self._claim = _claim()
        self.folder = build.cache() / "node"
        remains.clear(self.folder)
        self.folder.mkdir()
        self.kubelet_port = free_port()
        self.containerd = Containerd(self.folder, log=cluster.log("containerd"))
        self._kubelet = self._make_kubelet(self.containerd.socket)
        self._metrics_server = MetricsServer(cluster)

    @classmethod
    def start(cls, cluster: "Cluster") -> Self:
        """Make this machine a node of the cluster, ready for pods."""
        node = cls(cluster)
        with ExitStack() as undo:
            undo.callback(node.stop)
            node._start()
            undo.pop_all()
        return node

    def load(self, image: Image) -> None:
        """Make an image known to the node."""
        self.containerd.load(image)

    def serve_kubelet_by(self, runtime: Path | None) -> Callable[[], None]:
        """Restart the kubelet with another runtime's socket, such as a proxy's; None is containerd's own.

        What is returned waits until it is ready: apart, since the proxy may need the thread that started the kubelet.
        """
        before = self._heartbeat()
        self._kubelet.kill()
        self._kubelet = self._make_kubelet(runtime or self.containerd.socket)
        self._kubelet.start()

        def wait() -> None:
            # Before its next heartbeat the node is Ready only by the report of the last kubelet.
            self._kubelet.wait_until(lambda: self._heartbeat() != before)
            self._kubelet.wait_until(lambda: self._cluster.is_so(f"/api/v1/nodes/{NAME}", "Ready"))

        return wait

    def _heartbeat(self) -> list[str]:
        node = self._cluster.call("GET", f"/api/v1/nodes/{NAME}")
        return [each["lastHeartbeatTime"] for each in node["status"]["conditions"]]

    def stop(self) -> None:
        self._metrics_server.kill()
        self._kubelet.kill()
        self.containerd.kill()
        remains.clear(self.folder)
        self._claim.close()

    def _start(self) -> None:
        self.containerd.start()
        self.load(images.pause(self.folder))
        self.load(images.busybox())
        self._kubelet.start()
        self._kubelet.wait_until(lambda: self._cluster.is_so(f"/api/v1/nodes/{NAME}", "Ready"))
        self._metrics_server.start()

    def _make_kubelet(self, runtime: Path) -> Process:
        own = self._cluster.credentials.authority.issue("kubelet", hosts=LOOPBACK)
        settings = self.folder / "kubelet.yaml"
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": "127.0.0.1",
            "port": self.kubelet_port,
            "healthzPort": 0,
            "tlsCertFile": str(own.cert),
            "tlsPrivateKeyFile": str(own.key),
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self._cluster.ca)},
            },
            "authorization": {"mode": "Webhook"},
            "containerRuntimeEndpoint": f"unix://{runtime}",
            "cgroupDriver": "cgroupfs",
            "failCgroupV1": False,  # many a machine that runs tests has no other
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            "resolvConf": "",
            # A developer's full disk is no reason to throw out pods, nor images that cannot be pulled again.
            "evictionHard": {
                "memory.available": "100Mi",
                "nodefs.available": "1%",
                "imagefs.available": "1%",
            },
            "imageGCHighThresholdPercent": 100,
        }
        settings.write_text(yaml.safe_dump(config))
        flags = [
            f"--config={settings}",
            f"--kubeconfig={self._cluster.kubeconfig}",
            f"--root-dir={self.folder / 'kubelet'}",
            f"--hostname-override={NAME}",
            f"--containerd={self.containerd.socket}",  # else cAdvisor's series have no container labels
            "--housekeeping-interval=1s",  # of ten seconds, as in production, a test would have to wait for many
        ]
        return Process("kubelet", [build.KUBE.built() / "kubelet", *flags], log=self._cluster.log("kubelet"))


def _claim() -> TextIOWrapper:
    """Hold the machine's only node, until closed."""
    claim = (build.cache() / "node.lock").open("w")
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        claim.close()
        raise UnavailableError(
            "another run has this machine's node: wait for its end, or end it (`make cluster-down`)"
        ) from None
    return claim

"""Run metrics-server outside the cluster, behind a service that names loopback."""

import base64
from typing import TYPE_CHECKING

from harness import build
from harness.builders.certificates import LOOPBACK
from harness.process import Process, free_port

if TYPE_CHECKING:
    from harness.cluster.cluster import Cluster

_REGISTRY = "/apis/apiregistration.k8s.io/v1/apiservices"
_API = "v1beta1.metrics.k8s.io"
_PLACE = {"name": "metrics-server", "namespace": "kube-system"}


class MetricsServer:
    """A metrics-server for all nodes of a cluster."""

    def __init__(self, cluster: "Cluster") -> None:
        self._cluster = cluster
        self._port = free_port()
        hosts = (*LOOPBACK, "DNS:metrics-server.kube-system.svc")
        own = cluster.credentials.authority.issue("metrics-server", hosts=hosts)
        flags = [
            f"--kubeconfig={cluster.kubeconfig}",
            f"--authentication-kubeconfig={cluster.kubeconfig}",
            f"--authorization-kubeconfig={cluster.kubeconfig}",
            f"--kubelet-certificate-authority={cluster.ca}",
            "--kubelet-preferred-address-types=Hostname",
            "--kubelet-use-node-status-port",
            "--kubelet-request-timeout=5s",
            "--metric-resolution=10s",  # the least that it takes
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--tls-cert-file={own.cert}",
            f"--tls-private-key-file={own.key}",
        ]
        program = build.METRICS_SERVER.built() / "metrics-server"
        self._server = Process("metrics-server", [program, *flags], log=cluster.log("metrics-server"))

    def start(self) -> None:
        self._server.start()
        self._register()
        self._server.wait_until(lambda: self._cluster.is_so(f"{_REGISTRY}/{_API}", "Available"))

    def kill(self) -> None:
        self._server.kill()

    def _register(self) -> None:
        named = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": self._port}]}
        self._cluster.call(
            "POST", "/api/v1/namespaces/kube-system/services", {"metadata": _PLACE, "spec": named}
        )
        served = {
            "group": "metrics.k8s.io",
            "version": "v1beta1",
            "service": {**_PLACE, "port": self._port},
            "caBundle": base64.b64encode(self._cluster.ca.read_bytes()).decode(),
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
        }
        self._cluster.call("POST", _REGISTRY, {"metadata": {"name": _API}, "spec": served})

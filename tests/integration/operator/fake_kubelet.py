"""A node that is only on paper: says of pods that they run with what they ask for, and what they use.

For soaks of the operator, which is about what it writes and not about kernels: they need no node of this machine, and
a Prometheus scrapes this one as it would a kubelet.
"""

import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from harness.builders.objects import pod_status
from harness.cluster.cluster import Cluster

CPU, MEMORY = 0.02, 20 << 20
"""The usage of every container."""


class PaperNode:
    """Looks after the pods of a namespace; `with` starts and ends it. What they use is to be scraped from `port`."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._namespace = namespace
        self._ended = threading.Event()
        self._reported: dict[str, Any] = {}
        """The requests of each pod at its last report, by uid."""
        self._running: list[tuple[str, str]] = []
        node = self

        class KubeletHandler(BaseHTTPRequestHandler):
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                text = node.exposition().encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), KubeletHandler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        self._threads = [
            threading.Thread(target=each, daemon=True)
            for each in (self._server.serve_forever, self._look_after)
        ]

    def exposition(self) -> str:
        """As a kubelet's cAdvisor has it."""
        lines = []
        for pod, container in self._running:
            labels = f'{{namespace="{self._namespace}",pod="{pod}",container="{container}"}}'
            lines.append(f"container_cpu_usage_seconds_total{labels} {time.monotonic() * CPU:.6f}")
            lines.append(f"container_memory_working_set_bytes{labels} {MEMORY}")
        return "\n".join([*lines, ""])

    def _look_after(self) -> None:
        while not self._ended.wait(0.2):
            with suppress(OSError):  # the server is away: nothing changes meanwhile
                self._report(self._cluster.call("GET", self._path)["items"])

    def _report(self, pods: list[dict[str, Any]]) -> None:
        for pod in pods:
            metadata, wants = pod["metadata"], pod["spec"]["containers"]
            if self._reported.get(metadata["uid"]) != wants:
                self._cluster.call(
                    "PUT", f"{self._path}/{metadata['name']}/status", pod | {"status": pod_status(pod)}
                )
                self._reported[metadata["uid"]] = wants
        self._running = [
            (pod["metadata"]["name"], each["name"]) for pod in pods for each in pod["spec"]["containers"]
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
        for thread in self._threads:
            thread.join()

"""A real Prometheus, from Debian's package, that scrapes what the kubelet of our node knows of its containers."""

import json
import urllib.parse
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from harness import packages
from harness.cluster import Cluster
from harness.node import NAME
from harness.process import Process, free_port


class Prometheus:
    """A running server at `url`; `with Prometheus(cluster, folder) as prometheus:` stops it at the end."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        packages.install("prometheus")
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        settings = folder / "prometheus.yml"
        settings.write_text(yaml.safe_dump(_scrape(cluster)))
        flags = [f"--config.file={settings}", f"--storage.tsdb.path={folder / 'data'}"]
        flags.append(f"--web.listen-address=127.0.0.1:{port}")
        self._server = Process("prometheus", ["prometheus", *flags], log=folder / "log")

    def query(self, promql: str) -> list[dict[str, Any]]:
        """What an instant query finds: a list of series, each with its labels and its value."""
        asked = urllib.parse.urlencode({"query": promql})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{asked}", timeout=30) as response:
            found: list[dict[str, Any]] = json.load(response)["data"]["result"]
            return found

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    def __enter__(self) -> Self:
        self._server.start()
        self._server.wait_until(self._ready)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.kill()


def _scrape(cluster: Cluster) -> dict[str, Any]:
    node = cluster.add_node()
    place = {"targets": [f"127.0.0.1:{node.kubelet_port}"], "labels": {"node": NAME}}
    kubelet = {
        "job_name": "kubelet",
        "scheme": "https",
        "metrics_path": "/metrics/cadvisor",
        "authorization": {"credentials": cluster.token},
        "tls_config": {"ca_file": str(cluster.ca)},
        "static_configs": [place],
    }
    return {"global": {"scrape_interval": "2s"}, "scrape_configs": [kubelet]}

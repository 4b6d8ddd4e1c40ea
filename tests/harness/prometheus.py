"""A real Prometheus, from Debian's package: one that scrapes the kubelet of our node, or one that holds a recording."""

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from harness import packages
from harness.cluster import Cluster
from harness.node import NAME
from harness.process import Process, free_port


class Server:
    """A running server at `url`; `with` starts it and stops it at the end."""

    def __init__(
        self,
        folder: Path,
        *,
        settings: Mapping[str, Any],
        web: Mapping[str, Any] | None = None,
        flags: Sequence[str] = (),
    ) -> None:
        packages.install("prometheus")
        port = free_port()
        self.url = f"http{'s' if web and 'tls_server_config' in web else ''}://127.0.0.1:{port}"
        file = folder / "prometheus.yml"
        file.write_text(yaml.safe_dump(dict(settings)))
        guard = folder / "web.yml"
        guard.write_text(yaml.safe_dump(dict(web or {})))
        flags = [
            f"--config.file={file}",
            f"--web.config.file={guard}",
            f"--storage.tsdb.path={folder / 'data'}",
            *flags,
        ]
        flags.append(f"--web.listen-address=127.0.0.1:{port}")
        self._server = Process("prometheus", ["prometheus", *flags], log=folder / "log")

    def query(self, promql: str) -> list[dict[str, Any]]:
        """What an instant query finds: a list of series, each with its labels and its value."""
        asked = urllib.parse.urlencode({"query": promql})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{asked}", timeout=30) as response:
            found: list[dict[str, Any]] = json.load(response)["data"]["result"]
            return found

    @property
    def pid(self) -> int:
        return self._server.pid

    def start(self) -> None:
        before = self._times_ready()
        self._server.start()
        self._server.wait_until(lambda: self._times_ready() > before)

    def kill(self) -> None:
        """End it at once, as a crash would; `start` it again, and it has all but the last samples."""
        self._server.kill()

    def _times_ready(self) -> int:
        log = self._server.log
        return log.read_text().count("Server is ready to receive web requests") if log.exists() else 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


class Prometheus(Server):
    """It scrapes what the kubelet of our node knows of its containers."""

    def __init__(self, cluster: Cluster, folder: Path, *, every: str = "2s") -> None:
        settings = {"global": {"scrape_interval": every}, "scrape_configs": [scrape_kubelet(cluster)]}
        super().__init__(folder, settings=settings)


class Recorded(Server):
    """It holds samples given as OpenMetrics text, each with its time, and scrapes nothing."""

    def __init__(
        self,
        folder: Path,
        openmetrics: str,
        *,
        web: Mapping[str, Any] | None = None,
        flags: Sequence[str] = (),
    ) -> None:
        packages.install("prometheus")
        text = folder / "recording.txt"
        text.write_text(openmetrics + "# EOF\n")
        command = [
            "promtool",
            "tsdb",
            "create-blocks-from",
            "openmetrics",
            "--quiet",
            str(text),
            str(folder / "data"),
        ]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            raise RuntimeError(f"promtool took no recording: {made.stderr}")
        keep = "--storage.tsdb.retention.time=100y"
        super().__init__(folder, settings={"scrape_configs": []}, web=web, flags=[keep, *flags])


def scrape_kubelet(cluster: Cluster) -> dict[str, Any]:
    """How what the kubelet of our node knows of its containers is scraped."""
    node = cluster.add_node()
    place = {"targets": [f"127.0.0.1:{node.kubelet_port}"], "labels": {"node": NAME}}
    return {
        "job_name": "kubelet",
        "scheme": "https",
        "metrics_path": "/metrics/cadvisor",
        "authorization": {"credentials": cluster.token},
        "tls_config": {"ca_file": str(cluster.ca)},
        "static_configs": [place],
    }

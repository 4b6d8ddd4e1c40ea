"""Run a real Prometheus that scrapes the kubelet of our node, or that holds a recording."""

import json
import struct
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from harness import packages
from harness.cluster.cluster import Cluster
from harness.cluster.node import NAME
from harness.process import Process, free_port


class PrometheusServer:
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
        """Return the result of an instant query: series, each with its labels and its value."""
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


class Prometheus(PrometheusServer):
    """It scrapes what the kubelet of our node knows of its containers."""

    def __init__(self, cluster: Cluster, folder: Path, *, every: str = "2s") -> None:
        settings = {"global": {"scrape_interval": every}, "scrape_configs": [scrape_kubelet(cluster)]}
        super().__init__(folder, settings=settings)


def import_openmetrics(text: Path, data: Path, *, block: str = "2h") -> None:
    """Write samples, given as OpenMetrics text with their times, to the blocks that a server reads; each block is a pass over the text."""
    packages.install("prometheus")
    command = ["promtool", "tsdb", "create-blocks-from", f"--max-block-duration={block}", "openmetrics"]
    command += ["--quiet", str(text), str(data)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        raise RuntimeError(f"promtool took no recording: {made.stderr}")


class Recorded(PrometheusServer):
    """It holds samples given as OpenMetrics text, each with its time, and scrapes nothing."""

    def __init__(
        self,
        folder: Path,
        openmetrics: str,
        *,
        web: Mapping[str, Any] | None = None,
        flags: Sequence[str] = (),
    ) -> None:
        text = folder / "recording.txt"
        text.write_text(openmetrics + "# EOF\n")
        import_openmetrics(text, folder / "data")
        keep = "--storage.tsdb.retention.time=100y"
        super().__init__(folder, settings={"scrape_configs": []}, web=web, flags=[keep, *flags])


def scrape_kubelet(cluster: Cluster) -> dict[str, Any]:
    """Return the scrape configuration for the kubelet of our node."""
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


class Written(PrometheusServer):
    """It holds what is written to it, late and out of order too, as by the remote write of another Prometheus."""

    def __init__(self, folder: Path) -> None:
        settings = {"scrape_configs": [], "storage": {"tsdb": {"out_of_order_time_window": "6h"}}}
        super().__init__(folder, settings=settings, flags=["--web.enable-remote-write-receiver"])

    def write(self, samples: Iterable[tuple[Mapping[str, str], float, float]]) -> None:
        """Write samples: the labels of each, with its name, its time in seconds and its value."""
        body = b"".join(_field(1, _series(labels, at, value)) for labels, at, value in samples)
        if not body:
            return
        headers = {
            "Content-Encoding": "snappy",
            "Content-Type": "application/x-protobuf",
            "X-Prometheus-Remote-Write-Version": "0.1.0",
        }
        asked = urllib.request.Request(f"{self.url}/api/v1/write", _literal_snappy(body), headers)
        with urllib.request.urlopen(asked, timeout=30) as response:
            response.read()


def _series(labels: Mapping[str, str], at: float, value: float) -> bytes:
    """Write a TimeSeries of Prometheus' prompb/types.proto with one sample."""
    written = b"".join(
        _field(1, _field(1, name.encode()) + _field(2, text.encode()))
        for name, text in sorted(labels.items())
    )
    sample = b"\x09" + struct.pack("<d", value) + b"\x10" + _varint(round(at * 1000))
    return written + _field(2, sample)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _literal_snappy(content: bytes) -> bytes:
    """Write a block of Snappy without compressing anything."""
    pieces = [content[begin : begin + 60] for begin in range(0, len(content), 60)]
    return _varint(len(content)) + b"".join(bytes([len(piece) - 1 << 2]) + piece for piece in pieces)

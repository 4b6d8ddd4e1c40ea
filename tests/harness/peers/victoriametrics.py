"""A real VictoriaMetrics: speaks PromQL as Prometheus does, with rates of its own and no raw samples to read."""

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from harness import build
from harness.process import Process, free_port


@contextmanager
def victoriametrics(folder: Path, openmetrics: str, *limits: str) -> Iterator[str]:
    """The address of one that holds samples given as OpenMetrics text, each with its time."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    flags = [
        f"-httpListenAddr={address}",
        f"-storageDataPath={folder / 'data'}",
        "-retentionPeriod=100y",
        "-search.latencyOffset=0s",
        "-memory.allowedBytes=64MiB",
        "-loggerLevel=INFO",
        *limits,
    ]
    program = build.VICTORIA_METRICS.built() / "victoria-metrics"
    server = Process("victoria-metrics", [program, *flags], log=folder / "log")
    server.start()
    try:
        server.wait_until(lambda: "started server at" in server.log.read_text())
        _asked(
            f"http://{address}/api/v1/import/prometheus", "\n".join(_in_milliseconds(openmetrics)).encode()
        )
        _asked(f"http://{address}/internal/force_flush")
        yield f"http://{address}"
    finally:
        server.kill()


def _in_milliseconds(openmetrics: str) -> Iterator[str]:
    """As the older text format has it, which is the one that it imports."""
    for line in openmetrics.splitlines():
        if not line.startswith("#"):
            sample, at = line.rsplit(" ", 1)
            yield f"{sample} {float(at) * 1000:.0f}"


def _asked(url: str, body: bytes | None = None) -> bytes:
    with urllib.request.urlopen(url, data=body, timeout=30) as response:
        answer: bytes = response.read()
        return answer

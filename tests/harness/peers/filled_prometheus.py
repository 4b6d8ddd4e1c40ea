"""A Prometheus with days of usage of a whole population, and a meter of what it uses, for benchmarks."""

import asyncio
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.progress import track

from harness import packages
from harness.builders.bulk_objects import Place, Population
from harness.builders.services import Services
from harness.cluster.cluster import Cluster
from harness.peers.prometheus import PrometheusServer
from trimtab.kube.auth import load_connection
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.retry import RateLimiter

DAY = 86400
AHEAD = 3 * 3600
"""So that a past that is kept can be looked at again."""
CONTAINERS = ("web", "proxy")
BLOCK = 18 * 3600
"""The time span of one imported file, aligned with the importer's blocks to save a pass."""
TICKS = os.sysconf("SC_CLK_TCK")

console = Console(stderr=True)

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Took:
    """The cost of one scan."""

    name: str
    wall: float
    server_cpu: float
    queries: float
    mebibytes: float

    def times(self, share: float) -> "Took":
        return Took(
            self.name,
            self.wall * share,
            self.server_cpu * share,
            self.queries * share,
            self.mebibytes * share,
        )


class MeteredPrometheus:
    """A Prometheus, and what it has used since it was last looked at."""

    def __init__(self, server: PrometheusServer) -> None:
        self.server = server
        self._began = time.monotonic()
        self._before = self._now()

    def taken(self, name: str) -> Took:
        wall, now = time.monotonic() - self._began, self._now()
        cpu, queries, size = (after - before for after, before in zip(now, self._before, strict=True))
        return Took(name, wall, cpu, queries, size / 2**20)

    def _now(self) -> tuple[float, ...]:
        counted = dict.fromkeys(("requests_total", "response_size_bytes_sum"), 0.0)
        with urllib.request.urlopen(f"{self.server.url}/metrics", timeout=30) as response:
            for family in text_string_to_metric_families(response.read().decode()):
                for sample in family.samples:
                    name = sample.name.removeprefix("prometheus_http_")
                    if name in counted and sample.labels["handler"].startswith("/api/v1/"):
                        counted[name] += sample.value
        return cpu_seconds(self.server.pid), *counted.values()


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that a process has used."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / TICKS


def fill(folder: Path, places: Sequence[Place], *, days: int, scrape: int, now: int) -> None:
    """The past of every container and some hours ahead: for each block a file, and a run of the importer."""
    packages.install("prometheus")
    start, end = now - days * DAY, now + AHEAD
    begins = [start, *range((start // BLOCK + 1) * BLOCK, end, BLOCK)]
    for begin, until in track(list(pairwise([*begins, end])), "filling Prometheus", console=console):
        times = range(begin, until, scrape)
        text = folder / "block.txt"
        with text.open("w") as file:
            for metric, kind in (
                ("container_cpu_usage_seconds", "counter"),
                ("container_memory_working_set_bytes", "gauge"),
            ):
                file.write(f"# TYPE {metric} {kind}\n")
                for number, (place, container) in enumerate((p, c) for p in places for c in CONTAINERS):
                    name = f"{metric}_total" if kind == "counter" else metric
                    labels = (
                        f'{{namespace="{place.namespace}",pod="{place.name}",container="{container}",'
                        f'image="registry.example/app:1",job="kubelet",node="{place.node}"}} '
                    )
                    values = _cpu(number, times) if kind == "counter" else _memory(number, times)
                    file.writelines(
                        f"{name}{labels}{value} {t}\n"
                        for value, t in zip(values.tolist(), times, strict=True)
                    )
            file.write("# EOF\n")
        command = ["promtool", "tsdb", "create-blocks-from", f"--max-block-duration={BLOCK}s", "openmetrics"]
        subprocess.run([*command, str(text), str(folder / "data")], check=True, stdout=subprocess.DEVNULL)
        text.unlink()


def _cpu(number: int, times: range) -> Counts:
    """A counter: the integral of a day's rhythm, another for each container."""
    hours = np.asarray(times) / 3600
    used = (0.05 + number % 37 / 50) * 3600 * (hours + 2 * np.sin(hours / 24 * 2 * np.pi))
    return np.asarray(used, np.int64)


def _memory(number: int, times: range) -> Counts:
    hours = np.asarray(times) / 3600
    held = ((100 + number % 91 * 10) << 20) * (1 + 0.2 * np.sin(hours / 24 * 2 * np.pi))
    return np.asarray(held, np.int64)


@contextmanager
def filled_prometheus(
    past: Path, places: Sequence[Place], *, days: int, scrape: int
) -> Iterator[PrometheusServer]:
    """Serve what `past` holds; fill it first if it does not exist."""
    if not past.exists():
        past.mkdir()
        fill(past, places, days=days, scrape=scrape, now=int(time.time()) // scrape * scrape)
    # Blocks stay as they are: a server that compacts meanwhile would be measured for that too.
    blocks = [f"--storage.tsdb.{end}-block-duration={BLOCK}s" for end in ("min", "max")]
    limits = ["--storage.tsdb.retention.time=100y", "--query.timeout=10m", "--query.max-samples=200000000"]
    with PrometheusServer(past, settings={"scrape_configs": []}, flags=[*limits, *blocks]) as server:
        yield server


def populate(cluster: Cluster, population: Population) -> None:
    """Write the pods, ReplicaSets and Deployments of a population to a cluster whose controllers are stopped."""
    asyncio.run(_populate(cluster, population))


async def _populate(cluster: Cluster, population: Population) -> None:
    rate = RateLimiter(per_second=1e6, burst=1_000_000)
    async with Client(load_connection(kubeconfig=cluster.kubeconfig), rate=rate, timeout=120) as client:
        await population.multiply(client, cluster.etcd)
        await Services(population).multiply(client, cluster.etcd)

"""A scan of a whole cluster beside the subqueries that KRR sends for the same answer, on one real Prometheus.

    make bench BENCH=scan                                1,000 containers, 14 days
    PYTHONPATH=tests .venv/bin/python bench/scan.py --containers 10000    the size in docs/research/measured.md

A Prometheus is filled by its own importer with CPU and memory of every container. `trimtab scan --strategy krr` looks
at it and at a real API server with the Deployments, ReplicaSets and pods. Then some of the workloads are asked for in
the way of KRR's published `simple` strategy: for each container the percentile of CPU, the highest memory and the
number of samples of both, each a subquery over the whole window, ten at once. What these take is scaled to all
workloads: the queries do not depend on each other. The two alternate, and each side's quickest run counts: the pace of a
machine that others share changes from one minute to the next.

Counted are wall time, what Prometheus says of queries and bytes, and the CPU that the kernel says it used. KRR's time
from one sample to the next is twice the scrape interval here, which is kinder to Prometheus than its own 75 s.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path

import aiohttp
import numpy as np
import numpy.typing as npt
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.progress import track
from rich.table import Table

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
PODS_A_WORKLOAD = 5
AT_ONCE = 10
AIM = 10.0
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
        user, system = Path(f"/proc/{self.server.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        counted = dict.fromkeys(("requests_total", "response_size_bytes_sum"), 0.0)
        with urllib.request.urlopen(f"{self.server.url}/metrics", timeout=30) as response:
            for family in text_string_to_metric_families(response.read().decode()):
                for sample in family.samples:
                    name = sample.name.removeprefix("prometheus_http_")
                    if name in counted and sample.labels["handler"].startswith("/api/v1/"):
                        counted[name] += sample.value
        return (int(user) + int(system)) / TICKS, *counted.values()


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


def scan(cluster: Cluster, url: str, *, days: int) -> int:
    """Run the command as a user does; the answer is how many containers it sized."""
    command = [sys.executable, "-m", "trimtab", "scan", "--kubeconfig", str(cluster.kubeconfig)]
    options = ["--prometheus", url, "--days", str(days), "--strategy", "krr", "--output", "json"]
    done = subprocess.run([*command, *options], check=True, stdout=subprocess.PIPE)
    (found,) = json.loads(done.stdout)["clusters"]
    return sum(len(workload["containers"]) for workload in found["workloads"])


def subqueries(places: Sequence[Place], *, days: int, step: int) -> Iterator[str]:
    """Return the queries of KRR 1.2x for each container of one workload."""
    pods = "|".join(place.name for place in places)
    for container in CONTAINERS:
        where = f'{{namespace="{places[0].namespace}", pod=~"{pods}", container="{container}"}}'
        cpu, memory = (
            f"container_cpu_usage_seconds_total{where}",
            f"container_memory_working_set_bytes{where}",
        )
        window = f"[{days}d:{step}s]"
        yield f"quantile_over_time(0.95, max(rate({cpu}[{step}s])) by (container, pod, job){window})"
        yield f"max_over_time(max({memory}) by (container, pod, job){window})"
        yield f"count_over_time(max({cpu}) by (container, pod, job){window})"
        yield f"count_over_time(max({memory}) by (container, pod, job){window})"


async def ask(url: str, queries: Sequence[str]) -> int:
    """Ask all of them, some at once; the answer is how many had one."""
    left = iter(track(queries, "KRR's subqueries", console=console))
    answered = 0

    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(600)) as session:

        async def worker() -> None:
            nonlocal answered
            for query in left:
                async with session.post(f"{url}/api/v1/query", data={"query": query}) as response:
                    response.raise_for_status()
                    answered += bool((await response.json())["data"]["result"])

        await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
    return answered


async def populate(cluster: Cluster, population: Population) -> None:
    rate = RateLimiter(per_second=1e6, burst=1_000_000)
    async with Client(load_connection(kubeconfig=cluster.kubeconfig), rate=rate, timeout=120) as client:
        await population.multiply(client, cluster.etcd)
        await Services(population).multiply(client, cluster.etcd)


def measure(options: Namespace) -> tuple[Took, Took]:
    pods = options.containers // len(CONTAINERS)
    population = Population(pods, pods_a_workload=PODS_A_WORKLOAD)
    places = list(population.places())
    workloads = [list(group) for _, group in groupby(places, key=lambda place: place.app)]
    asked = workloads[:: max(1, len(workloads) // options.workloads)][: options.workloads]
    with (
        tempfile.TemporaryDirectory(prefix="trimtab-bench-") as folder,
        Cluster.start(Path(folder) / "cluster") as cluster,
    ):
        cluster.stop_controllers()  # they would delete pods whose nodes are only names
        asyncio.run(populate(cluster, population))
        past = options.past or Path(folder) / "prometheus"
        if not past.exists():
            past.mkdir()
            now = int(time.time()) // options.scrape * options.scrape
            fill(past, places, days=options.days, scrape=options.scrape, now=now)
        # Blocks stay as they are: a server that compacts meanwhile would be measured for that too.
        blocks = [f"--storage.tsdb.{end}-block-duration={BLOCK}s" for end in ("min", "max")]
        limits = [
            "--storage.tsdb.retention.time=100y",
            "--query.timeout=10m",
            "--query.max-samples=200000000",
        ]
        with PrometheusServer(past, settings={"scrape_configs": []}, flags=[*limits, *blocks]) as server:
            queries = [
                query
                for group in asked
                for query in subqueries(group, days=options.days, step=2 * options.scrape)
            ]
            ours, theirs = [], []
            for round_number in range(options.rounds):
                console.print(f"scanning, {round_number + 1} of {options.rounds} …")
                watched = MeteredPrometheus(server)
                sized = scan(cluster, server.url, days=options.days)
                ours.append(watched.taken("trimtab scan"))
                assert sized == len(workloads) * len(CONTAINERS), f"only {sized} were sized"
                watched = MeteredPrometheus(server)
                answered = asyncio.run(ask(server.url, queries))
                name = f"KRR's subqueries ({len(asked)} of {len(workloads)} workloads, scaled)"
                theirs.append(watched.taken(name).times(len(workloads) / len(asked)))
                assert answered == len(queries), f"only {answered} of {len(queries)} subqueries had an answer"
    return min(ours, key=_wall), min(theirs, key=_wall)


def _wall(took: Took) -> float:
    return took.wall


def main() -> None:
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--containers", type=int, default=1000)
    parser.add_argument("--days", type=int, default=14)
    parser.add_argument("--scrape", type=int, default=300, help="seconds from one sample to the next")
    parser.add_argument("--past", type=Path, help="where to keep what Prometheus holds; good for three hours")
    parser.add_argument("--workloads", type=int, default=20, help="how many KRR's queries are sent for")
    parser.add_argument("--rounds", type=int, default=3, help="of each side, whose quickest counts")
    options = parser.parse_args()
    ours, theirs = measure(options)
    table = Table("", "wall s", "Prometheus CPU s", "queries", "MiB", box=None)
    for each in (ours, theirs):
        table.add_row(
            each.name,
            f"{each.wall:.1f}",
            f"{each.server_cpu:.1f}",
            f"{each.queries:,.0f}",
            f"{each.mebibytes:,.1f}",
        )
    table.add_row(
        f"times less (aim {AIM:g})",
        f"{theirs.wall / ours.wall:.1f}",
        f"{theirs.server_cpu / ours.server_cpu:.1f}",
        f"{theirs.queries / ours.queries:.0f}",
        f"{theirs.mebibytes / max(ours.mebibytes, 1e-9):.2f}",
    )
    out = Console()
    out.print(f"{options.containers:,} containers, {options.days} days, a sample every {options.scrape} s")
    out.print(table)


if __name__ == "__main__":
    main()

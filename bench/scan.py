"""A scan of a whole cluster beside KRR, or the queries that it sends for the same answer, on one real Prometheus.

    make bench BENCH=scan                                1,000 containers, 14 days
    PYTHONPATH=tests .venv/bin/python bench/scan.py --containers 10000    the size in docs/research/measured.md

A Prometheus is filled by its own importer with CPU and memory of every container. `trimtab scan --strategy krr` looks
at it and at a real API server with the Deployments, ReplicaSets and pods. Where `KRR` names the command of KRR, such as
`KRR="python /opt/krr/krr.py"`, it then looks at the same workloads. Otherwise some of them are asked for in
the way of KRR's published `simple` strategy: for each container three queries for the pods of its workload, and then the
percentile of CPU, the highest memory and the number of samples of both, each a subquery over the whole window, ten
at once. The Prometheus has nothing of kube-state-metrics, so that the first three cost it next to nothing. What these take is scaled to all
workloads: the queries do not depend on each other. The two alternate, and each side's quickest run counts: the pace of a
machine that others share changes from one minute to the next.

Counted are wall time, what Prometheus says of queries and bytes, and the CPU that the kernel says it used. KRR's time
from one sample to the next is twice the scrape interval here, which is kinder to Prometheus than its own 75 s.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import aiohttp
from rich.console import Console
from rich.progress import track
from rich.table import Table

from harness.builders.bulk_objects import Place, Population
from harness.cluster.cluster import Cluster
from harness.peers import krr
from harness.peers.filled_prometheus import (
    CONTAINERS,
    MeteredPrometheus,
    Took,
    console,
    filled_prometheus,
    populate,
)

PODS_A_WORKLOAD = 5
AT_ONCE = 10
AIM = 10.0


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


def pod_queries(places: Sequence[Place], *, days: int) -> Iterator[str]:
    """Return the queries by which KRR looks for the pods of a workload, once for each of its containers."""
    names = "|".join(place.name for place in places)
    app, namespace = places[0].app, places[0].namespace
    for _ in CONTAINERS:
        yield f'kube_replicaset_owner{{owner_name="{app}", owner_kind="Deployment", namespace="{namespace}"}}[{days}d]'
        owners = f'owner_name=~"{app}-7c9f8d6b5", owner_kind="ReplicaSet", namespace="{namespace}"'
        yield f"last_over_time(kube_pod_owner{{{owners}}}[{days}d])"
        yield f'kube_pod_status_phase{{phase="Running", pod=~"{names}", namespace="{namespace}"}} == 1'


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


def run_krr(program: list[str], cluster: Cluster, url: str, *, days: int, step: int) -> int:
    """Run KRR; the answer is how many containers it sized."""
    asked = ["--history_duration", str(24 * days), "--timeframe_duration", str(step / 60)]
    found = krr.ask(program, kubeconfig=cluster.kubeconfig, prometheus=url, options=asked)
    return sum(None not in requests.values() for requests in found.values())


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
        populate(cluster, population)
        past = options.past or Path(folder) / "prometheus"
        with filled_prometheus(past, places, days=options.days, scrape=options.scrape) as server:
            queries = [
                query
                for group in asked
                for query in subqueries(group, days=options.days, step=2 * options.scrape)
            ]
            pods_asked = [query for group in asked for query in pod_queries(group, days=options.days)]
            ours, theirs = [], []
            for round_number in range(options.rounds):
                console.print(f"scanning, {round_number + 1} of {options.rounds} …")
                watched = MeteredPrometheus(server)
                sized = scan(cluster, server.url, days=options.days)
                ours.append(watched.taken("trimtab scan"))
                assert sized == len(workloads) * len(CONTAINERS), f"only {sized} were sized"
                watched = MeteredPrometheus(server)
                if program := krr.find_program():
                    sized = run_krr(program, cluster, server.url, days=options.days, step=2 * options.scrape)
                    theirs.append(watched.taken("KRR"))
                    assert sized == len(workloads) * len(CONTAINERS), f"KRR sized only {sized}"
                    continue
                answered = asyncio.run(ask(server.url, [*pods_asked, *queries]))
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

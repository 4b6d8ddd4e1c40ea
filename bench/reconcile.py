"""The operator over a whole cluster: one reconcile pass, its memory, and what it writes.

    make bench BENCH=reconcile                            1,000 workloads, 5,000 pods, 200 policies
    PYTHONPATH=tests .venv/bin/python bench/reconcile.py --workloads 10000    the size in docs/research/measured.md

On a real API server stand Deployments of five pods with two containers each, five Deployments a policy in mode
Recommend. Usage of all of them is served by a PromQL server whose answers are canned, so that what reading costs us is
in the figures and what it costs Prometheus is not. The operator is the real one in a process and on a core of its own;
only the times of its cycles are decided here. A pass is an ingest cycle (usage of all containers is read and learned) and
a reconcile of every workload: its recommendation, whether to apply it, and its status.

Four readings: until the cluster is listed; the first pass, which reads an hour of the past and writes every status;
one in which nothing has changed; and one in which a hundredth of the workloads need more than before. Each says what
it took and what the API server counted as writes.

There is no peer to run beside it: VPA splits this work in three. The anchor is a figure that is quoted, not measured
here: its updater's own benchmark takes 98.8 s for a loop over 1,000 VPAs.
"""

import asyncio
import cProfile
import gc
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Never

import uvloop
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.progress import track
from rich.table import Table

from harness.builders.bulk_objects import Population, Progress
from harness.builders.objects import Object
from harness.builders.services import Services
from harness.cluster.cluster import Cluster
from trimtab.kube.auth import load_connection
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.retry import RateLimiter
from trimtab.memory_trim import limit_allocator_arenas, release_compiler_memory
from trimtab.operator.app import OperatorApp
from trimtab.operator.config.model import LogSettings
from trimtab.operator.config.reloader import ConfigReloader
from trimtab.operator.leader import LeaderSession
from trimtab.operator.logs import configure_logging

ROOT = Path(__file__).parents[1]
PODS_A_WORKLOAD = 5
CONTAINERS = ("web", "proxy")
VPA_UPDATER = "98.8 s for 1,000 VPAs"
WRITES = {"POST", "PUT", "PATCH", "APPLY", "DELETE"}
ALL_CORES = os.sched_getaffinity(0)
MEASURED_ON = min(ALL_CORES)
PROFILES = os.environ.get("PROFILES", "")
"""A folder in which the operator leaves a profile of each thing that it does; the figures are then worth nothing."""
UNLIMITED = RateLimiter(per_second=1e6, burst=1_000_000)

console = Console(stderr=True)


@dataclass
class PassReading:
    """The resources that the operator used for one step."""

    name: str
    wall_seconds: float
    cpu_seconds: float
    resident_mib: float
    """Resident memory of the process after the step."""
    peak_mib: float
    """Maximum resident memory since the start of the process."""
    libraries_mib: float
    """The part of its memory that is file pages of libraries, above all LLVM's: the system drops them when needed."""
    writes: dict[str, int] = field(default_factory=dict)


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def memory_mib(field: str) -> float:
    """A field of this process: VmRSS (what it holds), VmHWM (the peak), RssFile (what is mapped from files)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise LookupError(field)


# The operator, run as a child process: it does one thing for every line on standard input


class Measured(OperatorApp):
    """The operator, with cycles on request."""

    async def _run_session(self, session: LeaderSession) -> Never:
        statuses, workloads = session.controllers.status_writer, session.workload_queue
        await session.detect_features()
        print_reading("listed", (time.monotonic() - BEGAN, cpu_seconds() - CPU_BEGAN))
        async with asyncio.TaskGroup() as group:
            group.create_task(workloads.run())
            group.create_task(statuses.queue.run())

            async def ingest() -> None:
                await session.controllers.ingest_cycle.run_once(time.time())
                release_compiler_memory()  # as a leader does once its first cycle is over

            async def reconcile_all() -> None:
                session.enqueue_all()
                await workloads.wait_idle()
                while len(statuses.queue):  # noqa: ASYNC110 - a delayed key has no event to wait for
                    await asyncio.sleep(0.05)
                await statuses.queue.wait_idle()

            while word := await asyncio.to_thread(sys.stdin.readline):
                await timed(word.strip(), {"ingest": ingest, "reconcile_all": reconcile_all}[word.strip()])
        raise AssertionError("it is ended from without")


BEGAN, CPU_BEGAN = time.monotonic(), cpu_seconds()


async def timed(name: str, work: Callable[[], Awaitable[None]]) -> None:
    profile = cProfile.Profile() if PROFILES else None
    cpu, wall = cpu_seconds(), time.monotonic()
    if profile:
        profile.enable()
    await work()
    print_reading(name, (time.monotonic() - wall, cpu_seconds() - cpu))
    if profile:
        profile.disable()
        profile.dump_stats(f"{PROFILES}/{name}-{time.time():.0f}.pstats")


def print_reading(name: str, took: tuple[float, float]) -> None:
    reading = PassReading(name, *took, memory_mib("VmRSS"), memory_mib("VmHWM"), memory_mib("RssFile"))
    print(json.dumps(asdict(reading)), flush=True)


def operate(options: Namespace) -> None:
    limit_allocator_arenas()  # as `trimtab operator` does, and the next
    configure_logging(LogSettings(level="warning"))
    gc.freeze()
    config = ConfigReloader(
        None,
        environment={},
        flags=[
            f"metricsSource.settings.url={options.usage}",
            "webhook.enabled=false",
            "leaderElection.enabled=false",
            f"store.url={options.store}",
            "address=127.0.0.1:0",
            "namespace=default",
            "learning.history=1h",
        ],
    )
    operator = Measured(load_connection(kubeconfig=options.kubeconfig), config)
    uvloop.run(operator.run())


# What uses how much: a PromQL server that knows the questions that we ask


class CannedUsage:
    """Answers for every container of a population: a level of its own with a little noise, at any time."""

    def __init__(self, population: Population) -> None:
        self.grown: set[int] = set()
        """Workloads that use three times as much as they did."""
        self._places: dict[str, list[tuple[int, str]]] = {}
        for number, place in enumerate(population.places()):
            workload = number // PODS_A_WORKLOAD
            self._places.setdefault(place.namespace, []).append((workload, place.name))

    def application(self) -> web.Application:
        application = web.Application(client_max_size=1 << 24)
        application.router.add_post("/api/v1/labels", self._labels)
        application.router.add_get("/api/v1/label/{name}/values", self._values)
        application.router.add_post("/api/v1/query_range", self._range)
        return application

    async def _labels(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "success", "data": ["namespace", "pod", "container"]})

    async def _values(self, request: web.Request) -> web.Response:
        known = {"namespace": sorted(self._places)}
        return web.json_response({"status": "success", "data": known.get(request.match_info["name"], [])})

    async def _range(self, request: web.Request) -> web.Response:
        form = await request.post()
        query, start, step = str(form["query"]), float(str(form["start"])), float(str(form["step"]))
        times = [start + step * row for row in range(round((float(str(form["end"])) - start) / step) + 1)]
        named = re.search(r'namespace=~?"([^"]*)"', query)
        spaces = named[1].replace("\\", "").split("|") if named and named[1] else sorted(self._places)
        if "count_over_time" in query:
            series = [_series("", times, "20")]
        elif query.startswith("count by"):
            series = [
                _series(f'"namespace":"{space}"', times, str(len(self._places[space]) * len(CONTAINERS)))
                for space in spaces
            ]
        else:
            series = self._usage("cpu" if "rate(" in query else "memory", spaces, times)
        text = '{"status":"success","data":{"resultType":"matrix","result":[' + ",".join(series) + "]}}"
        return web.Response(text=text, content_type="application/json")

    def _usage(self, kind: str, spaces: list[str], times: list[float]) -> list[str]:
        found = []
        for space in spaces:
            for workload, pod in self._places.get(space, ()):
                for container in CONTAINERS:
                    level = self._level(kind, workload, container)
                    labels = f'"namespace":"{space}","pod":"{pod}","container":"{container}"'
                    noise = hash((pod, container)) % 16
                    values = ",".join(
                        f'[{t:.3f},"{level * (1 + (int(t) // 60 + noise) % 16 / 100):.6g}"]' for t in times
                    )
                    found.append(f'{{"metric":{{{labels}}},"values":[{values}]}}')
        return found

    def _level(self, kind: str, workload: int, container: str) -> float:
        share = (workload * 7919 % 1000) / 1000 * (1.0 if container == "web" else 0.1)
        grown = 3 if workload in self.grown else 1
        return (0.01 + 0.2 * share) * grown if kind == "cpu" else (4e7 + 2e8 * share) * grown


def _series(labels: str, times: list[float], value: str) -> str:
    values = ",".join(f'[{t:.3f},"{value}"]' for t in times)
    return f'{{"metric":{{{labels}}},"values":[{values}]}}'


# The measurement


def progress(what: str) -> Progress:
    return lambda things: track(things, what, console=console)


def policy(squad: str) -> Object:
    """Recommends for the workloads of one squad; an hour of the past is enough for it."""
    return {
        "mode": "Recommend",
        "selector": {"workloadSelector": {"matchLabels": {"squad": squad}}},
        "metricsConfig": {"minimumHistory": "10m"},
        "reconciliationInterval": "24h",
    }


class Child:
    """The operator's process, which does one thing a line."""

    def __init__(self, cluster: Cluster, *, usage: str, store: Path) -> None:
        command = [sys.executable, __file__, "--child", "--kubeconfig", str(cluster.kubeconfig)]
        self._process = subprocess.Popen(
            [*command, "--usage", usage, "--store", str(store)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    async def reading(self, word: str = "") -> PassReading:
        """Have it do something, and hear what that took."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if word:
            print(word, file=self._process.stdin, flush=True)
        line = await asyncio.to_thread(self._process.stdout.readline)
        if not line:
            raise SystemExit(f"the operator ended without a reading ({self._process.wait()})")
        return PassReading(**json.loads(line))

    def end(self) -> None:
        self._process.kill()  # there is nothing that it would have to keep
        self._process.wait()


async def measure(options: Namespace) -> None:
    os.environ.setdefault("GOGC", "40")
    population = Population(options.workloads * PODS_A_WORKLOAD, pods_a_workload=PODS_A_WORKLOAD)
    with (
        tempfile.TemporaryDirectory(prefix="trimtab-bench-") as folder,
        Cluster.start(Path(folder) / "cluster") as cluster,
    ):
        cluster.learn()
        cluster.stop_controllers()  # they would delete pods whose nodes are only names
        services = Services(population)
        async with Client(
            load_connection(kubeconfig=cluster.kubeconfig), rate=UNLIMITED, timeout=120
        ) as client:
            await population.multiply(client, cluster.etcd, show=progress("pods"))
            await services.multiply(client, cluster.etcd, show=progress("workloads"))
            await services.write_policies(client, policy, show=progress("policies"))
        usage = CannedUsage(population)
        async with served(usage.application()) as url:
            with control_plane_off(MEASURED_ON):
                readings = await passes(
                    cluster, usage, url, store=Path(folder) / "store.db", size=options.workloads
                )
    show(readings, options)


@asynccontextmanager
async def served(application: web.Application) -> AsyncIterator[str]:
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def passes(
    cluster: Cluster, usage: CannedUsage, url: str, *, store: Path, size: int
) -> list[PassReading]:
    console.print("listing the cluster …")
    child = Child(cluster, usage=url, store=store)
    readings = [await child.reading()]
    try:
        for name in ("first pass", "second pass", "nothing changed", "a hundredth changed"):
            if name == "a hundredth changed":
                usage.grown = set(range(0, size, 100))
            if name != "first pass":
                console.print("waiting for a minute to be over …")
                await asyncio.sleep(60.5 - time.time() % 60)
            console.print(f"{name} …")
            before = writes(cluster)
            ingest, reconcile_all = await child.reading("ingest"), await child.reading("reconcile_all")
            written = writes(cluster) - before
            readings += [
                replace(ingest, name=f"{name}: ingest"),
                replace(reconcile_all, name=f"{name}: reconciles", writes=dict(written)),
            ]
    finally:
        child.end()
    return readings


def writes(cluster: Cluster) -> Counter[str]:
    """Return the writes of each resource as the API server counted them, without its own lease."""
    found: Counter[str] = Counter()
    for family in text_string_to_metric_families(cluster.kubectl("get", "--raw", "/metrics")):
        if family.name == "apiserver_request":
            for sample in family.samples:
                labels = sample.labels
                if labels["verb"] in WRITES and labels["resource"] != "leases":
                    what = "/".join(filter(None, (labels["resource"], labels["subresource"])))
                    found[what] += int(sample.value)
    return found


@contextmanager
def control_plane_off(core: int) -> Iterator[None]:
    """Keep this process and what it started so far, the control plane, off a core, if the machine has another."""
    others = ALL_CORES - {core} or ALL_CORES
    started = [
        str(os.getpid()),
        *(pid for found in Path("/proc/self/task").glob("*/children") for pid in found.read_text().split()),
    ]

    def move(cores: set[int]) -> None:
        for thread in [found for pid in started for found in Path(f"/proc/{pid}/task").iterdir()]:
            with suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread.name), cores)

    move(others)
    yield
    move(ALL_CORES)


def show(readings: list[PassReading], options: Namespace) -> None:
    if options.output == "json":
        print(json.dumps({"workloads": options.workloads, "readings": [asdict(each) for each in readings]}))
        return
    table = Table(
        "",
        "wall",
        "CPU",
        "resident",
        "peak so far",
        "of it libraries",
        "writes",
        title=f"One operator, {options.workloads:,} workloads, {options.workloads * PODS_A_WORKLOAD:,} pods",
    )
    for each in readings:
        written = ", ".join(f"{count:,} {what}" for what, count in sorted(each.writes.items()) if count)
        table.add_row(
            each.name,
            f"{each.wall_seconds:.1f} s",
            f"{each.cpu_seconds:.1f} s",
            f"{each.resident_mib:.0f} MiB",
            f"{each.peak_mib:.0f} MiB",
            f"{each.libraries_mib:.0f} MiB",
            written,
        )
    stdout = Console(width=130)  # or what was written is cut off where it is piped
    stdout.print(table)
    stdout.print(
        f"Aims for 10,000 workloads: a pass under 60 s on one core, under 500 MiB. VPA's updater, quoted: {VPA_UPDATER}."
    )


def main() -> None:
    parser = ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--workloads", type=int, default=1_000)
    parser.add_argument("--output", choices=["table", "json"], default="table")
    parser.add_argument("--child", action="store_true", help="used by the benchmark itself")
    parser.add_argument("--kubeconfig")
    parser.add_argument("--usage")
    parser.add_argument("--store")
    options = parser.parse_args()
    if options.child:
        os.sched_setaffinity(0, {MEASURED_ON})
        operate(options)
    else:
        asyncio.run(measure(options))


if __name__ == "__main__":
    main()

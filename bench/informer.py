"""Our cache of pods beside the official Python client, on one real API server in one run.

    make bench BENCH=informer                          5,000 pods
    PYTHONPATH=tests .venv/bin/python bench/informer.py --pods 200000   the size in docs/research/measured.md

Each side is a process of its own that reads the same pods (about 7 KB of JSON, two containers) and keeps them:
ours through an `Informer` with indexes by node and by owner, the official client through paged lists into its own
models. Compared are CPU seconds (user and system) and memory, whole and per pod. What is counted begins when modules
are imported and the kubeconfig is read, and ends when all pods are held; connecting is in it, on both sides.

The two alternate, and each side's cheapest of several rounds counts: other load only ever adds. The
control plane keeps off the core on which a client is measured, as it would in a cluster.

Then pods are stored again at 1,000 a second while our informer watches, and the cost of an event is printed as a share of
a core.
"""

import asyncio
import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import uvloop
from rich.console import Console
from rich.progress import track
from rich.table import Table

from harness.builders.bulk_objects import Population, Progress
from harness.cluster.cluster import Cluster
from trimtab.kube.auth import load_connection
from trimtab.kube.cache.informer import Informer
from trimtab.kube.kinds.pods import Pod, pod_projection
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import PODS
from trimtab.kube.rest.retry import RateLimiter

OFFICIAL_MOST = 10_000
WRITTEN_AT_MOST = 20_000
"""More pods than these are copied in etcd: the API server would take minutes to write what it then serves alike."""
ALL_CORES = os.sched_getaffinity(0)
MEASURED_ON = min(ALL_CORES)
UNLIMITED = RateLimiter(per_second=1e6, burst=1_000_000)

console = Console(stderr=True)


@dataclass
class Reading:
    """The resources that a process used to read and keep so many pods."""

    pods: int
    cpu_seconds: float
    wall_seconds: float
    before_mib: float
    peak_mib: float

    @property
    def cpu_microseconds_a_pod(self) -> float:
        return self.cpu_seconds / self.pods * 1e6

    @property
    def bytes_a_pod(self) -> float:
        return (self.peak_mib - self.before_mib) * 2**20 / self.pods


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def memory_mib(field: str) -> float:
    """VmRSS (now) or VmHWM (the peak) of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise LookupError(field)


# The two that are compared, each run as a child process: `--child ours KUBECONFIG PODS`


async def ours(kubeconfig: str, count: int, *, watch: bool) -> None:
    connection = load_connection(kubeconfig=kubeconfig)
    gc.freeze()  # as our processes do at their start: what is imported need not be looked at again
    before, cpu, wall = memory_mib("VmRSS"), cpu_seconds(), time.monotonic()
    async with Client(connection) as client:
        informer = Informer(
            client,
            PODS,
            pod_projection(),
            indexes={
                "node": lambda found: found.node or None,
                "owner": lambda found: found.owner and found.owner.uid,
            },
        )
        following = asyncio.create_task(informer.run())
        await informer.wait_synced()
        assert len(informer.cache) == count, f"{len(informer.cache)} pods, not {count}"
        reading = Reading(count, cpu_seconds() - cpu, time.monotonic() - wall, before, memory_mib("VmHWM"))
        print(json.dumps(asdict(reading)), flush=True)
        if watch:
            await _print_cost_of_events(informer)
        following.cancel()


async def _print_cost_of_events(informer: Informer[Pod]) -> None:
    """Count events and their CPU from `start` to `stop` on standard input."""
    seen = 0

    def count(_old: Pod | None, _new: Pod | None, /) -> None:
        nonlocal seen
        seen += 1

    informer.cache._handlers.append(count)  # noqa: SLF001 - on_change would count what is already there
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(None, sys.stdin.readline)
    cpu, wall = cpu_seconds(), time.monotonic()
    await loop.run_in_executor(None, sys.stdin.readline)
    counted, ended = -1, wall
    while counted != seen:  # the API server may lag by seconds
        counted, ended = seen, time.monotonic()
        await asyncio.sleep(8)
    print(json.dumps({"events": seen, "cpu": cpu_seconds() - cpu, "wall": ended - wall}), flush=True)


def official(kubeconfig: str, count: int) -> None:
    from kubernetes import client, config

    config.load_kube_config(kubeconfig)  # type: ignore[no-untyped-call]
    api = client.CoreV1Api()
    before, cpu, wall = memory_mib("VmRSS"), cpu_seconds(), time.monotonic()
    kept: dict[tuple[str, str], Any] = {}
    following: str | None = None
    while len(kept) < count:
        page: Any = api.list_pod_for_all_namespaces(limit=500, _continue=following)
        kept |= {(item.metadata.namespace, item.metadata.name): item for item in page.items}
        following = page.metadata._continue  # noqa: SLF001 - its public name for `continue`
        if not following:
            break
    reading = Reading(len(kept), cpu_seconds() - cpu, time.monotonic() - wall, before, memory_mib("VmHWM"))
    print(json.dumps(asdict(reading)), flush=True)


def progress(what: str) -> Progress:
    return lambda things: track(things, what, console=console)


def child(side: str, kubeconfig: Path, count: int) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        __file__,
        "--child",
        side,
        "--kubeconfig",
        str(kubeconfig),
        "--pods",
        str(count),
    ]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ)


def reading_of(side: str, kubeconfig: Path, count: int) -> Reading:
    process = child(side, kubeconfig, count)
    reading = Reading(**answer(process))  # type: ignore[arg-type]
    process.wait()
    return reading


def answer(process: subprocess.Popen[str]) -> dict[str, float]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"the measured process ended without a reading ({process.wait()})")
    found: dict[str, float] = json.loads(line)
    return found


async def measure(options: Namespace) -> None:
    os.environ.setdefault("GOGC", "40")  # for the API server: it would take 15 GB to serve 200,000 pods
    with (
        tempfile.TemporaryDirectory(prefix="trimtab-bench-") as folder,
        Cluster.start(Path(folder) / "cluster") as cluster,
    ):
        cluster.stop_controllers()  # they would delete pods whose owners and nodes are only names
        async with Client(
            load_connection(kubeconfig=cluster.kubeconfig), rate=UNLIMITED, timeout=120
        ) as client:
            population = Population(options.pods)
            if options.pods <= WRITTEN_AT_MOST:
                await population.write(client, show=progress("writing"))
            else:
                await population.multiply(client, cluster.etcd, show=progress("multiplying"))
            first = next(population.places())
            sample = json.dumps(
                await client.get(PODS, first.name, namespace=first.namespace), separators=(",", ":")
            )
            console.print(f"{options.pods:,} pods of {len(sample) / 1000:.1f} KB")
            with control_plane_off(MEASURED_ON):
                own, theirs = await asyncio.to_thread(
                    compare, cluster.kubeconfig, options.pods, options.rounds
                )
            watcher = child("watching", cluster.kubeconfig, options.pods)
            await asyncio.to_thread(answer, watcher)
            assert watcher.stdin is not None
            print("start", file=watcher.stdin, flush=True)
            await population.touch(
                cluster.etcd, events=options.events, per_second=1000, show=progress("changing")
            )
            print("stop", file=watcher.stdin, flush=True)
            events = await asyncio.to_thread(answer, watcher)
            watcher.wait()
    show(own, theirs, events, options.output)


@contextmanager
def control_plane_off(core: int) -> Iterator[None]:
    """Keep what we started so far, the control plane, off a core for a while, if the machine has another."""
    others = ALL_CORES - {core} or ALL_CORES
    started = [
        pid for found in Path("/proc/self/task").glob("*/children") for pid in found.read_text().split()
    ]

    def move(cores: set[int]) -> None:
        for thread in [found for pid in started for found in Path(f"/proc/{pid}/task").iterdir()]:
            with suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread.name), cores)

    move(others)
    yield
    move(ALL_CORES)


def compare(kubeconfig: Path, count: int, turns: int) -> tuple[Reading, Reading]:
    """Measure both sides alternately and return the cheapest round of each."""
    own, theirs = [], []
    for turn in range(1, turns + 1):
        console.print(f"round {turn} of {turns}: our informer, then the official client …")
        own.append(reading_of("ours", kubeconfig, count))
        theirs.append(reading_of("official", kubeconfig, min(count, OFFICIAL_MOST)))
    return cheapest(own), cheapest(theirs)


def cheapest(readings: list[Reading]) -> Reading:
    return min(readings, key=lambda reading: reading.cpu_seconds)


def show(own: Reading, theirs: Reading, events: dict[str, float], output: str) -> None:
    event_cost = events["cpu"] / events["events"]
    ratios = {
        "cpu": theirs.cpu_microseconds_a_pod / own.cpu_microseconds_a_pod,
        "memory": theirs.bytes_a_pod / own.bytes_a_pod,
    }
    if output == "json":
        watch = events | {"core_share_at_1000_per_second": event_cost * 1000}
        print(json.dumps({"ours": asdict(own), "official": asdict(theirs), "ratios": ratios, "watch": watch}))
        return
    table = Table(
        "", "trimtab", "official client", "less by", title=f"Reading {own.pods:,} pods from one API server"
    )
    table.add_row("pods read", f"{own.pods:,}", f"{theirs.pods:,}", "")
    table.add_row("CPU seconds", f"{own.cpu_seconds:.2f}", f"{theirs.cpu_seconds:.2f}", "")
    table.add_row(
        "CPU a pod",
        f"{own.cpu_microseconds_a_pod:.0f} µs",
        f"{theirs.cpu_microseconds_a_pod:.0f} µs",
        f"{ratios['cpu']:.0f} times",
    )
    table.add_row("peak of the process", f"{own.peak_mib:.0f} MiB", f"{theirs.peak_mib:.0f} MiB", "")
    table.add_row(
        "memory a pod",
        f"{own.bytes_a_pod:.0f} B",
        f"{theirs.bytes_a_pod:.0f} B",
        f"{ratios['memory']:.0f} times",
    )
    table.add_row("wall time", f"{own.wall_seconds:.1f} s", f"{theirs.wall_seconds:.1f} s", "")
    stdout = Console()
    stdout.print(table)
    stdout.print(
        f"Watching: {events['events']:,.0f} events at {events['events'] / events['wall']:.0f}/s cost "
        f"{event_cost * 1e6:.0f} µs of CPU each: {event_cost * 1000:.1%} of a core at 1,000 events/s."
    )


def main() -> None:
    parser = ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--pods", type=int, default=5_000)
    parser.add_argument("--events", type=int, default=10_000, help="changes to watch")
    parser.add_argument("--rounds", type=int, default=3, help="how often each side is measured")
    parser.add_argument("--output", choices=["table", "json"], default="table")
    parser.add_argument(
        "--child", choices=["ours", "watching", "official"], help="used by the benchmark itself"
    )
    parser.add_argument("--kubeconfig")
    options = parser.parse_args()
    if options.child in {"ours", "official"}:
        os.sched_setaffinity(0, {MEASURED_ON})
    if options.child in {"ours", "watching"}:
        uvloop.run(ours(options.kubeconfig, options.pods, watch=options.child == "watching"))
    elif options.child == "official":
        official(options.kubeconfig, options.pods)
    else:
        asyncio.run(measure(options))


if __name__ == "__main__":
    main()

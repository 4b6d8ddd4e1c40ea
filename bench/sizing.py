"""Our `vpa` beside the Kubernetes VPA recommender's own Go code: same samples, one core each, in one run.

    make bench BENCH=sizing                               100,000 containers
    PYTHONPATH=tests .venv/bin/python bench/sizing.py --output json

Both are fed the same three days of CPU and memory through a pipe, one after the other on the same core. Counted is
CPU time in taking in samples, and in recommending (three bounds, two resources) for all containers. Go is spared
the maps of its cluster state: its containers lie in a slice. Its memory is its live heap after a collection, ours
what the process has grown by. That both did the same work is seen in the sum of their targets.
"""

import gc
import json
import os
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from harness.peers.vpa import GoVpa
from trimtab.sizing import strategy

STEP_SECONDS = 1800
AIMS = {"samples_a_second": 8.0, "recommendations_a_second": 8.0, "bytes_a_container": 0.5}
REPEATS = 5
CORE = "0"

console = Console(stderr=True)


def steps(containers: int, count: int) -> Iterator[bytes]:
    """The cores of all containers, then their bytes, as doubles: a fleet of all sizes, with a time of day."""
    rng = np.random.default_rng(0)
    cpu, memory = rng.lognormal(-2, 1.2, containers), rng.lognormal(19.5, 1.2, containers)
    for step in range(count):
        wave = 1 + 0.5 * np.sin(step * STEP_SECONDS / 86400 * 2 * np.pi)
        used = cpu * wave * rng.lognormal(0, 0.3, containers)
        yield used.tobytes() + (memory * rng.uniform(0.8, 1.1, containers)).tobytes()


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE")


def ours(containers: int, count: int) -> dict[str, float]:
    """Run the same as `vpa bench` in Go; see `tests/harness/go/vpa/main.go`."""
    warm = strategy("vpa", containers=1)  # compiles, or loads what was compiled
    # What is read from a pipe cannot be written to: numba compiles for such arrays apart.
    once = np.frombuffer(np.ones(1).tobytes())
    warm.observe(0.0, once, once)
    warm.recommend(0.0)
    raw = sys.stdin.buffer.read(16 * containers)
    gc.collect()
    before = resident()
    sizer = strategy("vpa", containers=containers)
    observing = 0.0
    for step in range(count):
        usage = np.frombuffer(raw).reshape(2, containers)
        started = time.process_time()
        sizer.observe(float(step * STEP_SECONDS), usage[0], usage[1])
        observing += time.process_time() - started
        raw = sys.stdin.buffer.read(16 * containers) or raw
    del usage
    gc.collect()
    grown = resident() - before
    started = time.process_time()
    for _ in range(REPEATS):
        sizes = sizer.recommend(count * STEP_SECONDS)
    recommending = (time.process_time() - started) / REPEATS
    return {
        "containers": containers,
        "observe_seconds": observing,
        "recommend_seconds": recommending,
        "bytes": grown,
        "target_millicores": round(float(sizes.cpu.target.sum()) * 1000),
    }


def run(what: str, command: list[str], containers: int, count: int) -> dict[str, float]:
    """Feed a child, on one core, and take what it says of itself."""
    child = subprocess.Popen(
        ["taskset", "--cpu-list", CORE, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"GOMAXPROCS": "1", "NUMBA_NUM_THREADS": "1"},
    )
    assert child.stdin
    assert child.stdout
    for step in track(steps(containers, count), what, total=count, console=console, transient=True):
        child.stdin.write(step)
    child.stdin.close()
    said: dict[str, float] = json.loads(child.stdout.read())
    if child.wait():
        sys.exit(f"{what} ended with {child.returncode}")
    samples = 2 * containers * count
    return said | {
        "samples_a_second": samples / said["observe_seconds"],
        "recommendations_a_second": containers / said["recommend_seconds"],
        "bytes_a_container": said["bytes"] / containers,
    }


def compare(containers: int, count: int) -> dict[str, Any]:
    os.sched_setaffinity(
        0, os.sched_getaffinity(0) - {int(CORE)} or {int(CORE)}
    )  # the feeding process uses another core
    here = [sys.executable, __file__, "--child", "--containers", str(containers), "--steps", str(count)]
    there = [str(GoVpa().program), "bench", str(containers), str(count), str(STEP_SECONDS)]
    go, mine = run("Go", there, containers, count), run("ours", here, containers, count)
    if go["target_millicores"] != mine["target_millicores"]:
        sys.exit(f"targets differ: {go['target_millicores']} and {mine['target_millicores']} millicores")
    return {"go": go, "ours": mine, "ratios": {name: mine[name] / go[name] for name in AIMS}}


def table(result: dict[str, Any]) -> Table:
    shown = Table(title=f"vpa, {result['ours']['containers']:,} containers, CPU and memory, one core")
    for column in ("", "Go recommender", "Trimtab", "ratio", "aim"):
        shown.add_column(column, justify="right" if column else "left")
    for name, aim in AIMS.items():
        ratio = result["ratios"][name]
        shown.add_row(
            name.replace("_", " "),
            f"{result['go'][name]:,.0f}",
            f"{result['ours'][name]:,.0f}",
            f"{ratio:.2f}",
            f"≥ {aim:g}" if aim > 1 else f"≤ {aim:g}",
        )
    return shown


def arguments() -> Namespace:
    parser = ArgumentParser(description="Our vpa beside the Kubernetes recommender's own Go code.")
    parser.add_argument("--containers", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=144, help="half hours of samples")
    parser.add_argument("--output", choices=("table", "json"), default="table")
    parser.add_argument("--child", action="store_true", help="be the one that is measured")
    return parser.parse_args()


def main() -> None:
    asked = arguments()
    if asked.child:
        print(json.dumps(ours(asked.containers, asked.steps)))
        return
    result = compare(asked.containers, asked.steps)
    if asked.output == "json":
        print(json.dumps(result, indent=2))
    else:
        Console().print(table(result))


if __name__ == "__main__":
    main()

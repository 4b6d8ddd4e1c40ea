"""The footprint of the operator and of a scan: 500 workloads, 1,000 containers, eight days in a real Prometheus.

    make bench BENCH=footprint

`trimtab operator` starts with its defaults, one policy in mode Recommend for everything and a real API server, until every
workload has a recommendation; then it starts again with what it stored. `trimtab scan` reads the same days. Measured are
seconds until /readyz answers, wall time, CPU and peak memory of our process, and the CPU of Prometheus. As in the image, the
kernels are in a library and the modules are compiled.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from harness.builders.bulk_objects import Population
from harness.cluster.cluster import Cluster
from harness.cluster.namespaces import make_namespace
from harness.e2e.operator import OperatorProcess
from harness.peers.filled_prometheus import (
    MeteredPrometheus,
    console,
    cpu_seconds,
    filled_prometheus,
    populate,
)
from harness.process import free_port
from trimtab.kernel import FOLDER
from trimtab.kernel_library import PACKAGE

HOME = "trimtab-system"
POLICY = {
    "apiVersion": "trimtab.io/v1alpha1",
    "kind": "OptimizationPolicy",
    "metadata": {"name": "everything", "namespace": HOME},
    "spec": {},
}
AIMS = (
    "aims: ready within 10 s; operator 150 MiB and 5 s of CPU; scan 250 MiB; Prometheus 2 s of CPU at a start"
)


@dataclass(frozen=True)
class Footprint:
    """The cost of one start or scan."""

    name: str
    ready: float | None
    wall: float
    cpu: float
    peak_mib: float
    library_mib: float | None
    """The part of the peak that is file pages of libraries at the end."""
    prometheus_cpu: float


def start(
    operator: OperatorProcess,
    prometheus: MeteredPrometheus,
    *,
    address: str,
    workloads: int,
    name: str,
) -> Footprint:
    began, ready = time.monotonic(), None
    operator.start()
    while ready is None or operator.metric("trimtab_recommendations_total") < workloads:
        time.sleep(0.2)
        try:
            with urllib.request.urlopen(f"http://{address}/readyz", timeout=5):
                ready = ready or time.monotonic() - began
        except (urllib.error.URLError, OSError):
            if time.monotonic() - began > 300:
                raise
    wall = time.monotonic() - began
    status = Path(f"/proc/{operator.pid}/status").read_text()
    memory = {
        line.split(":")[0]: int(line.split()[1]) / 1024 for line in status.splitlines() if line.endswith("kB")
    }
    used = cpu_seconds(operator.pid)
    return Footprint(
        name, ready, wall, used, memory["VmHWM"], memory["RssFile"], prometheus.taken(name).server_cpu
    )


def scan(cluster: Cluster, prometheus: MeteredPrometheus, url: str, *, days: int) -> Footprint:
    command = [sys.executable, "-m", "trimtab", "scan", "--kubeconfig", str(cluster.kubeconfig)]
    began = time.monotonic()
    running = subprocess.Popen(
        [*command, "--prometheus", url, "--days", str(days), "-o", "json"], stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(running.pid, 0)
    assert status == 0, f"trimtab scan ended with {status}"
    return Footprint(
        "trimtab scan",
        None,
        time.monotonic() - began,
        used.ru_utime + used.ru_stime,
        used.ru_maxrss / 1024,
        None,
        prometheus.taken("scan").server_cpu,
    )


def compile_as_image(folder: Path) -> None:
    """Compile modules and kernels as the image's build does, for the processes that this one starts."""
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(PACKAGE)], check=True)
    shipped = str(folder / "kernels")
    os.environ |= {"NUMBA_CPU_NAME": "generic", "NUMBA_CACHE_DIR": str(folder / "cache")}
    subprocess.run([sys.executable, "-m", "trimtab.operator.kernels", shipped], check=True)
    shutil.rmtree(folder / "cache")
    os.environ[FOLDER] = shipped


def measure(options: Namespace) -> list[Footprint]:
    population = Population(options.workloads, pods_a_workload=1)
    with (
        tempfile.TemporaryDirectory(prefix="trimtab-bench-") as made,
        Cluster.start(Path(made) / "cluster") as cluster,
    ):
        folder = Path(made)
        compile_as_image(folder)
        cluster.stop_controllers()  # they would delete pods whose nodes are only names
        populate(cluster, population)
        cluster.learn()
        make_namespace(cluster, HOME)
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(POLICY))
        past = options.past or folder / "prometheus"
        with filled_prometheus(
            past, list(population.places()), days=options.days, scrape=options.scrape
        ) as server:
            address = f"127.0.0.1:{free_port()}"
            settings = {
                "address": address,
                "namespace": HOME,
                "metricsSource": {"settings": {"url": server.url}},
                "store": {"url": f"sqlite:///{folder}/trimtab.db"},
                "webhook": {"enabled": False},
            }
            operator = OperatorProcess(
                cluster, folder, settings, kubeconfig=cluster.kubeconfig, name="operator"
            )
            found = []
            for name in ("operator, first start", "operator, started again"):
                console.print(f"{name} …")
                metered = MeteredPrometheus(server)
                try:
                    found.append(
                        start(
                            operator,
                            metered,
                            address=address,
                            workloads=options.workloads,
                            name=name,
                        )
                    )
                finally:
                    operator.stop()
            found.append(scan(cluster, MeteredPrometheus(server), server.url, days=options.days))
            compiled = [path.name for path in (folder / "cache").rglob("*.nbc")]
            console.print(f"compiled although kernels were shipped: {compiled or 'nothing'}")
            return found


def main() -> None:
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workloads", type=int, default=500)
    parser.add_argument("--days", type=int, default=8)
    parser.add_argument("--scrape", type=int, default=60, help="seconds from one sample to the next")
    parser.add_argument("--past", type=Path, help="where to keep what Prometheus holds; good for three hours")
    options = parser.parse_args()
    table = Table(
        "", "ready s", "wall s", "CPU s", "peak MiB", "of them libraries", "Prometheus CPU s", box=None
    )
    for each in measure(options):
        ready, libraries = (
            f"{value:.1f}" if value is not None else "" for value in (each.ready, each.library_mib)
        )
        table.add_row(
            each.name,
            ready,
            f"{each.wall:.1f}",
            f"{each.cpu:.1f}",
            f"{each.peak_mib:.0f}",
            libraries,
            f"{each.prometheus_cpu:.1f}",
        )
    out = Console()
    out.print(
        f"{options.workloads} workloads, {options.days} days, a sample every {options.scrape} s; {AIMS}"
    )
    out.print(table)


if __name__ == "__main__":
    main()

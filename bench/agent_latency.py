"""The response time of a latency-sensitive pod, beside a best-effort burner or in bursts, with and without the agent.

    make bench BENCH=agent_latency                     three rounds of each, 15 s a round
    PYTHONPATH=tests .venv/bin/python bench/agent_latency.py --shared --picture docs/pictures/agent_latency.png

On the real node a service is asked something every 20 ms by each of two threads and needs 4 ms of CPU to answer; it asks
for half a core, as a pod of class Burstable does. Beside it a pod of class BestEffort spins on as many threads as there
are CPUs, and one more. Three conditions alternate, so that other load of the machine affects all of them: the
service alone, with the burner, and with the burner and `trimtab agent` under a policy that squeezes best-effort pods by
quota. Then another latency-sensitive pod wants all CPU for a while: what the burner has before, meanwhile and after is
read from the cgroups.

Another service is asked two things at once every 200 ms, each of 35 ms of CPU, and has a limit of 0.4 cores: on average it stays
below it, but in the 100 ms of a burst it is throttled. Under the agent it may save up what it does not use
(`cpuBurst: cpuBurstOnly`).

With --shared, on a machine that does other things too, these are kept out of the figures: all pods together weigh as much
as 256 other processes, and the agent takes what is outside its pods to stand still.
"""

import os
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from harness import build
from harness.builders import fake_proc as still
from harness.builders.busybox_workloads import size, template
from harness.cluster import node
from harness.cluster.cluster import Cluster
from harness.e2e.agent import AgentProcess
from harness.peers import probe
from harness.process import wait_for
from trimtab.node.arbiter import KnobRef
from trimtab.node.cgroups import UNLIMITED, CgroupLayout, Hierarchy, QosClass
from trimtab.node.cgroups.knobs import CPU_QUOTA, CPU_SHARES, CPU_USAGE
from trimtab.node.executor import KnobFiles

BESIDE = ("alone", "burner", "burner and agent")
BURSTS = ("in bursts", "in bursts, and agent")
STEADY, BURSTY = ["2", "20000", "4000"], ["4", "400000", "35000"]
"""Threads, and microseconds from one question to the next and of CPU to answer; threads in turn begin half of that apart."""
PERCENTILES = (50, 90, 99, 99.9, 100)
SETTLE = 8.0
"""Seconds until a condition is in full effect: a quota rises by a tenth of the node a second."""
UNSEEN = 3.0
"""Seconds between two looks that are a gap."""
ON_DEMAND = "while :; do if [ -e /go ]; then i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; else usleep 50000; fi; done"

console = Console(stderr=True)
Numbers = npt.NDArray[np.float64]


@dataclass
class Moment:
    """The CPU of the tiers at one moment, in cores."""

    at: float
    best_effort: float
    latency_sensitive: float
    allowed: float


@dataclass
class Readings:
    """All that was measured."""

    windows: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    burnt: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    answers: list[Numbers] = field(default_factory=list)
    step: list[Moment] = field(default_factory=list)
    wanted: tuple[float, float] = (0.0, 0.0)


class Bench:
    """The pods and cgroups of one run."""

    def __init__(self, cluster: Cluster, folder: Path, *, shared: bool) -> None:
        self._cluster = cluster
        flags = ["--proc", str(still.proc(folder / "proc"))] if shared else []
        self._agent = AgentProcess(cluster, folder, *flags, node=node.NAME)
        self._surface = KnobFiles(Hierarchy.detect(Path("/sys/fs/cgroup")))
        layout = CgroupLayout.detect(self._surface.hierarchy)
        if shared:
            self._surface.write(KnobRef(layout.pods_path, CPU_SHARES), 256 * 1024)
        self._best_effort = layout.qos_path(QosClass.BEST_EFFORT)
        self._burstable = layout.qos_path(QosClass.BURSTABLE)
        self.readings = Readings()

    def prepare(self) -> None:
        cluster = self._cluster
        cluster.learn()
        kind = "/apis/trimtab.io/v1alpha1/nodeqospolicies"
        suppress = {"enable": True, "policy": "cfsQuota", "thresholdPercent": 65}
        burst = {"policy": "cpuBurstOnly"}
        names = {"apiVersion": "trimtab.io/v1alpha1", "kind": "NodeQoSPolicy", "metadata": {"name": "bench"}}
        cluster.call("POST", kind, {**names, "spec": {"cpuSuppress": suppress, "cpuBurst": burst}})
        threads = (os.cpu_count() or 1) + 1
        self._run(
            "burner", template(" & ".join([f"({ON_DEMAND})"] * threads) + "; wait", app="burner", size={})
        )
        self._run("other", template(f"({ON_DEMAND}) & {ON_DEMAND}", app="other", size=size("500m", "16Mi")))

    @contextmanager
    def serving(self, asked: list[str], resources: dict[str, Any]) -> Iterator[None]:
        """A service that is there meanwhile; what it answered is then known."""
        service = template("", app="service", size=resources)
        service["spec"]["containers"][0] |= {"image": probe.TAG, "args": asked}
        service["spec"]["terminationGracePeriodSeconds"] = 0
        self._run("service", service)
        yield
        lines = self._cluster.kubectl("logs", "service").splitlines()
        self.readings.answers.append(
            np.array([line.split() for line in lines if line.count(" ") == 1], float).T
        )
        self._cluster.kubectl("delete", "pod", "service", "--wait")

    def turn(self, condition: str, seconds: float) -> None:
        """One window of one condition."""
        with self._going("burner", so="burner" in condition), self._watched(so=condition.endswith("agent")):
            time.sleep(SETTLE)
            began, burnt = time.time(), self._cpu(self._best_effort)
            time.sleep(seconds)
            ended = time.time()
            self.readings.windows[condition].append((began, ended))
            self.readings.burnt[condition].append((self._cpu(self._best_effort) - burnt) / (ended - began))

    def step(self, seconds: float) -> None:
        """Another pod wants all CPU for a while."""
        began = time.time()
        with self._going("burner"), self._watched():
            self._sample(began, SETTLE + seconds)
            with self._going("other"):
                start = time.time() - began
                self._sample(began, seconds)
            self.readings.wanted = (start, time.time() - began)
            self._sample(began, seconds)

    def latencies(self) -> dict[str, Numbers]:
        """Milliseconds an answer took, by condition."""
        asked, took = np.concatenate(self.readings.answers, axis=1)
        return {
            condition: np.concatenate(
                [took[(asked >= begin * 1e6) & (asked < end * 1e6)] / 1000 for begin, end in windows]
            )
            for condition, windows in self.readings.windows.items()
        }

    def _run(self, name: str, pod: dict[str, Any]) -> None:
        pod["metadata"]["name"] = name
        path = "/api/v1/namespaces/default/pods"
        self._cluster.call("POST", path, pod)
        wait_for(
            lambda: self._cluster.call("GET", f"{path}/{name}")["status"]["phase"] == "Running", what=name
        )

    @contextmanager
    def _going(self, pod: str, *, so: bool = True) -> Iterator[None]:
        if so:
            self._cluster.kubectl("exec", pod, "--", "touch", "/go")
        yield
        if so:
            self._cluster.kubectl("exec", pod, "--", "rm", "/go")

    @contextmanager
    def _watched(self, *, so: bool = True) -> Iterator[None]:
        if so:
            self._agent.start()
            self._agent.wait_until(lambda: self._allowed() < float("inf"), timeout=120)
        yield
        if so:
            self._agent.stop()
            assert self._allowed() == float("inf"), "the agent has left a trace"

    def _sample(self, began: float, seconds: float) -> None:
        paths = (self._best_effort, self._burstable)
        deadline = time.time() + seconds
        last, at = [self._cpu(path) for path in paths], time.time()
        while time.time() < deadline:
            time.sleep(0.5)
            now, used = time.time(), [self._cpu(path) for path in paths]
            rates = [(new - old) / (now - at) for new, old in zip(used, last, strict=True)]
            self.readings.step.append(Moment(now - began, rates[0], rates[1], self._allowed()))
            last, at = used, now

    def _cpu(self, path: str) -> float:
        """Seconds of CPU that a cgroup has used."""
        return self._surface.hierarchy.cgroup(path).read(CPU_USAGE) / 1e9

    def _allowed(self) -> float:
        quota = self._surface.read(KnobRef(self._best_effort, CPU_QUOTA))
        assert isinstance(quota, int)
        return float("inf") if quota == UNLIMITED else quota / 100_000


def show(latencies: dict[str, Numbers], readings: Readings) -> None:
    """The table that docs/research/node.md has."""
    table = Table(title="milliseconds until the service has answered; 4 of them it computes, in bursts 35")
    for heading in ("", "answers", *(f"p{each:g}" for each in PERCENTILES), "burner's cores"):
        table.add_column(heading, justify="right")
    for condition, took in latencies.items():
        tail = (f"{value:.1f}" for value in np.percentile(took, PERCENTILES))
        table.add_row(condition, str(len(took)), *tail, f"{np.mean(readings.burnt[condition]):.2f}")
    Console(width=100).print(table)


def draw(latencies: dict[str, Numbers], readings: Readings, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 4), layout="constrained")
    beside, bursts, step = figure.subplots(1, 3)
    for axes, conditions, title in (
        (beside, BESIDE, "A service beside a best-effort burner"),
        (bursts, BURSTS, "A service that is asked in bursts"),
    ):
        for condition in conditions:
            took = latencies[condition]
            share = np.linspace(0, 100 * (1 - 1 / len(took)), 400)
            axes.plot(1 / (1 - share / 100), np.percentile(took, share), label=condition)
        axes.set(xscale="log", yscale="log", xlabel="percentile", ylabel="milliseconds until answered")
        axes.set_xticks([1 / (1 - each / 100) for each in (50, 90, 99, 99.9)], ["50", "90", "99", "99.9"])
        axes.set_title(title)
        axes.legend()
    seen = np.array(
        [
            [moment.at, moment.latency_sensitive, moment.best_effort, moment.allowed]
            for moment in readings.step
        ]
    )
    # Without a sample nothing is drawn: a busy machine delays the step.
    at, *lines = np.insert(seen, np.flatnonzero(np.diff(seen[:, 0]) > UNSEEN) + 1, np.nan, axis=0).T
    step.axvspan(*readings.wanted, alpha=0.15, label="another pod wants CPU")
    step.plot(at, lines[0], label="latency-sensitive pods use")
    step.plot(at, lines[1], label="best-effort pods use")
    step.plot(at, lines[2], "--", label="best-effort pods may use")
    step.set(xlabel="seconds", ylabel="cores", ylim=(0, None))
    step.set_title("Squeezed, and released")
    step.legend()
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15.0, help="of a round")
    parser.add_argument("--shared", action="store_true", help="the machine does other things too")
    parser.add_argument("--picture", type=Path)
    arguments: Namespace = parser.parse_args()
    node.prepare()
    build.KUBE.built()
    with tempfile.TemporaryDirectory(prefix="trimtab-bench-") as scratch:
        folder = Path(scratch)
        with Cluster.start(folder / "cluster", node=True) as cluster:
            assert cluster.node is not None
            cluster.node.load(probe.image(folder))
            bench = Bench(cluster, folder, shared=arguments.shared)
            bench.prepare()
            for asked, resources, conditions in (
                (STEADY, size("500m", "16Mi"), BESIDE),
                (BURSTY, size("200m", "16Mi", cpu_limit="400m"), BURSTS),
            ):
                with bench.serving(asked, resources):
                    for number in range(arguments.rounds):
                        for condition in conditions:
                            console.print(f"round {number + 1} of {arguments.rounds}: {condition}")
                            bench.turn(condition, arguments.seconds)
            latencies = bench.latencies()
            show(latencies, bench.readings)
            if arguments.picture:
                console.print("a step: another pod wants all CPU")
                bench.step(arguments.seconds)
                draw(latencies, bench.readings, arguments.picture)


if __name__ == "__main__":
    main()

"""Leader election on the real API server: the tests on the fake once more where the server decides, and processes that are killed and frozen."""

import asyncio
import itertools
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.cluster.cluster import Cluster
from harness.faults import faults
from harness.faults.faultproxy import FaultProxy
from harness.process import Process, wait_for
from kube.runtime.test_leader_election import (  # noqa: F401 - tests and fixtures
    LASTING,
    SHORT,
    candidate,
    proxied,
    test_elector_hands_over_to_one_of_three_at_once_when_it_leaves,
    test_elector_leads_alone_and_writes_the_lease,
    test_elector_logs_the_reason_of_a_failure_once,
    test_elector_recreates_its_deleted_lease_without_losing_it,
)
from trimtab.kube.runtime.lease_rules import LeaseTiming


@dataclass(frozen=True)
class Line:
    at: float
    who: str
    pid: int
    term: int
    what: str


class Replicas:
    """Processes that compete for one lease, and the journal of what they did while they led."""

    def __init__(
        self, kubeconfig: Path, namespace: str, folder: Path, *, timing: LeaseTiming = SHORT
    ) -> None:
        self._journal = folder / "journal"
        self._journal.touch()
        times = (str(seconds) for seconds in (timing.duration, timing.renew_deadline, timing.retry_period))
        script = Path(__file__).with_name("lease_replica.py")
        self._command: list[str | Path] = [
            sys.executable,
            script,
            kubeconfig,
            namespace,
            "boss",
            self._journal,
        ]
        self._times = list(times)
        self._folder = folder
        self.processes: dict[str, Process] = {}

    def start(self, name: str) -> None:
        command = [*self._command, name, *self._times]
        process = self.processes[name] = Process(name, command, log=self._folder / f"{name}.log")
        process.start()

    def stop(self) -> None:
        for process in self.processes.values():
            process.kill()

    def journal(self) -> list[Line]:
        lines = [line.split() for line in self._journal.read_text().splitlines()]
        return [Line(float(at), who, int(pid), int(term), what) for at, who, pid, term, what in lines]

    def writes(self) -> list[Line]:
        return [line for line in self.journal() if line.what != "stands"]

    def kill(self, leader: Line) -> Line:
        """Kill a leader; the answer is the last that it did."""
        self.processes[leader.who].kill()
        return [line for line in self.writes() if line.pid == leader.pid][-1]

    def next_leader(self, *, after: float = 0.0, other_than: str = "") -> Line:
        """Wait for the first sign of a new term."""
        return self._wait_for("begin", lambda line: line.at > after and line.who != other_than)

    def wait_until_stands(self, who: str) -> None:
        """Wait until the process that has this name now has seen the lease."""
        self._wait_for("stands", lambda line: line.pid == self.processes[who]._popen.pid)  # type: ignore[union-attr]

    def _wait_for(self, what: str, fits: Callable[[Line], bool]) -> Line:
        found: list[Line] = []

        def is_there() -> bool:
            found[:] = [line for line in self.journal() if line.what == what and fits(line)]
            return bool(found)

        wait_for(is_there, what=f"the line {what!r} in the journal")
        return found[0]

    def check_one_at_a_time(self) -> int:
        """Terms never overlap, also when counted to the last sign of life; the number of terms."""
        terms: dict[tuple[str, int, int], list[float]] = {}
        for line in self.writes():
            terms.setdefault((line.who, line.pid, line.term), []).append(line.at)
        spans = sorted((min(times), max(times), who) for who, times in terms.items())
        for (_, end, former), (begin, _, latter) in itertools.pairwise(spans):
            assert end < begin, f"{former} still led when {latter} began"
        return len(spans)


@pytest.fixture
def replicas(cluster: Cluster, namespace: str, tmp_path: Path) -> Iterator[Replicas]:
    with ExitStack() as stack:
        running = Replicas(cluster.kubeconfig, namespace, tmp_path)
        stack.callback(running.stop)
        yield running


def test_elector_never_has_two_leading_processes_when_leaders_are_killed(replicas: Replicas) -> None:
    for name in ("a", "b"):
        replicas.start(name)
    leader = replicas.next_leader()
    leaderless = []
    for _ in range(3):
        other = "b" if leader.who == "a" else "a"
        replicas.wait_until_stands(other)
        died = replicas.kill(leader)
        successor = replicas.next_leader(after=died.at, other_than=died.who)
        leaderless.append(successor.at - died.at)
        replicas.start(died.who)
        leader = successor
    assert replicas.check_one_at_a_time() >= 4
    # It sees the last renewal up to a look late, and that no more come up to another look late. Of several
    # times the shortest counts: what a busy machine adds is not ours.
    assert min(leaderless) < SHORT.duration + 2 * 1.2 * SHORT.retry_period + 1.0


def test_elector_frozen_beyond_its_lease_does_nothing_when_it_wakes(replicas: Replicas) -> None:
    for name in ("a", "b"):
        replicas.start(name)
    leader = replicas.next_leader()
    for _ in range(3):
        os.kill(leader.pid, signal.SIGSTOP)
        successor = replicas.next_leader(after=leader.at, other_than=leader.who)
        os.kill(leader.pid, signal.SIGCONT)
        leader = successor  # the next to freeze, so that the one that woke leads again, in a new term
    replicas.processes[leader.who].kill()
    replicas.next_leader(after=leader.at, other_than=leader.who)
    assert replicas.check_one_at_a_time() >= 5


def test_elector_process_hands_over_at_once_on_termination(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    replicas = Replicas(cluster.kubeconfig, namespace, tmp_path, timing=LASTING)
    try:
        for name in ("a", "b"):
            replicas.start(name)
        leader = replicas.next_leader()
        replicas.processes[leader.who].stop()
        replicas.next_leader(after=leader.at, other_than=leader.who)
        assert [line for line in replicas.writes() if line.who == leader.who][-1].what == "end"
        replicas.check_one_at_a_time()
    finally:
        replicas.stop()


async def test_elector_never_has_two_leading_processes_under_random_faults(
    fault_proxy: FaultProxy, namespace: str, tmp_path: Path
) -> None:
    rates = {
        faults.status(500): 0.1,
        faults.status(429): 0.05,
        faults.drop(): 0.1,
        faults.lose_answer(): 0.1,
        faults.silence(): 0.03,
        faults.delay(0.5): 0.1,
    }
    fault_proxy.plan = faults.FaultPlan(rates, seed=7)
    replicas = Replicas(fault_proxy.kubeconfig, namespace, tmp_path)
    try:
        for name in ("a", "b", "c"):
            replicas.start(name)
        after = 0.0
        for _ in range(3):
            leader = await asyncio.to_thread(replicas.next_leader, after=after)
            after = replicas.kill(leader).at
            replicas.start(leader.who)
        assert fault_proxy.injected
        replicas.check_one_at_a_time()
    finally:
        replicas.stop()

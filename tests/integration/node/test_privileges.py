"""The agent needs each mount and the capability of its DaemonSet: it fails without any one of them."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from harness.cluster.cluster import Cluster
from harness.cluster.daemonset_sandbox import HousedAgent, bare, manifest, run_in_sandbox
from harness.cluster.kubepods import Kubepods
from harness.process import wait_for
from node.test_privileges import MISSED
from trimtab.node.cgroups import UNLIMITED, QosClass
from trimtab.node.cgroups.knobs import CPU_QUOTA

POLICIES = "/apis/trimtab.io/v1alpha1/nodeqospolicies"
REPORT = "/apis/trimtab.io/v1alpha1/nodemetrics/housed"
SQUEEZE = {"enable": True, "thresholdPercent": 10, "minPercent": 10, "policy": "cfsQuota"}
COUNTS = """
import os
from trimtab.node.collectors.perf import CYCLES, CounterGroup
try:
    CounterGroup(os.open("/", os.O_RDONLY), 0, (CYCLES,))
except Exception as error:
    print(error)
"""


@pytest.fixture
def housed(cluster: Cluster, kubepods: Kubepods, tmp_path: Path) -> Iterator[Callable[..., HousedAgent]]:
    """Starts an agent that does not outlive the test."""
    with ExitStack() as stack:

        def start(**how: Any) -> HousedAgent:
            agent = HousedAgent(
                cluster, tmp_path, "--cgroup-parent", kubepods.layout.parent, node="housed", **how
            )
            stack.callback(agent.kill)
            agent.start()
            return agent

        yield start
    if cluster.has(REPORT):
        cluster.call("DELETE", REPORT)


@pytest.fixture
def policy(cluster: Cluster) -> Iterator[Callable[..., None]]:
    """Makes a policy that goes with the test."""
    cluster.learn()

    def make(**spec: Any) -> None:
        kind = {"apiVersion": "trimtab.io/v1alpha1", "kind": "NodeQoSPolicy"}
        cluster.call("POST", POLICIES, {**kind, "metadata": {"name": "housed"}, "spec": spec})

    yield make
    cluster.call("DELETE", f"{POLICIES}/housed")


@pytest.mark.parametrize("mount", MISSED)
def test_agent_names_the_missing_mount_and_exits(
    housed: Callable[..., HousedAgent], tmp_path: Path, mount: str
) -> None:
    agent = housed(without=mount)
    wait_for(lambda: not agent.alive, what="its end", timeout=180)
    [said] = agent.log.read_text().splitlines()
    assert MISSED[mount].format(root=tmp_path / "root") in said


def test_agent_measures_limits_and_restores_with_only_its_mounts(
    housed: Callable[..., HousedAgent], policy: Callable[..., None], kubepods: Kubepods
) -> None:
    agent = housed()
    measured = [
        f'trimtab_agent_collector_up{{collector="{name}"}}' for name in ("node", "cpu", "memory", "run_delay")
    ]
    agent.wait_until(lambda: all(agent.metric_value(name) == 1 for name in measured), timeout=120)
    tier = kubepods.hierarchy.cgroup(kubepods.layout.qos_path(QosClass.BEST_EFFORT))
    policy(cpuSuppress=SQUEEZE)
    agent.wait_until(lambda: tier.read(CPU_QUOTA) != UNLIMITED, timeout=120)
    assert (agent.state / "journal").exists()
    agent.stop(timeout=60)
    assert tier.read(CPU_QUOTA) == UNLIMITED


def test_agent_counts_failed_writes_on_read_only_mounts(
    housed: Callable[..., HousedAgent], policy: Callable[..., None], kubepods: Kubepods
) -> None:
    policy(cpuSuppress=SQUEEZE, system={"enable": True})
    agent = housed(looks_only=True)
    refused = [
        f'trimtab_node_writes_rejected_total{{knob="{name}"}}' for name in ("cpu.quota", "vm.min_free_kbytes")
    ]
    agent.wait_until(lambda: all(agent.metric_value(name) for name in refused), timeout=120)
    assert "Read-only file system" in agent.log.read_text()
    tier = kubepods.hierarchy.cgroup(kubepods.layout.qos_path(QosClass.BEST_EFFORT))
    assert tier.read(CPU_QUOTA) == UNLIMITED


def test_agent_without_the_mount_of_watermarks_counts_failed_writes(
    housed: Callable[..., HousedAgent], policy: Callable[..., None], kubepods: Kubepods
) -> None:
    policy(system={"enable": True})
    agent = housed(without="vm")
    refused = 'trimtab_node_writes_rejected_total{knob="vm.min_free_kbytes"}'
    agent.wait_until(lambda: bool(agent.metric_value(refused)), timeout=120)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has capabilities to take away")
def test_cpi_collector_needs_its_capability() -> None:
    """With it the kernel goes on to what is asked for: here no cgroup, and often no counters."""
    if int(Path("/proc/sys/kernel/perf_event_paranoid").read_text()) < 1:
        pytest.skip("this kernel lets everybody count")

    def said(*capabilities: str) -> str:
        command = [*bare(*capabilities), sys.executable, "-c", COUNTS]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    added = manifest()["containers"][0]["securityContext"]["capabilities"]["add"]
    assert "Permission denied" in said()
    assert "Permission denied" not in said(*added)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_agent_mounts_give_no_root_on_the_node(tmp_path: Path) -> None:
    """The kernel starts the program that core_pattern names as root of the node, for any process that crashes."""
    dangerous = ("kernel/core_pattern", "kernel/modprobe", "kernel/sysrq", "fs/binfmt_misc/register")
    for name in dangerous:
        # Opened for appending only: nothing is written even where it is allowed.
        tried = run_in_sandbox(tmp_path / name.replace("/", "-"), f'exec 3>>"$ROOT/host/proc/sys/{name}"')
        assert tried.returncode != 0, name
    allowed = run_in_sandbox(tmp_path / "vm", 'exec 3>>"$ROOT/host/proc/sys/vm/min_free_kbytes"')
    assert allowed.returncode == 0, allowed.stderr

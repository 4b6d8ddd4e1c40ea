"""The whole agent on the real node, with real pods: best-effort pods give way, and get back what they gave."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.builders import fake_proc as still
from harness.builders.busybox_workloads import burns, size, template
from harness.cluster.cluster import Cluster
from harness.cluster.node import NAME
from harness.e2e.agent import AgentProcess
from harness.process import wait_for
from trimtab.node.arbiter import KnobRef
from trimtab.node.cgroups import UNLIMITED, CgroupLayout, Hierarchy, QosClass
from trimtab.node.cgroups.knobs import CPU_BURST, CPU_QUOTA
from trimtab.node.executor import KnobFiles

WAITING = "while :; do if [ -e /go ]; then i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; else usleep 50000; fi; done"
"""Idle until the test makes it use as much CPU as it can get."""


@contextmanager
def _policy(cluster: Cluster, **spec: dict[str, Any]) -> Iterator[str]:
    """A policy for all nodes; its path."""
    cluster.learn()
    kind = "/apis/trimtab.io/v1alpha1/nodeqospolicies"
    named = {"apiVersion": "trimtab.io/v1alpha1", "kind": "NodeQoSPolicy", "metadata": {"name": "squeeze"}}
    cluster.call("POST", kind, named | {"spec": spec})
    yield f"{kind}/squeeze"
    if cluster.has(f"{kind}/squeeze"):
        cluster.call("DELETE", f"{kind}/squeeze")


@pytest.fixture
def policy(node_cluster: Cluster) -> Iterator[str]:
    """A policy that squeezes best-effort pods by quota, and lets others burst; its path."""
    suppress = {"enable": True, "policy": "cfsQuota", "thresholdPercent": 90}
    with _policy(node_cluster, cpuSuppress=suppress, cpuBurst={"policy": "cpuBurstOnly"}) as path:
        yield path


@pytest.fixture
def evicting_policy(node_cluster: Cluster) -> Iterator[str]:
    """A policy that leaves best-effort pods little, and evicts them where that is less than they ask for."""
    suppress = {"enable": True, "policy": "cfsQuota", "thresholdPercent": 20}
    # On a machine that does much else a best-effort pod does not even get the little that it may have.
    evict = {"enable": True, "usageThresholdPercent": 5}
    with _policy(node_cluster, cpuSuppress=suppress, cpuEvict=evict) as path:
        yield path


@pytest.fixture
def agent(node_cluster: Cluster, tmp_path: Path) -> Iterator[AgentProcess]:
    """One to whom the machine outside its pods stands still: other tests run on it, and would leave pods nothing."""
    made = AgentProcess(node_cluster, tmp_path, "--proc", str(still.proc(tmp_path / "proc")), node=NAME)
    yield made
    made.stop()


@pytest.fixture
def run(node_cluster: Cluster, namespace: str) -> Callable[..., None]:
    """Run a script in a pod."""

    def start(name: str, script: str, resources: dict[str, Any], **annotations: str) -> None:
        path = f"/api/v1/namespaces/{namespace}/pods"
        pod = template(script, app=name, size=resources)
        pod["metadata"] |= {"name": name, "annotations": annotations}
        node_cluster.call("POST", path, pod)
        running = "Running"
        wait_for(
            lambda: node_cluster.call("GET", f"{path}/{name}")["status"]["phase"] == running,
            what=f"pod {name}",
        )

    return start


def test_cpusuppress_limits_a_cpu_burner_and_restores_it(
    node_cluster: Cluster, namespace: str, policy: str, agent: AgentProcess, run: Callable[..., None]
) -> None:
    run("burner", burns(0.2), {})  # the agent goes by what others want
    run("service", f"({WAITING}) & {WAITING}", size("500m", "16Mi"))
    surface = KnobFiles(Hierarchy.detect(Path("/sys/fs/cgroup")))
    tier = CgroupLayout.detect(surface.hierarchy).qos_path(QosClass.BEST_EFFORT)

    def quota() -> int:
        found = surface.read(KnobRef(tier, CPU_QUOTA))
        assert isinstance(found, int)
        return found

    def run_in_container(*command: str) -> None:
        node_cluster.kubectl("exec", "service", f"--namespace={namespace}", "--", *command)

    whole = 100_000 * (os.cpu_count() or 1)
    idle, busy = 0.85 * whole, 0.9 * whole - 20_000  # of 90 %, next to nothing or a fifth of a core is in use
    assert quota() == UNLIMITED
    agent.start()
    agent.wait_until(lambda: quota() > idle, timeout=180)

    run_in_container("touch", "/go")
    wait_for(lambda: 0 < quota() < busy, what="the burner to be squeezed", timeout=180)
    run_in_container("rm", "/go")
    wait_for(lambda: quota() > idle, what="the burner to be unthrottled", timeout=180)

    agent.kill()
    assert quota() > 0  # it could not be restored
    agent.start()
    node_cluster.call("DELETE", policy)
    agent.wait_until(lambda: quota() == UNLIMITED, timeout=180)


def _sample(value: Callable[[], float], *, times: int, every: float) -> Iterator[float]:
    for _ in range(times):
        yield value()
        time.sleep(every)


@pytest.mark.usefixtures("evicting_policy")
def test_cpuevict_ignores_short_load_and_evicts_after_long_starvation(
    node_cluster: Cluster, namespace: str, agent: AgentProcess, run: Callable[..., None]
) -> None:
    cpus = os.cpu_count() or 1
    run("batch", burns(0.2), {}, **{"trimtab.io/cpu-request": str(0.19 * cpus)})
    burst = "(timeout 3 sh -c 'while :; do :; done' & timeout 3 sh -c 'while :; do :; done'; wait)"
    once = f"while :; do if [ -e /once ]; then rm /once; {burst}; fi; usleep 50000; done"
    run("service", f"({once}) & ({WAITING}) & {WAITING}", size("500m", "16Mi"))
    surface = KnobFiles(Hierarchy.detect(Path("/sys/fs/cgroup")))
    tier = CgroupLayout.detect(surface.hierarchy).qos_path(QosClass.BEST_EFFORT)
    pod = f"/api/v1/namespaces/{namespace}/pods/batch"

    def cores() -> float:
        quota = surface.read(KnobRef(tier, CPU_QUOTA))
        assert isinstance(quota, int)
        return quota / 100_000

    def is_leaving() -> bool:
        return not node_cluster.has(pod) or "deletionTimestamp" in node_cluster.call("GET", pod)["metadata"]

    def run_in_container(*command: str) -> None:
        node_cluster.kubectl("exec", "service", f"--namespace={namespace}", "--", *command)

    plenty, starved = 0.18 * cpus, 0.6 * 0.19 * cpus
    agent.start()
    agent.wait_until(lambda: cores() > plenty, timeout=180)
    time.sleep(30)  # for as long as it looks back nothing happens
    for _ in range(5):  # a machine that does much else may not let the service be busy enough
        run_in_container("touch", "/once")
        least = min(_sample(cores, times=200, every=0.1))
        assert not is_leaving()
        if least <= starved:
            break
    assert least <= starved
    wait_for(lambda: cores() > plenty, what="the batch pod to be unthrottled", timeout=60)
    assert not is_leaving()

    run_in_container("touch", "/go")
    wait_for(is_leaving, what="the starved batch pod to be evicted", timeout=180)


@pytest.mark.usefixtures("policy")
def test_cpuburst_allows_a_resize_and_leaves_the_kubelets_values(
    node_cluster: Cluster, namespace: str, agent: AgentProcess, run: Callable[..., None]
) -> None:
    """Though the agent was killed with the burst in place, below which no kernel takes the kubelet's quota."""
    run("bursting", "exec sleep 3600", size("10m", "16Mi", cpu_limit="500m"))
    pod = node_cluster.call("GET", f"/api/v1/namespaces/{namespace}/pods/bursting")
    surface = KnobFiles(Hierarchy.detect(Path("/sys/fs/cgroup")))
    layout = CgroupLayout.detect(surface.hierarchy)
    folder = layout.pod_path(pod["metadata"]["uid"], QosClass.BURSTABLE)
    paths = folder, layout.container_path(folder, pod["status"]["containerStatuses"][0]["containerID"])

    def held() -> list[tuple[object, object]]:
        return [
            (surface.read(KnobRef(path, CPU_QUOTA)), surface.read(KnobRef(path, CPU_BURST))) for path in paths
        ]

    agent.start()
    agent.wait_until(lambda: held() == [(50_000, 50_000)] * 2, timeout=180)
    agent.kill()
    less = '{"spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": "300m"}}}]}}'
    where = (f"--namespace={namespace}", "--subresource=resize", "--type=strategic", f"--patch={less}")
    node_cluster.kubectl("patch", "pod", "bursting", *where)
    agent.start()
    agent.wait_until(lambda: held() == [(30_000, 30_000)] * 2, timeout=240)
    agent.stop()
    assert held() == [(30_000, 0)] * 2

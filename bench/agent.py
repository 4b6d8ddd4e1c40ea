"""The cost of the node agent itself: CPU, memory and time a round, on real cgroups of this machine, at one second.

    python bench/agent.py             110 pods of 2 containers, with the real API server beside it: the whole agent
    python bench/agent.py --alone     without an API server: looks and measures, and neither reports nor acts
    python bench/agent.py --pods 30 --beside-kubelet
                                      on the real node, beside what cAdvisor takes in the kubelet for the same pods

Half of the pods are latency-sensitive, and a policy lets the strategies work. The limits are 2 % of a core and 80 MiB
resident.

Beside the kubelet, that profiles itself (pprof): cAdvisor's are the samples with one of its functions on the stack, and of
the collection of garbage the share that it has in the bytes allocated. Its pods all work a little, for where nothing
happens it looks away; at the harness's interval it looks each second, as the agent does.
"""

import os
import re
import resource
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import yaml
from cyclopts import App

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from harness.builders.busybox_workloads import size, template  # noqa: E402
from harness.cluster.cluster import Cluster  # noqa: E402
from harness.cluster.kubepods import Kubepods  # noqa: E402
from harness.cluster.node import NAME as REAL  # noqa: E402
from harness.e2e.agent import AgentProcess, pod_on  # noqa: E402 - after the path that it is on
from trimtab.node.cgroups import QosClass  # noqa: E402
from trimtab.node.model import TIER_LABEL  # noqa: E402

LONE = """
import sys, uvloop
from pathlib import Path
from trimtab.node.agent import Agent
from trimtab.node.config import AgentSettings
from trimtab.memory_trim import keep_small
keep_small()
parent, state, address = sys.argv[1:]
settings = AgentSettings(node="bench", cgroup_parent=parent, state=Path(state), address=address)
uvloop.run(Agent(settings, None).run())
"""
NODE = "bench"
WORKS = "while :; do i=0; while [ $i -lt 300 ]; do i=$((i+1)); done; sleep 1; done"
CADVISOR = "google/cadvisor"
GARBAGE = "runtime.gcBgMarkWorker|runtime.gcAssistAlloc|runtime.bgsweep|runtime.bgscavenge"
SLEEPS = ("/bin/busybox", "sleep", "100000")
POLICY: dict[str, object] = {
    "apiVersion": "trimtab.io/v1alpha1",
    "kind": "NodeQoSPolicy",
    "metadata": {"name": "bench"},
    "spec": {
        "cpuSuppress": {"enable": True, "policy": "cfsQuota"},
        "cpuBurst": {"policy": "auto"},
        "memoryQoS": {"enable": True},
        "memoryEvict": {"enable": True, "thresholdPercent": 99},
    },
}
UNITS = {"": 1, "ms": 1e-3, "s": 1, "mins": 60, "B": 1, "kB": 2**10, "MB": 2**20, "GB": 2**30}
app = App(help=__doc__)


@dataclass(frozen=True)
class Taken:
    """The resources that a process has used so far."""

    cpu: float
    resident: int
    peak: int

    @classmethod
    def of(cls, pid: int) -> "Taken":
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
        )
        ticks = int(words[11]) + int(words[12])
        return cls(
            ticks / os.sysconf("SC_CLK_TCK"),
            int(status["VmRSS"].split()[0]) << 10,
            int(status["VmHWM"].split()[0]) << 10,
        )


@app.default
def main(
    *,
    pods: int = 110,
    containers: int = 2,
    seconds: int = 60,
    alone: bool = False,
    beside_kubelet: bool = False,
) -> None:
    """Measure once it has settled."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if beside_kubelet:
            _beside_kubelet(stack, folder, pods=pods, containers=containers, seconds=seconds)
            return
        kubepods = stack.enter_context(Kubepods.make())
        make = _lone if alone else _whole
        agent = make(stack, folder, kubepods, pods=pods, containers=containers)
        agent.start()
        stack.callback(agent.stop)
        agent.wait_until(lambda: (agent.metric_value("trimtab_agent_rounds_total") or 0) >= 5, timeout=120)
        before, began = Taken.of(agent.pid), time.monotonic()
        rounds = agent.metric_value("trimtab_agent_rounds_total") or 0
        spent = agent.metric_value("trimtab_agent_round_cpu_seconds_total") or 0
        time.sleep(seconds)
        after, passed = Taken.of(agent.pid), time.monotonic() - began
        done = (agent.metric_value("trimtab_agent_rounds_total") or 0) - rounds
        in_rounds = (agent.metric_value("trimtab_agent_round_cpu_seconds_total") or 0) - spent
        late = agent.metric_value("trimtab_agent_rounds_late_total") or 0
        series = agent.metric_value("trimtab_agent_series") or 0
    share, resident = (after.cpu - before.cpu) / passed, after.resident / 2**20
    print(
        f"{pods} pods x {containers} containers of real cgroups v{kubepods.hierarchy.version.value}, {done:.0f} rounds"
    )
    print(f"CPU            {share:6.2%} of a core   {share / 0.02:5.2f} of the limit of 2 %")
    print(f"resident       {resident:5.1f} MiB          {resident / 80:5.2f} of the limit of 80 MiB")
    print(f"peak           {after.peak / 2**20:5.1f} MiB")
    print(
        f"a round        {in_rounds / done * 1000:5.1f} ms of CPU, {late:.0f} came late, {series:.0f} series"
    )


def _whole(stack: ExitStack, folder: Path, kubepods: Kubepods, *, pods: int, containers: int) -> AgentProcess:
    cluster = stack.enter_context(Cluster.start(folder / "cluster"))
    _set(cluster, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}, POLICY)
    for number in range(pods):
        made = pod_on(
            cluster,
            kubepods,
            namespace="default",
            node=NODE,
            name=f"pod-{number}",
            containers=containers,
            labels={TIER_LABEL: ("LS", "BE")[number % 2]},
        )
        for cgroup in made:
            kubepods.run(cgroup, SLEEPS)
    return AgentProcess(cluster, folder, "--cgroup-parent", kubepods.layout.parent, node=NODE)


def _set(cluster: Cluster, *scene: dict[str, object]) -> None:
    """Our kinds, and what is there of them and others."""
    cluster.learn()
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(scene))


def _beside_kubelet(stack: ExitStack, folder: Path, *, pods: int, containers: int, seconds: int) -> None:
    """Measure both for the same pods in the same seconds."""
    cluster = stack.enter_context(Cluster.start(folder / "cluster", node=True))
    _set(cluster, POLICY)
    for number in range(pods):
        pod = template(WORKS, app="filler", size=size("10m", "8Mi"))
        pod["metadata"] |= {"name": f"filler-{number}"}
        pod["metadata"]["labels"] |= {TIER_LABEL: ("LS", "BE")[number % 2]}
        [first] = pod["spec"]["containers"]
        pod["spec"]["containers"] = [{**first, "name": f"c{each}"} for each in range(containers)]
        cluster.call("POST", "/api/v1/namespaces/default/pods", pod)
    cluster.kubectl("wait", "--for=condition=Ready", "pod", "--selector=app=filler", "--timeout=300s")
    agent = AgentProcess(cluster, folder, node=REAL)
    agent.start()
    stack.callback(agent.stop)
    agent.wait_until(lambda: (agent.metric_value("trimtab_agent_rounds_total") or 0) >= 5, timeout=120)
    before, began = Taken.of(agent.pid), time.monotonic()
    with ThreadPoolExecutor() as pool:
        cpu, allocated = pool.map(
            lambda kind: _profile(cluster, folder, kind, seconds), ("profile", "allocs")
        )
    after, passed = Taken.of(agent.pid), time.monotonic() - began
    looking, whole = _share(cpu, CADVISOR)
    garbage, _ = _share(cpu, GARBAGE)
    made, all_made = _share(allocated, CADVISOR, "-sample_index=alloc_space")
    kubelet = whole / seconds
    print(f"{pods} pods x {containers} containers through the real kubelet, {passed:.0f} s")
    print(f"the agent      {(after.cpu - before.cpu) / passed:6.2%} of a core")
    print(
        f"cAdvisor       {looking / seconds:6.2%}, and {garbage * made / all_made / seconds:.2%} for its garbage"
    )
    print(f"the kubelet    {kubelet:6.2%} in all, of that {garbage / seconds:.2%} for garbage")


def _profile(cluster: Cluster, folder: Path, kind: str, seconds: int) -> Path:
    """Profile the kubelet in the seconds from now."""
    context = ssl.create_default_context(cafile=str(cluster.ca))
    context.load_cert_chain(cluster.client_cert, cluster.client_key)
    assert cluster.node is not None
    address = f"https://127.0.0.1:{cluster.node.kubelet_port}/debug/pprof/{kind}?seconds={seconds}"
    with urllib.request.urlopen(address, context=context, timeout=seconds + 60) as answer:
        file = folder / kind
        file.write_bytes(answer.read())
    return file


def _share(profile: Path, functions: str, *flags: str) -> tuple[float, float]:
    """Return the part of a profile with one of these functions on its stack, and the whole: seconds or bytes."""
    command = ["go", "tool", "pprof", "-top", "-unit=auto", *flags, f"-focus={functions}", str(profile)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"accounting for ([\d.]+)(\w*), .* of ([\d.]+)(\w*) total", said)
    assert found, said
    part, whole = (float(found[n]) * UNITS[found[n + 1]] for n in (1, 3))
    return part, whole


def _lone(stack: ExitStack, folder: Path, kubepods: Kubepods, *, pods: int, containers: int) -> AgentProcess:  # noqa: ARG001 - as the other
    for _ in range(pods):
        _, made = kubepods.pod(QosClass.BURSTABLE, containers=containers)
        for cgroup in made:
            kubepods.run(cgroup, SLEEPS)
    return _Lone(folder, kubepods.layout.parent)


class _Lone(AgentProcess):
    """An agent that knows of no cluster."""

    def __init__(self, folder: Path, parent: str) -> None:
        from harness.process import Process, free_port

        self.port = free_port()
        self.state = folder / "state"
        Process.__init__(
            self,
            "agent",
            [sys.executable, "-c", LONE, parent, self.state, f"127.0.0.1:{self.port}"],
            log=folder / "agent.log",
        )


if __name__ == "__main__":
    try:
        app()
    except subprocess.CalledProcessError as error:
        sys.exit(str(error))

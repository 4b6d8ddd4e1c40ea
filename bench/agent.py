"""What the node agent itself takes: CPU, memory and time a round, on real cgroups of this machine, at one second.

    python bench/agent.py             110 pods of 2 containers, with the real API server beside it: the whole agent
    python bench/agent.py --alone     without an API server: looks and measures, and neither reports nor acts

Half of the pods are latency-sensitive, and a policy lets the strategies work. The limits are 2 % of a core and 80 MiB
resident.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import yaml
from cyclopts import App

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from harness.agent import AgentProcess, pod_on  # noqa: E402 - after the path that it is on
from harness.cluster import Cluster  # noqa: E402
from harness.kubepods import Kubepods  # noqa: E402
from trimtab.node.cgroups import QosClass  # noqa: E402
from trimtab.node.picture import TIER_LABEL  # noqa: E402

LONE = """
import sys, uvloop
from pathlib import Path
from trimtab.node.agent import Agent
from trimtab.node.config import AgentSettings
from trimtab.operator.memory import keep_small
keep_small()
parent, state, address = sys.argv[1:]
settings = AgentSettings(node="bench", cgroup_parent=parent, state=Path(state), address=address)
uvloop.run(Agent(settings, None).run())
"""
NODE = "bench"
SLEEPS = ("/bin/busybox", "sleep", "100000")
POLICY = {
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
app = App(help=__doc__)


@dataclass(frozen=True)
class Taken:
    """What a process has taken so far."""

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
def main(*, pods: int = 110, containers: int = 2, seconds: int = 60, alone: bool = False) -> None:
    """Measure once it has settled."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        kubepods = stack.enter_context(Kubepods.make())
        make = _lone if alone else _whole
        agent = make(stack, folder, kubepods, pods=pods, containers=containers)
        agent.start()
        stack.callback(agent.stop)
        agent.wait_until(lambda: (agent.counted("trimtab_agent_rounds_total") or 0) >= 5, timeout=120)
        before, began = Taken.of(agent.pid), time.monotonic()
        rounds = agent.counted("trimtab_agent_rounds_total") or 0
        spent = agent.counted("trimtab_agent_round_cpu_seconds_total") or 0
        time.sleep(seconds)
        after, passed = Taken.of(agent.pid), time.monotonic() - began
        done = (agent.counted("trimtab_agent_rounds_total") or 0) - rounds
        in_rounds = (agent.counted("trimtab_agent_round_cpu_seconds_total") or 0) - spent
        late = agent.counted("trimtab_agent_rounds_late_total") or 0
        series = agent.counted("trimtab_agent_series") or 0
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
    cluster.kubectl("apply", "--server-side", "-f", str(ROOT / "deploy" / "crds"))
    for plural in ("nodemetrics", "nodeqospolicies"):
        cluster.kubectl("wait", "--for=condition=Established", f"crd/{plural}.trimtab.io")
    scene = folder / "scene.yaml"
    scene.write_text(
        yaml.safe_dump_all([{"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}, POLICY])
    )
    cluster.kubectl("apply", "--server-side", "-f", str(scene))
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

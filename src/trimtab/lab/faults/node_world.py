"""Nodes drawn from a seed: pods that come, go and are resized, policies that change, and a tree of cgroups.

A world is plain data. `SimulatedNode` does what the kubelet and the kernel do: it creates cgroups, writes limits, counts
usage, and remembers the value that every knob would have without the agent.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from trimtab.api.nodeqospolicy import NodeQoSPolicySpec
from trimtab.kube.kinds.pods import Resources
from trimtab.lab.simulator.cgroup_tree import FakeCgroupTree
from trimtab.node.arbiter.host_knobs import MIN_FREE_KBYTES, WATERMARK_SCALE_FACTOR
from trimtab.node.arbiter.requests import KnobRef, Value
from trimtab.node.cgroups import KNOBS, CgroupVersion, QosClass
from trimtab.node.cgroups.knobs import CPU_QUOTA, CPUSET_CPUS
from trimtab.node.cgroups.values import UNLIMITED
from trimtab.node.model import CRITICAL_PRIORITY, ContainerView, Cpu, NodeView, PodView, Tier

CPUS = 8
MEMORY = 1 << 35
START = 1_760_000_000.0
PERIOD_US = 100_000
CFS_PERIODS = 10
"""The CFS periods of a second."""
SYSCTLS = {MIN_FREE_KBYTES: 67584, WATERMARK_SCALE_FACTOR: 10}


class PodDraw(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A pod of a drawn node; times are seconds after the start of the run."""

    name: str
    qos: str
    containers: int = 1
    cpu: int | None = None
    """The CPU request and limit of each container in millicores."""
    label_be: bool = False
    """It is best-effort by its label, whatever its class."""
    critical: bool = False
    demand: float = 0.5
    """The cores that it wants on average."""
    comes: float = 0.0
    goes: float | None = None
    resizes: tuple[tuple[float, int], ...] = ()
    """The times at which the kubelet writes another limit."""


class NodeWorld(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A node and the policies that apply to it."""

    seed: int
    seconds: int
    calm_at: float
    """The seconds after which pods, policies and demand stay as they are."""
    version: int
    """The version of the cgroup hierarchy."""
    pods: tuple[PodDraw, ...]
    policies: tuple[tuple[float, dict[str, Any] | None], ...]
    """The spec of the policy from each time on; None for none."""

    def policy_at(self, elapsed: float) -> NodeQoSPolicySpec | None:
        """Return the policy of a moment."""
        spec = next((spec for at, spec in reversed(self.policies) if at <= elapsed), None)
        return None if spec is None else NodeQoSPolicySpec.model_validate(spec)


def draw_node_world(seed: int) -> NodeWorld:
    """Draw a node; the same seed gives the same node."""
    rng = random.Random(f"node/{seed}")  # noqa: S311 - not for secrets
    calm_at = float(rng.choice([90, 120, 180]))
    changes = sorted(round(rng.uniform(0, calm_at)) for _ in range(rng.randint(0, 4)))
    return NodeWorld(
        seed=seed,
        seconds=int(calm_at) + 120,
        calm_at=calm_at,
        version=rng.choice([1, 2]),
        pods=tuple(_draw_pod(rng, number, calm_at) for number in range(rng.randint(2, 9))),
        policies=tuple((float(at), _draw_node_policy(rng)) for at in [0, *changes]),
    )


def _draw_pod(rng: random.Random, number: int, calm_at: float) -> PodDraw:
    qos = rng.choice([QosClass.BEST_EFFORT, QosClass.BEST_EFFORT, QosClass.BURSTABLE, QosClass.GUARANTEED])
    comes = rng.choice([0.0, 0.0, round(rng.uniform(0, calm_at))])
    goes = round(rng.uniform(comes + 1, calm_at)) if rng.random() < 0.3 and comes + 1 < calm_at else None
    cpu = None if qos is QosClass.BEST_EFFORT else rng.choice([500, 1000, 2000, 4000])
    resizes = [round(rng.uniform(comes, goes or calm_at)) for _ in range(rng.choice([0, 0, 1, 3]))]
    return PodDraw(
        name=f"pod-{number}",
        qos=qos.value,
        containers=rng.choice([1, 1, 2]),
        cpu=cpu,
        label_be=qos is QosClass.BURSTABLE and rng.random() < 0.2,
        critical=rng.random() < 0.25,
        demand=rng.choice([0.1, 0.5, 1.5, 3.0]),
        comes=comes,
        goes=goes,
        resizes=tuple((float(at), rng.choice([300, 700, 1100, 2300])) for at in sorted(resizes))
        if cpu
        else (),
    )


def _draw_node_policy(rng: random.Random) -> dict[str, Any] | None:
    if rng.random() < 0.15:
        return None
    return {
        "cpuSuppress": {"enable": rng.random() < 0.8, "policy": rng.choice(["cpuset", "cfsQuota"])},
        "cpuBurst": {"policy": rng.choice(["none", "auto", "cfsQuotaBurstOnly", "cpuBurstOnly"])},
        "memoryQoS": {"enable": rng.random() < 0.5},
        "system": {"enable": rng.random() < 0.5},
    }


class SimulatedNode:
    """A node without an agent: its pods, its cgroups, and the kubelet."""

    def __init__(self, folder: Path, world: NodeWorld) -> None:
        """Create the node in a folder, with the pods that are there from the start."""
        self.world = world
        self.elapsed = 0.0
        self.pods: dict[str, PodView] = {}
        self.expected: dict[KnobRef, Value] = {}
        """The value of each knob that can be written, as it would be without the agent."""
        self.boots = 0
        self._folder = folder
        self._draws = {pod.name: pod for pod in world.pods}
        self._cpus = tuple(Cpu(number, number // 2, 0, number // 4) for number in range(CPUS))
        self._busy = 0.0
        self._throttled: dict[str, tuple[int, int]] = {}
        self._used: dict[str, float] = {}
        self.tree: FakeCgroupTree
        self._boot()
        self._agenda = sorted(self._list_changes(), key=lambda each: each[0])
        self.advance(0.0)

    @property
    def now(self) -> float:
        """The simulated time in seconds since 1970."""
        return START + self.elapsed

    @property
    def proc(self) -> Path:
        return self._folder / "proc"

    def view(self) -> NodeView:
        """Return the node as the agent's informer sees it."""
        return NodeView(
            name="node",
            cpus=self._cpus,
            memory=MEMORY,
            pods=tuple(self.pods.values()),
            allocatable_cpu=CPUS * 1000 - 500,
        )

    def advance(self, seconds: float) -> None:
        """Let time pass: pods come, go and are resized, and use what their cgroups permit."""
        self.elapsed += seconds
        while self._agenda and self._agenda[0][0] <= self.elapsed:
            _, kind, name, cpu = self._agenda.pop(0)
            if kind == "comes":
                self._add_pod(self._draws[name])
            elif kind == "goes":
                self.remove_pod(name)
            elif name in self.pods:
                self._set_limits(name, cpu)
        if seconds:
            self._count_usage(seconds)

    def remove_pod(self, name: str) -> None:
        """Remove a pod and its cgroups."""
        if pod := self.pods.pop(name, None):
            self.tree.remove(pod.cgroup)
            for ref in [each for each in self.expected if f"{each.path}/".startswith(f"{pod.cgroup}/")]:
                del self.expected[ref]

    def reboot(self) -> None:
        """Boot again: all cgroups are new, and sysctls have their defaults."""
        pods = list(self.pods)
        self._boot()
        for name in pods:
            self._add_pod(self._draws[name])

    def rewrite(self, ref: KnobRef) -> None:
        """Write the value that a knob would have without the agent, as the kubelet does now and then."""
        for line in ref.knob.encode(self.expected[ref], self.tree.version):
            path = self.tree.knob_files.find_path(ref)
            assert path is not None, "every expected knob has a file"
            # Production code writes the quota alone; the file has the period too.
            text = f"{line} {PERIOD_US}" if path.name == "cpu.max" else line
            path.write_text(f"{text}\n")

    def reset_counters(self) -> None:
        """Let all usage counters begin at 0 again."""
        self._used.clear()
        self._throttled.clear()

    def differences(self) -> Iterator[str]:
        """Describe the knobs that do not have the value that they would have without the agent."""
        for ref, value in self.expected.items():
            held = self.tree.knob_files.read(ref)
            if held != value:
                yield f"{ref} is {held}, without the agent it would be {value}"

    def list_critical(self) -> list[PodView]:
        """Return the critical pods."""
        return [pod for pod in self.pods.values() if pod.is_critical]

    def count_cores(self, path: str, known: dict[str, float] | None = None) -> float:
        """Return the cores that a cgroup may use by its own knobs and those of its parents; `known` are those of others."""
        known = {"": float(CPUS)} if known is None else known
        if path not in known:
            cores = self.count_cores(path.rpartition("/")[0], known)
            quota = self.tree.knob_files.read(KnobRef(path, CPU_QUOTA))
            cpus = self.tree.knob_files.read(KnobRef(path, CPUSET_CPUS))
            if isinstance(quota, int) and quota != UNLIMITED:
                cores = min(cores, quota / PERIOD_US)
            if isinstance(cpus, frozenset) and cpus:
                cores = min(cores, float(len(cpus)))
            known[path] = cores
        return known[path]

    def expected_cores(self, path: str) -> float:
        """Return the cores that a cgroup might use without the agent."""
        cores = float(CPUS)
        while path:
            quota = self.expected.get(KnobRef(path, CPU_QUOTA))
            if isinstance(quota, int) and quota != UNLIMITED:
                cores = min(cores, quota / PERIOD_US)
            path = path.rpartition("/")[0]
        return cores

    # The kubelet

    def _boot(self) -> None:
        self.boots += 1
        self.pods, self.expected = {}, {}
        root = self._folder / f"boot-{self.boots}"
        self.tree = FakeCgroupTree(root, CgroupVersion(self.world.version), cpus=CPUS, parent="")
        for knob, value in SYSCTLS.items():
            ref = KnobRef("", knob)
            path = self.tree.knob_files.find_path(ref)
            assert path is not None, "sysctls have a file in every version"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{value}\n")
            self.expected[ref] = value
        for qos in QosClass:
            self._remember(self.tree.layout.qos_path(qos))
        self.proc.mkdir(exist_ok=True)
        self.reset_counters()

    def _list_changes(self) -> Iterator[tuple[float, str, str, int]]:
        for pod in self.world.pods:
            yield pod.comes, "comes", pod.name, 0
            for at, cpu in pod.resizes:
                yield at, "resized", pod.name, cpu
            if pod.goes is not None:
                yield pod.goes, "goes", pod.name, 0

    def _add_pod(self, draw: PodDraw) -> None:
        qos = QosClass(draw.qos)
        # A uid of its own at each boot and for each pod, by its name.
        uid = f"{self.world.seed % 10**8:08d}-0000-0000-{self.boots:04d}-{int(draw.name[4:]):012d}"
        path = self.tree.layout.pod_path(uid, qos)
        containers = []
        for number in range(draw.containers):
            identifier = f"{self.boots:04x}{int(draw.name[4:]):028x}{number:032x}"
            cgroup = self.tree.layout.container_path(path, f"containerd://{identifier}")
            containers.append(
                ContainerView(name=f"c{number}", id=identifier, resources=Resources(), cgroup=cgroup)
            )
        for cgroup in (path, *(each.cgroup for each in containers)):
            self.tree.create(cgroup)
            self._remember(cgroup)
        self.pods[draw.name] = PodView(
            uid=uid,
            namespace="default",
            name=draw.name,
            tier=Tier.BE if draw.label_be or qos is QosClass.BEST_EFFORT else Tier.LS,
            qos=qos,
            priority=CRITICAL_PRIORITY if draw.critical else 0,
            cgroup=path,
            containers=tuple(containers),
        )
        if draw.cpu is not None:
            self._set_limits(draw.name, draw.cpu)

    def _set_limits(self, name: str, cpu: int) -> None:
        """Write the CPU limit of a pod and of its containers, as the kubelet does for a resize."""
        pod = self.pods[name]
        size = Resources(cpu_request=cpu, cpu_limit=cpu)
        containers = tuple(replace(each, resources=size, spec_resources=size) for each in pod.containers)
        self.pods[name] = replace(pod, containers=containers)
        for path, amount in (
            (pod.cgroup, cpu * len(containers)),
            *((each.cgroup, cpu) for each in containers),
        ):
            ref = KnobRef(path, CPU_QUOTA)
            self.expected[ref] = amount * PERIOD_US // 1000
            self.rewrite(ref)

    def _remember(self, path: str) -> None:
        """Remember the knobs of a new cgroup; one below a squeezed parent inherits its CPUs only for now."""
        for knob in KNOBS.values():
            ref = KnobRef(path, knob)
            file = knob.file(self.tree.version)
            if file is None or file.encode is None or (value := self.tree.knob_files.read(ref)) is None:
                continue
            if knob == CPUSET_CPUS and self.tree.version is CgroupVersion.V1:
                value = frozenset(range(CPUS))
            self.expected[ref] = value

    # The kernel

    def _count_usage(self, seconds: float) -> None:
        total = 0.4 * seconds
        known = {"": float(CPUS)}
        for name, pod in self.pods.items():
            wanted = self._demand(self._draws[name]) / len(pod.containers)
            for container in pod.containers:
                used = min(wanted, self.count_cores(container.cgroup, known)) * seconds
                self._count(container.cgroup, used, throttled=wanted * seconds > used)
                total += used
            self._count(pod.cgroup, sum(self._used[each.cgroup] for each in pod.containers), total=True)
        self._count(
            self.tree.layout.pods_path,
            sum(self._used.get(pod.cgroup, 0.0) for pod in self.pods.values()),
            total=True,
        )
        self._busy += total
        ticks = int(self._busy * 100)
        (self.proc / "stat").write_text(f"cpu  {ticks} 0 0 0 0 0 0 0 0 0\n")
        (self.proc / "meminfo").write_text(
            f"MemTotal: {MEMORY >> 10} kB\nMemAvailable: {MEMORY >> 11} kB\nCached: 0 kB\nBuffers: 0 kB\nShmem: 0 kB\n"
        )

    def _demand(self, draw: PodDraw) -> float:
        moment = min(self.elapsed, self.world.calm_at)
        rng = random.Random(f"{self.world.seed} {draw.name} {moment // 20}")  # noqa: S311 - not for secrets
        return draw.demand * rng.choice([0.2, 1.0, 1.0, 3.0]) * (1 + 0.1 * math.sin(moment))

    def _count(self, path: str, used: float, *, throttled: bool = False, total: bool = False) -> None:
        """Add usage to the counters of a cgroup, or with `total` set them."""
        self._used[path] = used if total else self._used.get(path, 0.0) + used
        periods, held = self._throttled.get(path, (0, 0))
        self._throttled[path] = periods + CFS_PERIODS, held + (CFS_PERIODS // 2 if throttled else 0)
        periods, held = self._throttled[path]
        if self.tree.version is CgroupVersion.V2:
            text = f"usage_usec {int(self._used[path] * 1e6)}\nnr_periods {periods}\nnr_throttled {held}\nthrottled_usec 0"
            self.tree.set_counter(path, "cpu.stat", text)
        else:
            self.tree.set_counter(
                path, "cpu.stat", f"nr_periods {periods}\nnr_throttled {held}\nthrottled_time 0"
            )
            self.tree.set_counter(
                path, "cpuacct.usage", str(int(self._used[path] * 1e9)), controller="cpuacct"
            )

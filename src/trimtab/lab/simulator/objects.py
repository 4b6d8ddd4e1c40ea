"""The workloads and pods of a simulated cluster as objects, with everything that the arrays of containers do not hold.

`to_record` returns the same record that an informer keeps of a real object, so the operator reads both alike.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from trimtab.actuation.resources import Sizes, container_sizes, merge_sizes
from trimtab.kube.cache.projection import OwnerReference
from trimtab.kube.kinds.pod_requests import qos_class
from trimtab.kube.kinds.pods import (
    Container,
    ContainerStatus,
    ContainerTermination,
    Pod,
    PodResize,
    Resources,
)
from trimtab.kube.kinds.workloads import Workload
from trimtab.kube.rest.resources import CRON_JOBS, DAEMON_SETS, DEPLOYMENTS, JOBS, STATEFUL_SETS
from trimtab.lab.simulator.scenario import WorkloadSpec

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""The characters from which Kubernetes generates names."""
RESOURCES = {
    "Deployment": DEPLOYMENTS,
    "StatefulSet": STATEFUL_SETS,
    "DaemonSet": DAEMON_SETS,
    "CronJob": CRON_JOBS,
    "Job": JOBS,
}


@dataclass(slots=True, eq=False)
class SimulatedWorkload:
    """A workload and its pods, oldest first."""

    number: int
    spec: WorkloadSpec
    uid: str
    created: float
    containers: tuple[Container, ...]
    replicas: int
    revision: int = 1
    generation: int = 1
    version: int = 0
    annotations: dict[str, dict[str, str]] = field(default_factory=dict)
    """The annotations by field manager."""
    pods: dict[str, SimulatedPod] = field(default_factory=dict)
    created_count: int = 0
    """The number of pods that were ever created for it."""
    paused: bool = False
    last_revision: int = 1
    """The highest revision there was; after a rollback, it is not the present one."""
    broken_revision: int = 0
    """The revision whose pods never become ready; 0 for none."""
    finished: bool = False
    """True for a Job whose run has ended."""

    @property
    def ready(self) -> int:
        return sum(pod.ready for pod in self.pods.values())

    @property
    def is_batch(self) -> bool:
        """Return whether its pods run to completion: no rollout replaces them."""
        return self.spec.schedule is not None

    @property
    def outdated_pods(self) -> list[SimulatedPod]:
        """Return the pods of an older template."""
        return [pod for pod in self.pods.values() if pod.revision != self.revision]

    def to_record(self) -> Workload:
        updated = len(self.pods) - len(self.outdated_pods)
        annotations = {key: text for theirs in self.annotations.values() for key, text in theirs.items()}
        return Workload(
            resource=RESOURCES[self.spec.kind],
            namespace=self.spec.namespace,
            name=self.spec.name,
            uid=self.uid,
            version=self.version,
            generation=self.generation,
            created=int(self.created),
            deleting=False,
            owner=None,
            labels=tuple(sorted(self.spec.labels.items())),
            annotations=tuple(sorted(annotations.items())),
            containers=self.containers,
            selector=f"app={self.spec.name}",
            replicas=self.spec.replicas if self.is_batch else self.replicas,
            updated_replicas=updated,
            ready_replicas=self.ready,
            update_strategy="" if self.is_batch else self.spec.update,
            is_spec_observed=True,
            is_rolling_out=self.rolls_out and updated < len(self.pods),
            paused=self.paused,
            finished=self.finished,
        )

    @property
    def rolls_out(self) -> bool:
        """Return whether its controller replaces the pods of an older template."""
        return self.spec.update != "OnDelete" and not self.is_batch

    def start_revision(self) -> None:
        """Have the controller replace the pods, because the template has changed."""
        self.last_revision += 1
        self.revision = self.last_revision

    def next_pod_name(self) -> str:
        """Return the name of the next pod, by the rules of the workload's kind."""
        if self.spec.kind == "StatefulSet":
            taken = set(self.pods)
            return next(
                name for index in range(len(taken) + 1) if (name := f"{self.spec.name}-{index}") not in taken
            )
        suffix = derive_letters(f"{self.uid}/{self.created_count}", 5)
        if self.spec.kind == "CronJob":
            return f"{self.spec.name}-{29_000_000 + self.created_count}-{suffix}"
        if self.spec.kind in {"DaemonSet", "Job"}:
            return f"{self.spec.name}-{suffix}"
        template = derive_letters(f"{self.uid}/{self.revision}", 10)
        return f"{self.spec.name}-{template}-{suffix}"


@dataclass(slots=True, eq=False)
class SimulatedPod:
    """A pod, with the rows of its containers in the arrays."""

    name: str
    uid: str
    workload: SimulatedWorkload
    revision: int
    created: float
    containers: tuple[Container, ...]
    """The containers as in the spec; their cgroups have `applied`."""
    applied: list[Resources]
    last_exits: list[ContainerTermination | None]
    restarts: list[int]
    rows: tuple[int, ...]
    node: int = -1
    started: float = 0.0
    ready: bool = False
    resize: PodResize | None = None
    unschedulable: bool = False
    """True if users have been notified that the pod fits nowhere."""
    resize_due: float = 0.0
    """The time at which the kubelet handles its resize."""
    version: int = 0
    bound_node: int | None = None
    """The only node on which a pod of a DaemonSet may run."""

    @property
    def namespace(self) -> str:
        return self.workload.spec.namespace

    def to_record(self, node: str) -> Pod:
        """Return the record of the pod on the node with this name."""
        spec = self.workload.spec
        return Pod(
            namespace=spec.namespace,
            name=self.name,
            uid=self.uid,
            version=self.version,
            node=node,
            phase="Running" if self.node >= 0 else "Pending",
            qos_class=qos_class(each.resources for each in self.containers),
            ready=self.ready,
            deleting=False,
            priority=0,
            created=int(self.created),
            started=int(self.started),
            owner=OwnerReference(spec.kind, spec.name, self.workload.uid),
            labels=(("app", spec.name),),
            annotations=(),
            containers=self.containers,
            container_statuses=tuple(map(self._build_container_state, range(len(self.containers))))
            if self.node >= 0
            else (),
            resize=self.resize,
        )

    def _build_container_state(self, index: int) -> ContainerStatus:
        waits = not self.ready and self.last_exits[index] is not None
        return ContainerStatus(
            name=self.containers[index].name,
            ready=self.ready,
            restarts=self.restarts[index],
            waiting_reason="CrashLoopBackOff" if waits else "",
            actual_resources=self.applied[index],
            last_termination=self.last_exits[index],
        )


def with_sizes(containers: Sequence[Container], sizes: Sizes) -> tuple[Container, ...]:
    """Return the containers with these sizes; those that have none there keep theirs."""
    wanted = merge_sizes(container_sizes(containers), sizes)
    return tuple(msgspec.structs.replace(each, resources=wanted[each.name]) for each in containers)


def derive_letters(text: str, count: int) -> str:
    """Derive letters from a text; the same text gives the same letters."""
    number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
    found = []
    for _ in range(count):
        number, index = divmod(number, len(_LETTERS))
        found.append(_LETTERS[index])
    return "".join(found)


def derive_uid(*parts: object) -> str:
    return hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=16).hexdigest()


def sum_requests(sizes: list[Resources]) -> tuple[int, int]:
    """Return the millicores and bytes that a pod requests; a limit alone counts as a request."""
    cpu = memory = 0
    # Not by `Resources.total`, which takes ten times as long: counting nodes sums up every pod of the cluster.
    for each in sizes:
        cpu += (each.cpu_limit if each.cpu_request is None else each.cpu_request) or 0
        memory += (each.memory_limit if each.memory_request is None else each.memory_request) or 0
    return cpu, memory

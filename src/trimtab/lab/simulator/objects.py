"""The workloads and pods of a simulated cluster as things: what arrays of containers cannot say.

Each folds to the very record that informers keep of a real one, so that whoever reads them cannot tell the difference.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from trimtab.kube.cache.projection import Owner
from trimtab.kube.kinds.pods import Container, ContainerState, Exit, Pod, Resize, Resources
from trimtab.kube.kinds.workloads import Workload
from trimtab.kube.rest.resources import DEPLOYMENTS, STATEFUL_SETS
from trimtab.lab.simulator.scenario import WorkloadSpec
from trimtab.sizing.qos import qos_class

_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""Of which Kubernetes makes names."""
RESOURCES = {"Deployment": DEPLOYMENTS, "StatefulSet": STATEFUL_SETS}


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
    """By who manages them."""
    pods: dict[str, SimulatedPod] = field(default_factory=dict)
    made: int = 0
    """Pods that it ever had."""

    @property
    def ready(self) -> int:
        return sum(pod.ready for pod in self.pods.values())

    @property
    def old(self) -> list[SimulatedPod]:
        """Pods of an older template."""
        return [pod for pod in self.pods.values() if pod.revision != self.revision]

    def record(self) -> Workload:
        updated = len(self.pods) - len(self.old)
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
            replicas=self.replicas,
            updated=updated,
            ready=self.ready,
            update=self.spec.update,
            observed=True,
            rolling=self.spec.update == "RollingUpdate" and updated < len(self.pods),
            paused=False,
            finished=False,
        )

    def pod_name(self) -> str:
        """The name of its next pod, by the rules of its kind."""
        if self.spec.kind == "StatefulSet":
            taken = set(self.pods)
            return next(
                name for place in range(len(taken) + 1) if (name := f"{self.spec.name}-{place}") not in taken
            )
        template = letters(f"{self.uid}/{self.revision}", 10)
        return f"{self.spec.name}-{template}-{letters(f'{self.uid}/{self.made}', 5)}"


@dataclass(slots=True, eq=False)
class SimulatedPod:
    """A pod and the rows of its containers."""

    name: str
    uid: str
    workload: SimulatedWorkload
    revision: int
    created: float
    containers: tuple[Container, ...]
    """As its spec wants them; what their cgroups have is `applied`."""
    applied: list[Resources]
    exits: list[Exit | None]
    restarts: list[int]
    rows: tuple[int, ...]
    node: int = -1
    started: float = 0.0
    ready: bool = False
    resize: Resize | None = None
    stranded: bool = False
    """Whether users were told that it fits nowhere."""
    decides: float = 0.0
    """When the kubelet looks at its resize."""
    version: int = 0

    @property
    def namespace(self) -> str:
        return self.workload.spec.namespace

    def record(self, node: str) -> Pod:
        """`node` is the name of the one that it is on."""
        spec = self.workload.spec
        return Pod(
            namespace=spec.namespace,
            name=self.name,
            uid=self.uid,
            version=self.version,
            node=node,
            phase="Running" if self.node >= 0 else "Pending",
            qos=qos_class(each.resources for each in self.containers),
            ready=self.ready,
            deleting=False,
            priority=0,
            created=int(self.created),
            started=int(self.started),
            owner=Owner(spec.kind, spec.name, self.workload.uid),
            labels=(("app", spec.name),),
            annotations=(),
            containers=self.containers,
            states=tuple(map(self._state, range(len(self.containers)))) if self.node >= 0 else (),
            resize=self.resize,
        )

    def _state(self, place: int) -> ContainerState:
        waits = not self.ready and self.exits[place] is not None
        return ContainerState(
            name=self.containers[place].name,
            ready=self.ready,
            restarts=self.restarts[place],
            waiting="CrashLoopBackOff" if waits else "",
            applied=self.applied[place],
            last_exit=self.exits[place],
        )


def letters(text: str, count: int) -> str:
    """Letters that always are the same for the same text."""
    number = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
    found = []
    for _ in range(count):
        number, place = divmod(number, len(_LETTERS))
        found.append(_LETTERS[place])
    return "".join(found)


def uid_of(*parts: object) -> str:
    return hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=16).hexdigest()


def asked(sizes: list[Resources]) -> tuple[int, int]:
    """Millicores and bytes that a pod asks for; a limit alone is a request too."""
    cpu = sum(each.cpu_limit or 0 if each.cpu_request is None else each.cpu_request for each in sizes)
    memory = sum(
        each.memory_limit or 0 if each.memory_request is None else each.memory_request for each in sizes
    )
    return cpu, memory

"""A small world behind the port: a workload, its controller and its kubelet, in which anything may fail.

Its API server is honest where it matters: a write based on an old version is a conflict, a lost answer has had its
effect, and a pod once gone is not found. Time passes only on request. Informers deliver what happened at once, or, once
`records.lags` is set, only as much as a test says.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple, TypeVar

import msgspec

from actuation.builders import MIB, NOW, pod, workload
from trimtab.actuation.change_annotations import (
    APPLIED_ANNOTATION,
    CHANGE_ANNOTATION,
    REVERTED_ANNOTATION,
    AppliedSizes,
    ChangeAnnotations,
    Phase,
    UnreadableAnnotations,
    decode_change_annotations,
    encode_change_annotations,
)
from trimtab.actuation.pod_options import OptionsAnnotation
from trimtab.actuation.port import ANNOTATIONS_MANAGER
from trimtab.actuation.resources import (
    Sizes,
    container_sizes,
    increases_requests,
    is_between,
    merge_sizes,
)
from trimtab.kube.cache.projection import OwnerReference
from trimtab.kube.errors import Conflict, Invalid, NotFound, Status, Unreachable
from trimtab.kube.kinds.heap_flags import HeapFlags
from trimtab.kube.kinds.pods import ContainerTermination, Pod, PodResize, Resources
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.kube.rest.resources import DEPLOYMENTS, PODS, STATEFUL_SETS, Resource
from trimtab.kube.runtime.event_correlator import EventType
from trimtab.operator.cluster_state import ClusterState
from trimtab.testing import FakeInformerSet

T = TypeVar("T")

KEY = WorkloadKey("Deployment", "shop", "web")


class KilledError(BaseException):
    """The process was killed, between any two of its requests or during one."""


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end: nothing in this world waits."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise AssertionError("it waits for something")


@dataclass
class LivePod:
    name: str
    spec: Sizes
    applied: Sizes
    created: int
    exits: dict[str, ContainerTermination] = field(default_factory=dict)
    phase: str = "Running"
    resize_rejection: str = ""
    """The reason for which its node defers or rejects a larger size; a smaller size is accepted."""
    crashes: bool = False
    """True while it waits to be restarted."""
    unschedulable: bool = False
    """True if no node has capacity for it."""
    number: int = 0
    """The number of this pod among all pods ever created."""


class Delivery(NamedTuple):
    """An event of a watch."""

    resource: Resource
    record: Any
    is_gone: bool


class LaggingRecords:
    """The operator's own records, from informers that may lag behind the world: two watches, each with its own queue."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.lags = False
        self.pending: dict[str, deque[Delivery]] = {"workload": deque(), "pods": deque()}
        """The events that each watch has yet to deliver."""
        self._delivered: list[Delivery] = []
        self.restart()

    def restart(self) -> None:
        """Begin as another process, which knows what its watches delivered, and nothing of the writes of the last."""
        self._informers = FakeInformerSet()
        self._state = ClusterState(self._informers)
        for each in self._delivered:
            self._apply(each)

    def get(self, key: WorkloadKey) -> Workload | None:
        self._catch_up()
        return self._state.get(key._replace(kind=self._world.kind))

    def list_pods(self, workload: Workload) -> Sequence[Pod]:
        self._catch_up()
        return sorted(self._state.list_pods(workload), key=lambda pod: int(pod.uid.removeprefix("uid-")))

    def update(self, record: Workload | Pod) -> None:
        self._state.update(record)

    def outdated_reason(self, workload: Workload) -> str:
        return self._state.outdated_reason(workload)

    def deliver(self, watch: str, most: int) -> None:
        """Deliver the oldest events of a watch."""
        queue = self.pending[watch]
        for _ in range(min(most, len(queue))):
            self._delivered.append(queue.popleft())
            self._apply(self._delivered[-1])

    def _apply(self, event: "Delivery") -> None:
        (self._informers.remove if event.is_gone else self._informers.put)(event.resource, event.record)

    def _catch_up(self) -> None:
        self._world.commit()
        if not self.lags:
            for watch, queue in self.pending.items():
                self.deliver(watch, len(queue))


class World:
    """One workload `web` in namespace `shop`."""

    def __init__(
        self,
        *,
        template: Sizes,
        replicas: int,
        resource: Resource = DEPLOYMENTS,
        update: str = "RollingUpdate",
    ) -> None:
        self.now = NOW
        self.template: Sizes = dict(template)
        self.annotations: dict[str, str] = {}
        self.replicas = replicas
        self.needed_memory = 0
        """Containers with less than this are killed."""
        self.resizable = True
        """False if no kubelet resizes pods."""
        self.fitting_size: Sizes | None = None
        """The only size for which new pods find a node; None if they find one for every size."""
        self.heaps: tuple[HeapFlags, ...] = ()
        self.pods_by_name: dict[str, LivePod] = {}
        self.full: str = ""
        """The reason for which every node rejects a larger size: Deferred, Infeasible; empty if none does."""
        self.keeps_memory_limits = False
        """True if the API server rejects a lower memory limit in place, as before Kubernetes 1.34."""
        self.paused = False
        """True if the rollout is paused."""
        self.crash_loops = False
        """True if killed pods wait for a restart most of the time."""
        self.clock_ahead = 0
        """Seconds by which the clocks of its nodes are ahead."""
        self.intercept_write: Callable[[str], None] = lambda _: None
        """Called before and after each write, and may raise."""
        self.events: list[tuple[str, str, str]] = []
        self.written: list[str] = []
        self.resized: dict[tuple[str, str, Any], int] = defaultdict(int)
        self.befores: dict[str, set[Any]] = defaultdict(set)
        self.records = LaggingRecords(self)
        """The operator's records of this world."""
        self.checks_versions = True
        """True if a write on an old record is a conflict, as on any API server."""
        self.reads = 0
        """The number of live reads."""
        self._revision = 0
        self._managers = dict.fromkeys(
            (CHANGE_ANNOTATION, APPLIED_ANNOTATION, REVERTED_ANNOTATION), ANNOTATIONS_MANAGER
        )
        """The field manager of each annotation."""
        self._stored: dict[str, Any] = {}
        """The records of all objects by uid, as last committed."""
        self._resource, self._update = resource, update
        self._pods_created = 0
        self._created_from: dict[str, Sizes] = {}
        for _ in range(replicas):
            self.add_pod(age=86_400)

    @property
    def kind(self) -> str:
        return self._resource.kind

    @property
    def change_annotations(self) -> ChangeAnnotations:
        change_annotations = decode_change_annotations(self.annotations, uid="uid-web")
        assert not isinstance(change_annotations, UnreadableAnnotations)
        return change_annotations

    # The port

    async def get_workload(self, key: WorkloadKey) -> Workload:
        self.reads += 1
        return self.workload

    async def list_pods(self, workload: Workload | None = None) -> Sequence[Pod]:
        self.reads += 1
        self.commit()
        return [self._stored[_uid(each)] for each in self.pods_by_name.values()]

    @property
    def workload(self) -> Workload:
        self.commit()
        found: Workload = self._stored["uid-web"]
        return found

    async def resize(self, pod: Pod, sizes: Sizes) -> Pod:
        with self._write("resize"):
            live = self._find_unchanged(pod)
            assert container_sizes(pod.containers) == dict(live.spec), (
                "a size that somebody else gave is lost"
            )
            wanted = merge_sizes(live.spec, sizes)
            assert wanted != live.spec, "a pod gets the size that it already has"
            if self.keeps_memory_limits and any(
                (new.memory_limit or 0) < (live.spec[name].memory_limit or 0) for name, new in wanted.items()
            ):
                raise Invalid(Status(message="memory limits cannot be decreased", code=422))
            if wanted != live.spec:
                self._check_written_down(sizes)
                change = self.change_annotations.change
                of = f"{change.id} {bool(change.abandoned_at)}" if change else "sync"
                self.resized[of, pod.uid, tuple(wanted.items())] += 1
                live.spec = wanted
        self.commit()
        resized: Pod = self._stored[pod.uid]
        return resized

    async def evict(self, pod: Pod) -> Pod:
        with self._write("evict"):
            self._find_unchanged(pod)
            self.replace_pod(pod.name)
        return msgspec.structs.replace(pod, deleting=True, version=pod.version + 1)

    async def patch_template(self, workload: Workload, sizes: Sizes, *, take_ownership: bool) -> Workload:
        with self._write("patch_template"):
            self._check_version(workload)
            assert container_sizes(workload.containers) == dict(self.template), "another's edit is lost"
            self._check_written_down(sizes)
            self.template = merge_sizes(self.template, sizes)
        return self.workload

    async def patch_options(self, workload: Workload, annotation: OptionsAnnotation) -> Workload:
        raise AssertionError("sizing never chooses options")

    async def scale(self, workload: Workload, replicas: int) -> Workload:
        raise AssertionError("sizing never scales")

    async def annotate(
        self, workload: Workload, annotations: Mapping[str, str], *, manager: str = ANNOTATIONS_MANAGER
    ) -> Workload:
        with self._write("annotate"):
            self._check_version(workload)
            assert dict(workload.annotations) == self.annotations, "annotations that were not seen are lost"
            others = {
                key: text for key, text in self.annotations.items() if self._managers.get(key) != manager
            }
            self.annotations = others | dict(annotations)
            self._managers |= dict.fromkeys(annotations, manager)
            if change := self.change_annotations.change:
                self.befores[change.id].add((tuple(change.before.items()), str(change.pod_overrides)))
        return self.workload

    def emit(self, workload: Workload, *, type: EventType, reason: str, message: str) -> None:  # noqa: A002 - the port's word
        self.events.append((type, reason, message))

    def commit(self) -> None:
        """Give each object that has changed a new version, and its watch an event."""
        found: list[Workload | Pod] = [self._seen_workload(), *map(self._seen, self.pods_by_name.values())]
        for uid in self._stored.keys() - {record.uid for record in found}:
            self._revision += 1
            gone = msgspec.structs.replace(self._stored.pop(uid), version=self._revision)
            self._notify(gone, is_gone=True)
        for record in found:
            old = self._stored.get(record.uid)
            # Records of workloads are compared by identity, but their fields are not.
            same = msgspec.structs.replace(record, version=old.version) if old else None
            if not (old and same and msgspec.structs.astuple(old) == msgspec.structs.astuple(same)):
                self._revision += 1
                self._stored[record.uid] = new = msgspec.structs.replace(record, version=self._revision)
                self._notify(new, is_gone=False)

    def _notify(self, record: Workload | Pod, *, is_gone: bool) -> None:
        watch, resource = ("pods", PODS) if isinstance(record, Pod) else ("workload", self._resource)
        self.records.pending[watch].append(Delivery(resource, record, is_gone))

    def _find_unchanged(self, pod: Pod) -> LivePod:
        """Return the pod that a write is about, if it is still as its record says."""
        live = self.pods_by_name.get(pod.name)
        if live is None or pod.uid != _uid(live):
            raise NotFound(Status(message="pod not found", code=404))
        self._check_version(pod)
        return live

    def _check_version(self, record: Workload | Pod) -> None:
        self.commit()
        if self.checks_versions and self._stored[record.uid].version != record.version:
            raise Conflict(Status(message="the object has been modified", code=409))

    # What happens by itself

    @property
    def rolling(self) -> bool:
        return self._update != "OnDelete" and any(self._is_old(each) for each in self.pods_by_name.values())

    def add_pod(self, name: str = "", *, age: int = 0) -> None:
        name = name or next(each for each in map("web-{}".format, count()) if self._is_free(each))
        self._pods_created += 1
        made = dict(self.template)
        live = LivePod(name, made, made, self.now - age, number=self._pods_created)
        live.unschedulable = self.fitting_size not in (None, made)
        self.pods_by_name[name], self._created_from[name] = live, made

    def remove_pod(self) -> None:
        """Remove the oldest pod, or the last one of a StatefulSet."""
        if self.pods_by_name:
            self.pods_by_name.pop(
                max(self.pods_by_name) if self._is_stateful else next(iter(self.pods_by_name))
            )

    def replace_pod(self, name: str) -> None:
        """Replace a pod by one of another name; a StatefulSet keeps the name."""
        del self.pods_by_name[name]
        self.add_pod(name if self._is_stateful else "")

    def apply_size_earlier(self, sizes: Sizes) -> None:
        """Give all pods this size instead of their template's, by a change that is done."""
        for live in self.pods_by_name.values():
            live.spec = live.applied = dict(sizes)
        made = dict(self.template)
        applied = AppliedSizes(id="before", at=self.now - 3600, sizes=dict(sizes), template=made)
        self.annotations = encode_change_annotations(ChangeAnnotations(applied=applied), uid="uid-web")

    def deploy_version(self) -> None:
        """Deploy a new version: every pod is replaced at once."""
        for name in list(self.pods_by_name):
            self.replace_pod(name)

    def pass_time(self, seconds: int) -> None:
        """Let kubelets resize pods, kill those that need more, and let the controller replace an old pod."""
        self.now += seconds
        halted = self._is_stateful and any(each.unschedulable for each in self.pods_by_name.values())
        if self.rolling and not halted and not self.paused:
            self.replace_pod(next(name for name, each in self.pods_by_name.items() if self._is_old(each)))
        for live in self.pods_by_name.values():
            live.unschedulable = live.unschedulable and self.fitting_size not in (None, live.spec)
            if not self.resizable and live.spec != live.applied:
                live.resize_rejection = live.resize_rejection or "Infeasible"
            has_capacity = self.resizable and not increases_requests(live.applied, live.spec)
            if not (live.resize_rejection or self.full) or live.unschedulable or has_capacity:
                live.applied = dict(live.spec)
            killed = [
                name
                for name, resources in live.applied.items()
                if (resources.memory_limit or self.needed_memory) < self.needed_memory
            ]
            live.exits |= dict.fromkeys(
                killed, ContainerTermination("OOMKilled", 137, self.now + self.clock_ahead)
            )
            live.crashes = self.crash_loops and bool(killed)

    @property
    def sizes(self) -> set[Any]:
        """The sizes that its pods have, in effect."""
        return {tuple(live.applied.items()) for live in self.pods_by_name.values()}

    @property
    def _is_stateful(self) -> bool:
        return self._resource is STATEFUL_SETS

    def _is_free(self, name: str) -> bool:
        """Only a StatefulSet gives the name of one that is gone to another."""
        return name not in (self.pods_by_name if self._is_stateful else self._created_from)

    def _is_old(self, live: LivePod) -> bool:
        return self._created_from[live.name] != self.template

    def _seen_workload(self) -> Workload:
        return workload(
            resource=self._resource,
            template=self.template,
            annotations=self.annotations,
            replicas=self.replicas,
            update=self._update,
            rolling=self.rolling,
            paused=self.paused,
            heap_flags=self.heaps,
        )

    def _seen(self, live: LivePod) -> Pod:
        resize = None
        if live.spec != live.applied:
            why = live.resize_rejection or self.full
            resize = PodResize("PodResizePending", why, "the node says so") if why else None
        seen = pod(
            live.name,
            sizes=live.spec,
            applied=live.applied,
            created=live.created,
            exits=live.exits,
            resize=resize,
            node="" if live.unschedulable else f"node-{live.number}",
            phase="Pending" if live.unschedulable else live.phase,
            ready=not live.unschedulable and not live.crashes,
            waiting="CrashLoopBackOff" if live.crashes else "",
        )
        owner = OwnerReference(self._resource.kind, "web", "uid-web")
        return msgspec.structs.replace(seen, uid=_uid(live), owner=owner)

    def _check_written_down(self, sizes: Sizes) -> None:
        """Check that the annotations record every size before it is written; only a revert may end in between."""
        change_annotations = self.change_annotations
        known: list[Sizes] = [change_annotations.applied.sizes] if change_annotations.applied else []
        is_known = False
        if change := change_annotations.change:
            befores = [change.before, *change.pod_overrides.values()]
            known += [change.after, change.template, *befores]
            known += [merge_sizes(change.template, change.after)]
            is_back = change.phase is Phase.REVERTING
            is_known = is_back and any(is_between(sizes, before, change.after) for before in befores)
        assert is_known or dict(sizes) in known, f"{sizes} is given to a pod, and no annotation records it"

    def _write(self, what: str) -> "_InterceptedWrite":
        return _InterceptedWrite(self, what)


@dataclass
class _InterceptedWrite:
    world: World
    what: str

    def __enter__(self) -> None:
        self.world.intercept_write(f"before {self.what}")

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.world.written.append(self.what)
            self.world.intercept_write(f"after {self.what}")


def _uid(live: LivePod) -> str:
    return f"uid-{live.number}"


def lost(_: str = "") -> None:
    raise Unreachable("PATCH: the connection broke", sent=True)


def resources(cpu: int, memory: int) -> Resources:
    return Resources(cpu, None, memory * MIB, memory * MIB * 2)

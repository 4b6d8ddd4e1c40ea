"""A small world behind the port: a workload, its controller and its kubelet, in which anything may fail.

Its API server is honest where it matters: a write based on an old version is a conflict, a lost answer has had its
effect, and a pod once gone is not found. Time passes only when told to. Informers deliver what happened at once, or, once
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
    """The process is gone, between any two of its requests or in the middle of one."""


def run(doing: Coroutine[Any, Any, T]) -> T:
    """To its end: nothing in this world makes anybody wait."""
    try:
        doing.send(None)
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
    stubborn: str = ""
    """Why its node does not give it more than it has; what takes no more room it gives."""
    crashes: bool = False
    """Whether it waits to be started again at this very moment."""
    homeless: bool = False
    """Whether no node has room for it."""
    number: int = 0
    """Which of all pods that ever were it is."""


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
        """Whether kubelets resize any pod at all."""
        self.roomy: Sizes | None = None
        """The one size for which new pods find a node, where not for every."""
        self.heaps: tuple[HeapFlags, ...] = ()
        self.pods_by_name: dict[str, LivePod] = {}
        self.full: str = ""
        """Why no node gives any pod more than it has: Deferred, Infeasible."""
        self.keeps_memory_limits = False
        """Whether its API server lowers no memory limit in place, as before Kubernetes 1.34."""
        self.paused = False
        """Whether its controller was told to hold."""
        self.crash_loops = False
        """Whether pods that are killed wait to be started again for most of the time."""
        self.clock_ahead = 0
        """Seconds by which the clocks of its nodes are ahead."""
        self.meddle: Callable[[str], None] = lambda _: None
        """Called before and after each write, and may raise."""
        self.events: list[tuple[str, str, str]] = []
        self.written: list[str] = []
        self.resized: dict[tuple[str, str, Any], int] = defaultdict(int)
        self.befores: dict[str, set[Any]] = defaultdict(set)
        self.records = LaggingRecords(self)
        """What the operator knows of this world."""
        self.checks_versions = True
        """Whether a write on an old record is a conflict, as on any API server."""
        self.reads = 0
        """The number of live reads."""
        self._revision = 0
        self._managers = dict.fromkeys(
            (CHANGE_ANNOTATION, APPLIED_ANNOTATION, REVERTED_ANNOTATION), ANNOTATIONS_MANAGER
        )
        """Who wrote each annotation."""
        self._stored: dict[str, Any] = {}
        """The records of all objects by uid, as last committed."""
        self._resource, self._update = resource, update
        self._born = 0
        self._made_from: dict[str, Sizes] = {}
        for _ in range(replicas):
            self.add_pod(age=86_400)

    @property
    def kind(self) -> str:
        return self._resource.kind

    @property
    def marks(self) -> ChangeAnnotations:
        marks = decode_change_annotations(self.annotations, uid="uid-web")
        assert not isinstance(marks, UnreadableAnnotations)
        return marks

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
            assert wanted != live.spec, "a pod is given the size that it has"
            if self.keeps_memory_limits and any(
                (new.memory_limit or 0) < (live.spec[name].memory_limit or 0) for name, new in wanted.items()
            ):
                raise Invalid(Status(message="memory limits cannot be decreased", code=422))
            if wanted != live.spec:
                self._check_written_down(sizes)
                change = self.marks.change
                of = f"{change.id} {bool(change.gave_up)}" if change else "tending"
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
            if change := self.marks.change:
                self.befores[change.id].add((tuple(change.before.items()), str(change.odd)))
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
        self._born += 1
        made = dict(self.template)
        live = LivePod(name, made, made, self.now - age, number=self._born)
        live.homeless = self.roomy not in (None, made)
        self.pods_by_name[name], self._made_from[name] = live, made

    def remove_pod(self) -> None:
        """The oldest, or of a StatefulSet the last."""
        if self.pods_by_name:
            self.pods_by_name.pop(
                max(self.pods_by_name) if self._is_stateful else next(iter(self.pods_by_name))
            )

    def replace_pod(self, name: str) -> None:
        """By one of another name, but in a StatefulSet."""
        del self.pods_by_name[name]
        self.add_pod(name if self._is_stateful else "")

    def resized_before(self, sizes: Sizes) -> None:
        """All pods have this size, and not their template's, by a change that is done."""
        for live in self.pods_by_name.values():
            live.spec = live.applied = dict(sizes)
        made = dict(self.template)
        applied = AppliedSizes(id="before", at=self.now - 3600, sizes=dict(sizes), template=made)
        self.annotations = encode_change_annotations(ChangeAnnotations(applied=applied), uid="uid-web")

    def roll(self) -> None:
        """Somebody deploys a new version: every pod is replaced at once."""
        for name in list(self.pods_by_name):
            self.replace_pod(name)

    def pass_time(self, seconds: int) -> None:
        """Kubelets give what is asked for, kill what needs more, and the controller replaces an old pod."""
        self.now += seconds
        halted = self._is_stateful and any(each.homeless for each in self.pods_by_name.values())
        if self.rolling and not halted and not self.paused:
            self.replace_pod(next(name for name, each in self.pods_by_name.items() if self._is_old(each)))
        for live in self.pods_by_name.values():
            live.homeless = live.homeless and self.roomy not in (None, live.spec)
            if not self.resizable and live.spec != live.applied:
                live.stubborn = live.stubborn or "Infeasible"
            has_room = self.resizable and not increases_requests(live.applied, live.spec)
            if not (live.stubborn or self.full) or live.homeless or has_room:
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
        return name not in (self.pods_by_name if self._is_stateful else self._made_from)

    def _is_old(self, live: LivePod) -> bool:
        return self._made_from[live.name] != self.template

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
            why = live.stubborn or self.full
            resize = PodResize("PodResizePending", why, "the node says so") if why else None
        seen = pod(
            live.name,
            sizes=live.spec,
            applied=live.applied,
            created=live.created,
            exits=live.exits,
            resize=resize,
            node="" if live.homeless else f"node-{live.number}",
            phase="Pending" if live.homeless else live.phase,
            ready=not live.homeless and not live.crashes,
            waiting="CrashLoopBackOff" if live.crashes else "",
        )
        owner = OwnerReference(self._resource.kind, "web", "uid-web")
        return msgspec.structs.replace(seen, uid=_uid(live), owner=owner)

    def _check_written_down(self, sizes: Sizes) -> None:
        """Nothing is touched but what the marks already tell of; only a revert may end between what was and what is."""
        marks = self.marks
        known: list[Sizes] = [marks.applied.sizes] if marks.applied else []
        is_known = False
        if change := marks.change:
            befores = [change.before, *change.odd.values()]
            known += [change.after, change.template, *befores]
            known += [merge_sizes(change.template, change.after)]
            is_back = change.phase is Phase.REVERTING
            is_known = is_back and any(is_between(sizes, before, change.after) for before in befores)
        assert is_known or dict(sizes) in known, f"{sizes} is given to a pod, and written down nowhere"

    def _write(self, what: str) -> "_Meddled":
        return _Meddled(self, what)


@dataclass
class _Meddled:
    world: World
    what: str

    def __enter__(self) -> None:
        self.world.meddle(f"before {self.what}")

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.world.written.append(self.what)
            self.world.meddle(f"after {self.what}")


def _uid(live: LivePod) -> str:
    return f"uid-{live.number}"


def lost(_: str = "") -> None:
    raise Unreachable("PATCH: the connection broke", sent=True)


def resources(cpu: int, memory: int) -> Resources:
    return Resources(cpu, None, memory * MIB, memory * MIB * 2)

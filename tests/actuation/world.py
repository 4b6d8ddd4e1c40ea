"""A small world behind the port: a workload, its controller and its kubelet, in which anything may fail.

Its API server is honest where it matters: a write based on an old version is a conflict, a lost answer has had its
effect, and a pod once gone is not found. Time passes only when told to.
"""

from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

import msgspec

from actuation.builders import MIB, NOW, pod, workload
from trimtab.actuation.change_annotations import (
    AppliedSizes,
    ChangeAnnotations,
    Phase,
    UnreadableAnnotations,
    decode_change_annotations,
    encode_change_annotations,
)
from trimtab.actuation.pod_options import OptionsAnnotation
from trimtab.actuation.resources import Sizes, increases_requests, is_between, merge_sizes
from trimtab.kube.errors import Conflict, Invalid, NotFound, Status, Unreachable
from trimtab.kube.kinds.heap_flags import HeapFlags
from trimtab.kube.kinds.pods import ContainerTermination, Pod, PodResize, Resources
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.kube.rest.resources import DEPLOYMENTS, STATEFUL_SETS, Resource
from trimtab.kube.runtime.event_correlator import EventType

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
    version: int = 1
    phase: str = "Running"
    stubborn: str = ""
    """Why its node does not give it more than it has; what takes no more room it gives."""
    crashes: bool = False
    """Whether it waits to be started again at this very moment."""
    homeless: bool = False
    """Whether no node has room for it."""
    number: int = 0
    """Which of all pods that ever were it is."""


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
        self.version = 1
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
        self._resource, self._update = resource, update
        self._born = 0
        self._made_from: dict[str, Sizes] = {}
        for _ in range(replicas):
            self.add_pod(age=86_400)

    @property
    def marks(self) -> ChangeAnnotations:
        marks = decode_change_annotations(self.annotations, uid="uid-web")
        assert not isinstance(marks, UnreadableAnnotations)
        return marks

    # The port

    async def get_workload(self, key: WorkloadKey) -> Workload:
        return workload(
            resource=self._resource,
            template=self.template,
            annotations=self.annotations,
            replicas=self.replicas,
            update=self._update,
            rolling=self.rolling,
            paused=self.paused,
            version=self.version,
            heap_flags=self.heaps,
        )

    async def list_pods(self, workload: Workload | None = None) -> Sequence[Pod]:
        return [self._seen(each) for each in self.pods_by_name.values()]

    async def resize(self, pod: Pod, sizes: Sizes) -> None:
        with self._write("resize"):
            live = self.pods_by_name.get(pod.name)
            if live is None or pod.uid != _uid(live):
                raise NotFound(Status(message="pod not found", code=404))
            if pod.version != live.version:
                raise Conflict(Status(message="the object has been modified", code=409))
            wanted = merge_sizes(live.spec, sizes)
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
                live.version += 1

    async def evict(self, pod: Pod) -> None:
        with self._write("evict"):
            live = self.pods_by_name.get(pod.name)
            if live is None or pod.uid != _uid(live):
                raise NotFound(Status(message="pod not found", code=404))
            if pod.version != live.version:
                raise Conflict(Status(message="the object has been modified", code=409))
            self.replace_pod(pod.name)

    async def patch_template(self, workload: Workload, sizes: Sizes, *, take_ownership: bool) -> None:
        with self._write("patch_template"):
            if workload.version != self.version:
                raise Conflict(Status(message="the object has been modified", code=409))
            self._check_written_down(sizes)
            self.template = merge_sizes(self.template, sizes)
            self.version += 1

    async def patch_options(self, workload: Workload, annotation: OptionsAnnotation) -> None:
        raise AssertionError("sizing never chooses options")

    async def scale(self, workload: Workload, replicas: int) -> None:
        raise AssertionError("sizing never scales")

    async def annotate(self, workload: Workload, annotations: Mapping[str, str]) -> None:
        with self._write("annotate"):
            if workload.version != self.version:
                raise Conflict(Status(message="the object has been modified", code=409))
            self.annotations = dict(annotations)
            self.version += 1
            if change := self.marks.change:
                self.befores[change.id].add((tuple(change.before.items()), str(change.odd)))

    def emit(self, workload: Workload, *, type: EventType, reason: str, message: str) -> None:  # noqa: A002 - the port's word
        self.events.append((type, reason, message))

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
        self.version += 1

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
            version=live.version,
        )
        return msgspec.structs.replace(seen, uid=_uid(live))

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

"""The simulated cluster behind the port that loops act by: says yes and no as an API server does.

A pod or a workload that has changed since it was read is a conflict; a pod's class cannot change, nor its requests go
beyond its limits, in place; a budget blocks evictions. Nobody else owns fields of a template here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from trimtab.actuation.kube_cluster import MARKS_MANAGER
from trimtab.actuation.pod_options import MANAGER as OPTIONS_MANAGER
from trimtab.actuation.pod_options import OPTIONS, OptionsMark
from trimtab.actuation.resources import Sizes, joined, sizes_of
from trimtab.kube.errors import Conflict, DisruptionBlocked, Invalid, NotFound, Status
from trimtab.kube.kinds.pods import Container, Pod, Resize, Resources
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.kube.runtime.event_correlator import EventType
from trimtab.lab.simulator.kubelet import DECIDES_IN, IN_PROGRESS
from trimtab.lab.simulator.objects import SimulatedPod, SimulatedWorkload
from trimtab.lab.simulator.physics import NOWHERE
from trimtab.lab.simulator.world import World
from trimtab.sizing.qos import qos_class


class SimulatedCluster:
    """Implements `trimtab.actuation.port.Cluster` on a world; a pod is also found by how it was read."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def workload(self, key: WorkloadKey) -> Workload | None:
        found = self._world.workloads.get(key)
        return found.record() if found else None

    async def pods(self, workload: Workload) -> Sequence[Pod]:
        return [pod.record(self._world.node_name(pod)) for pod in self._known(workload.key).pods.values()]

    async def resize(self, pod: Pod, sizes: Sizes) -> None:
        found = self._pod(pod)
        if found.version != pod.version:
            raise Conflict(_said("the object has been modified; read it again", "Conflict", Conflict.code))
        wanted = _sized(found.containers, sizes)
        _check(found.containers, wanted)
        if wanted == found.containers:
            return
        found.containers = wanted
        if found.node == NOWHERE:
            self._world.apply(found)  # there is no kubelet to ask yet
            return
        found.resize = Resize(IN_PROGRESS, "", "")
        found.decides = self._world.time + DECIDES_IN
        self._world.due.put(found.uid, found.decides)
        self._world.note(found)

    async def evict(self, pod: Pod) -> None:
        found = self._pod(pod)
        workload, budget = found.workload, found.workload.spec.budget
        if budget is not None and found.ready and workload.replicas - workload.ready >= budget:
            text = "Cannot evict pod as it would violate the pod's disruption budget."
            raise DisruptionBlocked(_said(text, "TooManyRequests", DisruptionBlocked.code), retry_after=10.0)
        self._world.delete(found)
        self._world.settle(self._world.time)

    async def scale(self, workload: Workload, replicas: int) -> None:
        if self._known(workload.key).replicas != workload.replicas:
            raise Conflict(_said("its replicas have changed; read it again", "Conflict", Conflict.code))
        self._world.scale(workload.key, replicas)
        self._world.settle(self._world.time)

    async def patch_template(self, workload: Workload, sizes: Sizes, *, take_ownership: bool) -> None:
        del take_ownership  # there is nobody to take it from
        found = self._known(workload.key)
        wanted = _sized(found.containers, sizes)
        if wanted == found.containers:
            return
        found.containers = wanted
        found.revision += 1
        found.generation += 1
        self._world.look_at(found)
        self._world.settle(self._world.time)

    async def patch_options(self, workload: Workload, mark: OptionsMark) -> None:
        """Pods are replaced for them, and fare no better or worse: physics here knows neither cache nor power."""
        found = self._known(workload.key)
        found.annotations[OPTIONS_MANAGER] = {OPTIONS: mark.written()}
        found.revision += 1
        found.generation += 1
        self._world.look_at(found)
        self._world.settle(self._world.time)

    async def annotate(self, workload: Workload, annotations: Mapping[str, str]) -> None:
        found = self._known(workload.key)
        if found.version != workload.version:
            raise Conflict(_said("the object has been modified; read it again", "Conflict", Conflict.code))
        found.annotations[MARKS_MANAGER] = dict(annotations)
        self._world.note(found)

    def emit(
        self,
        workload: Workload,
        *,
        type: EventType,  # noqa: A002 - Kubernetes' own word for it
        reason: str,
        message: str,
    ) -> None:
        self._world.tell(self._known(workload.key), "", type, reason, message)

    def _known(self, key: WorkloadKey) -> SimulatedWorkload:
        found = self._world.workloads.get(key)
        if found is None:
            raise NotFound(_said(f"{key} not found", "NotFound", NotFound.code))
        return found

    def _pod(self, pod: Pod) -> SimulatedPod:
        found = self._world.pods.get(pod.uid)
        if found is None:
            raise NotFound(_said(f'pods "{pod.name}" not found', "NotFound", NotFound.code))
        return found


def _sized(containers: Sequence[Container], sizes: Sizes) -> tuple[Container, ...]:
    wanted = joined(sizes_of(containers), sizes)
    return tuple(msgspec.structs.replace(each, resources=wanted[each.name]) for each in containers)


def _check(before: Sequence[Container], after: Sequence[Container]) -> None:
    """What the API server refuses of a resize."""
    for old, new in zip(before, after, strict=True):
        if _beyond(new.resources):
            raise _refusal(f"{new.name}: must be less than or equal to its limit")
        if _fields(old.resources) - _fields(new.resources):
            raise _refusal(f"{new.name}: resource limits and requests cannot be removed")
    if qos_class(each.resources for each in before) != qos_class(each.resources for each in after):
        raise _refusal("Pod QOS Class may not change as a result of resizing")


def _beyond(has: Resources) -> bool:
    pairs = ((has.cpu_request, has.cpu_limit), (has.memory_request, has.memory_limit))
    return any(request is not None and limit is not None and request > limit for request, limit in pairs)


def _fields(has: Resources) -> set[str]:
    return {name for name, value in msgspec.structs.asdict(has).items() if value is not None}


def _refusal(message: str) -> Invalid:
    return Invalid(_said(message, "Invalid", Invalid.code))


def _said(message: str, reason: str, code: int) -> Status:
    return Status(message=message, reason=reason, code=code)

"""The simulated cluster behind the port of actuation: it accepts and rejects requests as an API server does.

A write to a pod or a workload that has changed since it was read is a conflict. A resize cannot change a pod's QoS class
or raise requests above limits. ResourceQuotas and LimitRanges are enforced, and a disruption budget blocks evictions. No
other manager owns fields of a template.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from trimtab.actuation.pod_options import OPTIONS_ANNOTATION, OPTIONS_MANAGER, OptionsAnnotation
from trimtab.actuation.port import ANNOTATIONS_MANAGER
from trimtab.actuation.resources import Sizes
from trimtab.kube.errors import Conflict, DisruptionBlocked, Invalid, NotFound, Status
from trimtab.kube.kinds.pod_requests import qos_class
from trimtab.kube.kinds.pods import Container, Pod, PodResize, Resources
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.kube.runtime.event_correlator import EventType
from trimtab.lab.simulator.kubelet import IN_PROGRESS, RESIZE_DELAY
from trimtab.lab.simulator.objects import SimulatedPod, SimulatedWorkload, with_sizes
from trimtab.lab.simulator.physics import UNSCHEDULED
from trimtab.lab.simulator.world import SimulatedWorld


class SimulatedCluster:
    """Implements `trimtab.actuation.port.ClusterPort` on a simulated world."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world

    async def get_workload(self, key: WorkloadKey) -> Workload | None:
        found = self._world.workloads.get(key)
        return found.to_record() if found else None

    async def list_pods(self, workload: Workload) -> Sequence[Pod]:
        return [
            pod.to_record(self._world.node_name(pod))
            for pod in self._get_workload(workload.key).pods.values()
        ]

    async def resize(self, pod: Pod, sizes: Sizes) -> Pod:
        found = self._get_pod(pod)
        _check_version(found.version, pod)
        wanted = with_sizes(found.containers, sizes)
        _validate_resize(found.containers, wanted)
        self._world.check_pod(found.namespace, found.containers, wanted)
        if wanted != found.containers:
            found.containers = wanted
            if found.node == UNSCHEDULED:
                self._world.apply_resize(found)  # no kubelet has the pod yet, so none could defer the resize
            else:
                found.resize = PodResize(IN_PROGRESS, "", "")
                found.resize_due = self._world.control_time + RESIZE_DELAY
                self._world.due_times.put(found.uid, found.resize_due)
                self._world.mark_changed(found)
        return found.to_record(self._world.node_name(found))

    async def evict(self, pod: Pod) -> Pod:
        evicted = msgspec.structs.replace(pod, deleting=True, version=pod.version + 1)
        found = self._world.pods.get(pod.uid)
        if found is None:
            return evicted  # evicting a pod twice has the same effect as once, as on a real cluster
        _check_version(found.version, pod)
        workload, budget = found.workload, found.workload.spec.max_unavailable
        if budget is not None and found.ready and workload.replicas - workload.ready >= budget:
            text = "Cannot evict pod as it would violate the pod's disruption budget."
            raise DisruptionBlocked(
                _build_status(text, "TooManyRequests", DisruptionBlocked.code), retry_after=10.0
            )
        self._world.delete_pod(found)
        self._world.process_due(self._world.control_time)
        return evicted

    async def scale(self, workload: Workload, replicas: int) -> Workload:
        found = self._get_workload(workload.key)
        _check_version(found.version, workload)
        self._world.scale_workload(workload.key, replicas)
        self._world.process_due(self._world.control_time)
        return found.to_record()

    async def patch_template(self, workload: Workload, sizes: Sizes, *, take_ownership: bool) -> Workload:
        del take_ownership  # no other manager owns fields here
        found = self._get_workload(workload.key)
        _check_version(found.version, workload)
        wanted = with_sizes(found.containers, sizes)
        if wanted != found.containers:
            if workload.kind == "Job":
                raise _build_invalid_error("spec.template: field is immutable")
            found.containers = wanted
            found.start_revision()
            found.generation += 1
            self._world.enqueue(found)
            self._world.process_due(self._world.control_time)
        return found.to_record()

    async def patch_options(self, workload: Workload, annotation: OptionsAnnotation) -> Workload:
        """Replace the pods with the new options, which change nothing else: caches and power are not simulated."""
        found = self._get_workload(workload.key)
        _check_version(found.version, workload)
        found.annotations[OPTIONS_MANAGER] = {OPTIONS_ANNOTATION: annotation.encode()}
        found.start_revision()
        found.generation += 1
        self._world.enqueue(found)
        self._world.process_due(self._world.control_time)
        return found.to_record()

    async def annotate(
        self, workload: Workload, annotations: Mapping[str, str], *, manager: str = ANNOTATIONS_MANAGER
    ) -> Workload:
        found = self._get_workload(workload.key)
        _check_version(found.version, workload)
        found.annotations[manager] = dict(annotations)
        self._world.mark_changed(found)
        return found.to_record()

    def emit(
        self,
        workload: Workload,
        *,
        type: EventType,  # noqa: A002 - Kubernetes' own word for it
        reason: str,
        message: str,
    ) -> None:
        self._world.record_event(self._get_workload(workload.key), "", type, reason, message)

    def _get_workload(self, key: WorkloadKey) -> SimulatedWorkload:
        found = self._world.workloads.get(key)
        if found is None:
            raise NotFound(_build_status(f"{key} not found", "NotFound", NotFound.code))
        return found

    def _get_pod(self, pod: Pod) -> SimulatedPod:
        found = self._world.pods.get(pod.uid)
        if found is None:
            raise NotFound(_build_status(f'pods "{pod.name}" not found', "NotFound", NotFound.code))
        return found


def _check_version(version: int, record: Pod | Workload) -> None:
    """Reject a write that was decided on a record of another version."""
    if record.version != version:
        words = "the object has been modified; read it again"
        raise Conflict(_build_status(words, "Conflict", Conflict.code))


def _validate_resize(before: Sequence[Container], after: Sequence[Container]) -> None:
    """Reject the resizes that the API server would reject."""
    for old, new in zip(before, after, strict=True):
        if _exceeds_limit(new.resources):
            raise _build_invalid_error(f"{new.name}: must be less than or equal to its limit")
        if _list_set_fields(old.resources) - _list_set_fields(new.resources):
            raise _build_invalid_error(f"{new.name}: resource limits and requests cannot be removed")
    if qos_class(each.resources for each in before) != qos_class(each.resources for each in after):
        raise _build_invalid_error("Pod QOS Class may not change as a result of resizing")


def _exceeds_limit(has: Resources) -> bool:
    return any(
        request is not None and limit is not None and request > limit
        for request, limit in (has.cpu, has.memory)
    )


def _list_set_fields(has: Resources) -> set[str]:
    return {name for name, value in msgspec.structs.asdict(has).items() if value is not None}


def _build_invalid_error(message: str) -> Invalid:
    return Invalid(_build_status(message, "Invalid", Invalid.code))


def _build_status(message: str, reason: str, code: int) -> Status:
    return Status(message=message, reason=reason, code=code)

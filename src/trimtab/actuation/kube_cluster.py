"""The port to a real cluster: requests to its API server.

It uses three field managers, because server-side apply removes what a manager no longer names: `trimtab.io`
owns the sizes in a pod template, where GitOps tools show the owner of a field; a second one owns our annotations; a third one owns the options of pods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from trimtab.actuation.pod_options import OPTIONS_MANAGER, OptionsAnnotation, build_options_patch
from trimtab.actuation.port import ANNOTATIONS_MANAGER
from trimtab.actuation.resources import (
    Sizes,
    build_template_patch,
    container_sizes,
    format_sizes,
    list_removed,
    split_by_role,
)
from trimtab.kube.cache.list_pages import list_records
from trimtab.kube.cache.projection import Projection, ProjectionCache, R, parse_resource_version
from trimtab.kube.errors import FieldManagerConflict, Invalid, NotFound, Status
from trimtab.kube.kinds.metadata import metadata_projection
from trimtab.kube.kinds.pods import Container, Pod, pod_projection
from trimtab.kube.kinds.workloads import BUILT_IN, Workload, WorkloadKey, qualify_kind, workload_projection
from trimtab.kube.rest.client import Client, Object, PatchType
from trimtab.kube.rest.resources import JOBS, PODS, REPLICA_SETS, Resource
from trimtab.kube.runtime.event_correlator import EventType, ObjectReference
from trimtab.kube.runtime.event_recorder import EventRecorder


class KubeCluster:
    """Reads and changes the workloads of one API server. `kinds` lists the resources that hold workloads."""

    def __init__(
        self,
        client: Client,
        events: EventRecorder,
        *,
        kinds: Callable[[], Iterable[Resource]] = lambda: BUILT_IN,
    ) -> None:
        self._client = client
        self._events = events
        self._projection_cache = ProjectionCache()
        self._kinds = kinds
        self._projections: dict[Resource, Projection[Workload]] = {}
        self._pod_projection = pod_projection(self._projection_cache)
        self._metadata_projection = metadata_projection(self._projection_cache)

    async def get_workload(self, key: WorkloadKey) -> Workload | None:
        # The last resource of a kind wins: a newer API version replaces an older one.
        known = {qualify_kind(each.kind, each.group): each for each in self._kinds()}
        if key.kind not in known:
            return None
        projection = self._projection(known[key.kind])
        try:
            found = await self._client.get(
                known[key.kind], key.name, namespace=key.namespace, into=projection.wire_type
            )
        except NotFound:
            return None
        return projection.project(found)

    async def list_pods(self, workload: Workload) -> Sequence[Pod]:
        """List the pods that match the workload's selector and belong to it, directly or through a ReplicaSet
        or Job.
        """
        owners = {workload.uid}
        between = JOBS if workload.kind == "CronJob" else REPLICA_SETS
        if workload.kind not in {"StatefulSet", "DaemonSet", "ReplicaSet", "Job"}:
            owners |= {
                each.uid
                for each in await self._list(between, self._metadata_projection, workload)
                if each.owner and each.owner.uid == workload.uid
            }
        found = await self._list(PODS, self._pod_projection, workload)
        return [pod for pod in found if pod.owner and pod.owner.uid in owners]

    async def resize(self, pod: Pod, sizes: Sizes) -> Pod:
        main, sidecars = split_by_role(pod.containers, sizes)
        answer = await self._client.resize(
            pod.name, main, sidecars=sidecars, namespace=pod.namespace, version=str(pod.version)
        )
        resized = _parse(self._pod_projection, answer)
        verify_sizes(sizes, resized.containers, subject="the pod")
        return resized

    async def evict(self, pod: Pod) -> Pod:
        # With the version, a pod that changed since the decision is not evicted: it may have got its size meanwhile.
        await self._client.evict(pod.name, namespace=pod.namespace, uid=pod.uid, version=str(pod.version))
        # The response has no pod. The deletion is the next change after the version that was evicted.
        return msgspec.structs.replace(pod, deleting=True, version=pod.version + 1)

    async def patch_template(self, workload: Workload, sizes: Sizes, *, take_ownership: bool) -> Workload:
        current, projection = container_sizes(workload.containers), self._projection(workload.resource)
        # Server-side apply removes a field only if nobody else owns it, and whoever set a limit co-owns it.
        removes = any(list_removed(current[name], wanted) for name, wanted in sizes.items())
        body = {"metadata": _identify(workload)} | build_template_patch(workload, sizes)
        if removes and take_ownership:
            await self._client.patch(
                workload.resource,
                workload.name,
                build_template_patch(workload, sizes, removing_from=current)
                | {"metadata": {"resourceVersion": str(workload.version)}},
                type=PatchType.STRATEGIC,
                namespace=workload.namespace,
            )
            # The patch was the write that had to be based on the record. Its controller writes a status in the next
            # moment: with a version, the apply would fail and leave the fields to the manager of the patch.
            del body["metadata"]["resourceVersion"]
        if removes and not take_ownership:
            # A dry run comes first: applied in part, the template would have neither the old sizes nor the
            # new ones.
            answer = await self._client.apply(workload.resource, body, dry_run=True)
            found = container_sizes(_parse(projection, answer).containers)
            if any(found.get(name) != wanted for name, wanted in sizes.items()):
                words = (
                    f"the template keeps {format_sizes(found)}: another field manager owns these fields; change them there, "
                    "or set updateStrategy.takeOwnership: true"
                )
                raise FieldManagerConflict(
                    Status(message=words, reason="Conflict", code=FieldManagerConflict.code)
                )
        answer = await self._client.apply(workload.resource, body, force=take_ownership)
        patched = _parse(projection, answer)
        verify_sizes(sizes, patched.containers, subject="the template")
        return patched

    async def patch_options(self, workload: Workload, annotation: OptionsAnnotation) -> Workload:
        body = build_options_patch(annotation)
        body["metadata"] |= _identify(workload)
        answer = await self._client.apply(workload.resource, body, manager=OPTIONS_MANAGER)
        return _parse(self._projection(workload.resource), answer)

    async def scale(self, workload: Workload, replicas: int) -> Workload:
        answer = await self._client.scale(
            workload.resource,
            workload.name,
            replicas,
            namespace=workload.namespace,
            version=str(workload.version),
        )
        # The response is a Scale, with the version of the workload. Nothing else of its spec has changed since.
        version = parse_resource_version(answer["metadata"]["resourceVersion"])
        return msgspec.structs.replace(workload, replicas=replicas, version=version)

    async def annotate(
        self, workload: Workload, annotations: Mapping[str, str], *, manager: str = ANNOTATIONS_MANAGER
    ) -> Workload:
        body = {"metadata": _identify(workload) | {"annotations": dict(annotations)}}
        # Forced, because nobody else may own these annotations.
        answer = await self._client.apply(workload.resource, body, force=True, manager=manager)
        return _parse(self._projection(workload.resource), answer)

    def emit(
        self,
        workload: Workload,
        *,
        type: EventType,  # noqa: A002 - Kubernetes' own word for it
        reason: str,
        message: str,
    ) -> None:
        about = ObjectReference(
            api_version=workload.resource.api_version,
            kind=workload.kind,
            name=workload.name,
            namespace=workload.namespace,
            uid=workload.uid,
        )
        self._events.record(about, type=type, reason=reason, message=message, action="Resize")

    def _projection(self, resource: Resource) -> Projection[Workload]:
        if resource not in self._projections:
            self._projections[resource] = workload_projection(resource, self._projection_cache)
        return self._projections[resource]

    async def _list(self, resource: Resource, projection: Projection[R], workload: Workload) -> list[R]:
        found = list_records(
            self._client, resource, projection, namespace=workload.namespace, labels=workload.selector
        )
        return [record async for record in found]


class ReadRecords:
    """The records of workloads and their pods as last read, for a program that runs no informers."""

    def __init__(self, cluster: KubeCluster) -> None:
        self._cluster = cluster
        self._workloads: dict[WorkloadKey, Workload] = {}
        self._pods: dict[WorkloadKey, dict[str, Pod]] = {}

    async def read(self, key: WorkloadKey) -> None:
        """Read a workload and its pods."""
        workload = await self._cluster.get_workload(key)
        if workload is None:
            self._workloads.pop(key, None)
            return
        self._workloads[key] = workload
        self._pods[key] = {pod.uid: pod for pod in await self._cluster.list_pods(workload)}

    def get(self, key: WorkloadKey) -> Workload | None:
        return self._workloads.get(key)

    def list_pods(self, workload: Workload) -> Sequence[Pod]:
        return list(self._pods[workload.key].values())

    def update(self, record: Workload | Pod) -> None:
        if isinstance(record, Workload):
            self._workloads[record.key] = record
            return
        for pods in self._pods.values():
            if record.uid in pods:
                pods[record.uid] = record

    def outdated_reason(self, workload: Workload) -> str:
        del workload
        return ""


def _identify(workload: Workload) -> Object:
    """Return the metadata of an apply to this version of a workload."""
    return {
        "name": workload.name,
        "namespace": workload.namespace,
        # Applying to a deleted object would create it again.
        "uid": workload.uid,
        # What somebody else wrote since the decision would be overwritten.
        "resourceVersion": str(workload.version),
    }


def _parse(projection: Projection[R], answer: Object) -> R:
    return projection.project(msgspec.json.decode(msgspec.json.encode(answer), type=projection.wire_type))


def verify_sizes(sizes: Sizes, containers: Iterable[Container], *, subject: str) -> None:
    """Raise an error if the server stored other sizes: repeating the request would have the same result
    forever.
    """
    found = container_sizes(containers)
    if any(found[name] != wanted for name, wanted in sizes.items() if name in found):
        words = (
            f"{subject} got {format_sizes(found)} instead of {format_sizes(sizes)}: an admission webhook or another "
            "controller changes the size when it is written; find and configure it"
        )
        raise Invalid(Status(message=words, reason="Invalid", code=Invalid.code))

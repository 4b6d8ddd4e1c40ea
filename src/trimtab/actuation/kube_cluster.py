"""The real cluster behind the port: requests to its API server, by the client.

Three field managers, for server-side apply gives up what a manager no longer names: `trimtab.io` owns the sizes in a
pod template, where GitOps tools look for who did what, `trimtab.io-marks` our annotations, and `trimtab.io-options` the
options of pods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from trimtab.actuation.pod_options import MANAGER as OPTIONS_MANAGER
from trimtab.actuation.pod_options import OptionsMark, options_patch
from trimtab.actuation.resources import Sizes, said, sizes_of
from trimtab.actuation.template_patch import by_role, removed, template_patch
from trimtab.kube.cache.projection import Folding, R, Shape
from trimtab.kube.errors import FieldOwned, Invalid, NotFound, Status
from trimtab.kube.kinds.metadata import metadata
from trimtab.kube.kinds.pods import Container, Pod, pods
from trimtab.kube.kinds.workloads import BUILT_IN, Workload, WorkloadKey, kind_name, workloads
from trimtab.kube.rest.client import Client, Object, PatchType
from trimtab.kube.rest.list_pages import records
from trimtab.kube.rest.resources import JOBS, PODS, REPLICA_SETS, Resource
from trimtab.kube.runtime.event_correlator import EventType, ObjectReference
from trimtab.kube.runtime.event_recorder import EventRecorder

MARKS_MANAGER = "trimtab.io-marks"


class LiveCluster:
    """One API server, as applying sees it; `kinds` tells which resources hold workloads by now."""

    def __init__(
        self,
        client: Client,
        events: EventRecorder,
        *,
        kinds: Callable[[], Iterable[Resource]] = lambda: BUILT_IN,
    ) -> None:
        self._client = client
        self._events = events
        self._folding = Folding()
        self._kinds = kinds
        self._shapes: dict[Resource, Shape[Workload]] = {}
        self._pods = pods(self._folding)
        self._metadata = metadata(self._folding)

    async def workload(self, key: WorkloadKey) -> Workload | None:
        # The latest that was found of a kind: one of a newer version takes the place of another.
        known = {kind_name(each.kind, each.group): each for each in self._kinds()}
        if key.kind not in known:
            return None
        shape = self._shape(known[key.kind])
        try:
            found = await self._client.get(
                known[key.kind], key.name, namespace=key.namespace, into=shape.wire
            )
        except NotFound:
            return None
        return shape.fold(found)

    async def pods(self, workload: Workload) -> Sequence[Pod]:
        """By its selector, and of those the ones that it owns, be it through a ReplicaSet or a Job."""
        owners = {workload.uid}
        between = JOBS if workload.kind == "CronJob" else REPLICA_SETS
        if workload.kind not in {"StatefulSet", "DaemonSet", "ReplicaSet", "Job"}:
            owners |= {
                each.uid
                for each in await self._list(between, self._metadata, workload)
                if each.owner and each.owner.uid == workload.uid
            }
        found = await self._list(PODS, self._pods, workload)
        return [pod for pod in found if pod.owner and pod.owner.uid in owners]

    async def resize(self, pod: Pod, sizes: Sizes) -> None:
        main, sidecars = by_role(pod.containers, sizes)
        answer = await self._client.resize(
            pod.name, main, sidecars=sidecars, namespace=pod.namespace, version=str(pod.version)
        )
        _demand(sizes, _read(self._pods, answer).containers, of="the pod")

    async def evict(self, pod: Pod) -> None:
        await self._client.evict(pod.name, namespace=pod.namespace, uid=pod.uid)

    async def patch_template(self, workload: Workload, sizes: Sizes, *, take_ownership: bool) -> None:
        current, shape = sizes_of(workload.containers), self._shape(workload.resource)
        # To apply removes only what nobody else owns; whoever set a limit co-owns it.
        removes = any(removed(current[name], wanted) for name, wanted in sizes.items())
        if removes and take_ownership:
            await self._client.patch(
                workload.resource,
                workload.name,
                template_patch(workload, sizes, removing_from=current),
                type=PatchType.STRATEGIC,
                namespace=workload.namespace,
            )
        # With its uid, since to apply to what is gone would make it anew.
        named = {"name": workload.name, "namespace": workload.namespace, "uid": workload.uid}
        body = {"metadata": named} | template_patch(workload, sizes)
        if removes and not take_ownership:
            # Asked first: applied in part, it would be neither what was nor what is wanted.
            answer = await self._client.apply(workload.resource, body, dry_run=True)
            found = sizes_of(_read(shape, answer).containers)
            if any(found.get(name) != wanted for name, wanted in sizes.items()):
                words = f"the template keeps {said(found)}: another field manager owns it, see takeOwnership"
                raise FieldOwned(Status(message=words, reason="Conflict", code=FieldOwned.code))
        answer = await self._client.apply(workload.resource, body, force=take_ownership)
        _demand(sizes, _read(shape, answer).containers, of="the template")

    async def patch_options(self, workload: Workload, mark: OptionsMark) -> None:
        body = options_patch(mark)
        # With its uid, since to apply to what is gone would make it anew.
        body["metadata"] |= {"name": workload.name, "namespace": workload.namespace, "uid": workload.uid}
        await self._client.apply(workload.resource, body, manager=OPTIONS_MANAGER)

    async def scale(self, workload: Workload, replicas: int) -> None:
        await self._client.scale(
            workload.resource,
            workload.name,
            replicas,
            namespace=workload.namespace,
            version=str(workload.version),
        )

    async def annotate(self, workload: Workload, annotations: Mapping[str, str]) -> None:
        body = {
            "metadata": {
                "name": workload.name,
                "namespace": workload.namespace,
                "uid": workload.uid,
                "resourceVersion": str(workload.version),
                "annotations": dict(annotations),
            }
        }
        # By force: nobody else has a say in what these annotations hold.
        await self._client.apply(workload.resource, body, force=True, manager=MARKS_MANAGER)

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

    def _shape(self, resource: Resource) -> Shape[Workload]:
        if resource not in self._shapes:
            self._shapes[resource] = workloads(resource, self._folding)
        return self._shapes[resource]

    async def _list(self, resource: Resource, shape: Shape[R], workload: Workload) -> list[R]:
        found = records(self._client, resource, shape, namespace=workload.namespace, labels=workload.selector)
        return [record async for record in found]


def _read(shape: Shape[R], answer: Object) -> R:
    return shape.fold(msgspec.json.decode(msgspec.json.encode(answer), type=shape.wire))


def _demand(sizes: Sizes, containers: Iterable[Container], *, of: str) -> None:
    """Take a yes for a no where something else was written: asked again, the server would say so for ever."""
    found = sizes_of(containers)
    if any(found[name] != wanted for name, wanted in sizes.items() if name in found):
        words = f"{of} is given {said(found)} instead: something sets it as it is written, such as an admission webhook"
        raise Invalid(Status(message=words, reason="Invalid", code=Invalid.code))

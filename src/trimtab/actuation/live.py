"""The real cluster behind the port: requests to its API server, by the client.

Two field managers, for server-side apply gives up what a manager no longer names: `trimtab.io` owns the sizes in a
pod template, where GitOps tools look for who did what, and `trimtab.io-marks` our annotations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, TypeVar

import msgspec

from trimtab.actuation.sizes import Sizes, sizes_of, written
from trimtab.kube.client import Client, Object
from trimtab.kube.errors import NotFound
from trimtab.kube.events import EventRecorder
from trimtab.kube.ledger import EventType, ObjectReference
from trimtab.kube.metadata import metadata
from trimtab.kube.pods import Container, Pod, Resources, pods
from trimtab.kube.records import Folding, R, Shape
from trimtab.kube.resources import JOBS, PODS, REPLICA_SETS, Resource
from trimtab.kube.workloads import BUILT_IN, Workload, WorkloadKey, kind_name, workloads

W = TypeVar("W")

MARKS_MANAGER = "trimtab.io-marks"


class _Page(msgspec.Struct, Generic[W], frozen=True):
    items: tuple[W, ...]


class LiveCluster:
    """One API server, as applying sees it; `kinds` are the resources that hold workloads."""

    def __init__(
        self, client: Client, events: EventRecorder, *, kinds: Iterable[Resource] = BUILT_IN
    ) -> None:
        self._client = client
        self._events = events
        self._folding = Folding()
        self._kinds = {kind_name(each.kind, each.group): each for each in kinds}
        self._shapes = {kind: workloads(each, self._folding) for kind, each in self._kinds.items()}
        self._pods = pods(self._folding)
        self._metadata = metadata(self._folding)

    async def workload(self, key: WorkloadKey) -> Workload | None:
        shape = self._shapes[key.kind]
        try:
            found = await self._client.get(
                self._kinds[key.kind], key.name, namespace=key.namespace, into=shape.wire
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
        main, sidecars = _by_role(pod.containers, sizes)
        await self._client.resize(pod.name, main, sidecars=sidecars, namespace=pod.namespace)

    async def evict(self, pod: Pod) -> None:
        await self._client.evict(pod.name, namespace=pod.namespace, uid=pod.uid)

    async def patch_template(self, workload: Workload, sizes: Sizes, *, take_ownership: bool) -> None:
        current = sizes_of(workload.containers)
        if take_ownership and any(_removes(current[name], wanted) for name, wanted in sizes.items()):
            # Only what we own goes when we no longer name it, so we name it once as it is: that changes no pod.
            await self._apply_template(workload, current, force=True)
        await self._apply_template(workload, sizes, force=take_ownership)

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

    async def _apply_template(self, workload: Workload, sizes: Sizes, *, force: bool) -> None:
        main, sidecars = _by_role(workload.containers, sizes)
        containers = {"containers": main} | ({"initContainers": sidecars} if sidecars else {})
        spec: Object = {"template": {"spec": containers}}
        if workload.kind == "CronJob":
            spec = {"jobTemplate": {"spec": spec}}
        named = {"name": workload.name, "namespace": workload.namespace}
        await self._client.apply(workload.resource, {"metadata": named, "spec": spec}, force=force)

    async def _list(self, resource: Resource, shape: Shape[R], workload: Workload) -> list[R]:
        found: list[R] = []
        page_of = _Page[shape.wire]  # type: ignore[name-defined]
        async for raw in self._client.pages(
            resource, namespace=workload.namespace, labels=workload.selector, accept=shape.accept_list
        ):
            found += map(shape.fold, msgspec.json.decode(raw, type=page_of).items)
        return found


def _by_role(containers: Iterable[Container], sizes: Sizes) -> tuple[list[Object], list[Object]]:
    """Main containers and sidecars, which are kept in two lists."""
    found: dict[str, list[Object]] = {"main": [], "sidecar": [], "init": []}
    for each in containers:
        if each.name in sizes:
            found[each.role].append({"name": each.name, "resources": written(sizes[each.name])})
    return found["main"], found["sidecar"]


def _removes(current: Resources, wanted: Resources) -> bool:
    return any(
        getattr(current, what) is not None and getattr(wanted, what) is None
        for what in Resources.__struct_fields__
    )

"""Faults of the API server: failed requests by verb, lost responses, admission, quotas; and a record of every write.

`FaultyCluster`, `FaultyObjects` and `FaultyLeases` implement the ports of one process on the shared simulated cluster.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from trimtab.actuation.change_annotations import (
    RECOMMENDATION_ANNOTATION,
    ChangeAnnotations,
    decode_change_annotations,
    read_change_annotations,
)
from trimtab.actuation.kube_cluster import verify_sizes
from trimtab.actuation.pod_options import OptionsAnnotation
from trimtab.actuation.port import ANNOTATIONS_MANAGER, ClusterPort
from trimtab.actuation.resources import Sizes, container_sizes, merge_sizes
from trimtab.api.quantity import MIB
from trimtab.kube.errors import ApiError, FieldManagerConflict, Status, TimedOut, error_from_status
from trimtab.kube.kinds.pods import Pod, Resources
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.kube.rest.capabilities import can_lower_memory_limits
from trimtab.kube.rest.client import FIELD_MANAGER, Object, PatchType
from trimtab.kube.rest.object_client import ObjectClient
from trimtab.kube.rest.resources import Resource
from trimtab.kube.runtime.event_correlator import EventType
from trimtab.kube.runtime.leader_election import LeaseClient
from trimtab.lab.faults.gate import ProcessGate
from trimtab.lab.faults.plan import Fault, FaultDetails, FaultInjector, FaultKind
from trimtab.lab.faults.records import EmittedEvent, Write
from trimtab.lab.faults.worlds import WorldSpec, draw_managed
from trimtab.lab.simulator.fake_cluster import SimulatedCluster
from trimtab.lab.simulator.world import SimulatedWorld
from trimtab.operator.wiring import ClusterFeatures

T = TypeVar("T")

VERBS = ("get", "list", "resize", "evict", "patch", "scale", "annotate", "status", "lease")
_WRITES = ("resize", "evict", "patch", "annotate", "status", "lease")
_CHANGES = ("resize", "annotate", "patch")
"""Calls of a change: `annotate` comes first."""
_CODES = {
    "api-bad-request": (400, "BadRequest", "the request is malformed"),
    "api-unauthorized": (401, "Unauthorized", "the token has expired"),
    "api-forbidden": (403, "Forbidden", 'User "trimtab" cannot do this in the namespace'),
    "api-not-found": (404, "NotFound", "the object was not found"),
    "api-conflict": (
        409,
        "Conflict",
        "the object has been modified; please apply your changes to the latest version",
    ),
    "api-gone": (410, "Expired", "the requested version was compacted away"),
    "api-invalid": (422, "Invalid", "the value is invalid"),
    "api-throttled": (429, "TooManyRequests", "too many requests; try again later"),
    "api-internal": (500, "InternalError", "an internal error occurred"),
    "api-unavailable": (503, "ServiceUnavailable", "the server is shutting down"),
}
_TIMEOUT_BEFORE, _TIMEOUT_AFTER = "api-timeout-before", "api-timeout-after"
_REFUSED, _MUTATED, _OWNED = "admission-refuses", "admission-mutates", "template-owned"
WEBHOOK_AWAY = "webhook-away"


def _draw_verb(rng: random.Random, world: WorldSpec) -> FaultDetails:
    del world
    verb = rng.choice(["", "resize", "resize", *VERBS])
    # An API server that answers nothing for hours is one case, single failures are another.
    return FaultDetails(target=verb, share=rng.choice([0.1, 0.3, 0.6, 1.0]))


def _draw_write(rng: random.Random, world: WorldSpec) -> FaultDetails:
    del world
    return FaultDetails(target=rng.choice(["resize", *_WRITES]), share=rng.choice([0.2, 0.5, 1.0]))


def _draw_workload(rng: random.Random, world: WorldSpec) -> FaultDetails:
    return FaultDetails(target=str(draw_managed(rng, world)), share=rng.choice([0.5, 1.0]))


KINDS = (
    *(
        FaultKind(
            name=name,
            sentence=f"The API server answers requests of one verb, or all, with {code} {reason}.",
            draw=_draw_verb,
            calls=_WRITES,
        )
        for name, (code, reason, _) in _CODES.items()
    ),
    FaultKind(
        name=_TIMEOUT_BEFORE,
        sentence="A request times out before it takes effect.",
        draw=_draw_verb,
        calls=_WRITES,
    ),
    FaultKind(
        name=_TIMEOUT_AFTER,
        sentence="A write takes effect, but its response is lost.",
        draw=_draw_write,
        weight=2.0,
        calls=_WRITES,
    ),
    FaultKind(
        name=_REFUSED,
        sentence="An admission webhook denies changes of one workload and its pods.",
        draw=_draw_workload,
        weight=1.5,
        calls=_CHANGES,
    ),
    FaultKind(
        name=_MUTATED,
        sentence="An admission webhook rounds the sizes of resized and new pods of one workload up to 64 MiB.",
        draw=_draw_workload,
        calls=_CHANGES,
    ),
    FaultKind(
        name=_OWNED,
        sentence="Another field manager owns the sizes in the template of a workload.",
        draw=_draw_workload,
        duration=(3600.0, 12 * 3600.0),
        weight=3.0,
        calls=("patch",),
    ),
    FaultKind(
        name=WEBHOOK_AWAY,
        sentence="The API server does not reach the operator's webhook for pods, and creates them as the template says.",
        duration=(3600.0, 24 * 3600.0),
        weight=2.0,
        calls=("annotate", "evict", "patch"),
    ),
)


class ApiFaults:
    """Carries out the requests of one process, with the faults of the API server."""

    def __init__(
        self, injector: FaultInjector, gate: ProcessGate, delays: random.Random | None = None
    ) -> None:
        """Create the faults of a process; `delays` draws which of several workers goes on first."""
        self.injector = injector
        self.gate = gate
        self._delays = delays
        self.requests = 0
        """The number of requests that were sent."""

    async def call(self, verb: str, target: str, request: Callable[[], Awaitable[T]]) -> T:
        """Carry out one request; faults and kills happen before or after its effect."""
        await self._let_others_run()
        self.gate.pass_through(verb)
        self.requests += 1
        self.injector.count_call(verb, target)
        for kind, (code, reason, message) in _CODES.items():
            if fault := self.injector.hit(kind, verb):
                self.injector.record(fault, f"{verb} {target}")
                raise _build_error(code, reason, message)
        if fault := self.injector.hit(_TIMEOUT_BEFORE, verb):
            self.injector.record(fault, f"{verb} {target}")
            raise TimedOut(f"{verb} {target}: no response within 30 s", sent=False)
        answer = await request()
        await self._let_others_run()
        if verb in _WRITES and (fault := self.injector.hit(_TIMEOUT_AFTER, verb)):
            self.injector.record(fault, f"{verb} {target}")
            raise TimedOut(f"{verb} {target}: no response within 30 s", sent=True)
        self.gate.pass_through(verb)
        return answer

    async def _let_others_run(self) -> None:
        if self._delays:
            for _ in range(self._delays.randrange(4)):
                await asyncio.sleep(0)


class FaultyCluster:
    """Implements `ClusterPort` for one process, and reports every write with the sizes before and after."""

    def __init__(
        self,
        inner: SimulatedCluster,
        world: SimulatedWorld,
        api: ApiFaults,
        *,
        features: ClusterFeatures,
        now: Callable[[], float],
        on_write: Callable[[Write], None],
        on_event: Callable[[EmittedEvent], None] = lambda _: None,
    ) -> None:
        self._inner: ClusterPort = inner
        self._on_event = on_event
        self._features = features
        self._world = world
        self._api = api
        self._now = now
        self._on_write = on_write

    async def get_workload(self, key: WorkloadKey) -> Workload | None:
        return await self._api.call("get", str(key), lambda: self._inner.get_workload(key))

    async def list_pods(self, workload: Workload) -> Sequence[Pod]:
        return await self._api.call("list", str(workload.key), lambda: self._inner.list_pods(workload))

    async def resize(self, pod: Pod, sizes: Sizes) -> Pod:
        key = _owner_key(pod)
        before = container_sizes(pod.containers)
        after = merge_sizes(before, sizes)

        async def request() -> Pod:
            self._refuse(key)
            self._check_version(pod, after)
            held = self._world.pods.get(pod.uid)
            present = container_sizes(held.containers) if held else {}
            resized = await self._inner.resize(pod, self._mutate(key, after))
            self._report("resize", key, pod=pod, before=before, after=after, present=present)
            # As the client of a real API server does.
            verify_sizes(after, resized.containers, subject="the pod")
            return resized

        return await self._api.call("resize", f"{key} pod {pod.name}", request)

    async def evict(self, pod: Pod) -> Pod:
        key = _owner_key(pod)

        async def request() -> Pod:
            evicted = await self._inner.evict(pod)
            self._report("evict", key, pod=pod, before=container_sizes(pod.containers))
            return evicted

        return await self._api.call("evict", f"{key} pod {pod.name}", request)

    async def patch_template(self, workload: Workload, sizes: Sizes, *, take_ownership: bool) -> Workload:
        before = container_sizes(workload.containers)

        async def request() -> Workload:
            self._refuse(workload.key)
            if not take_ownership:
                self._reject_owned(workload.key)
            held = self._world.workloads.get(workload.key)
            present = container_sizes(held.containers) if held else {}
            patched = await self._inner.patch_template(workload, sizes, take_ownership=take_ownership)
            after = merge_sizes(before, sizes)
            self._report("patch", workload.key, before=before, after=after, present=present)
            return patched

        return await self._api.call("patch", str(workload.key), request)

    async def patch_options(self, workload: Workload, annotation: OptionsAnnotation) -> Workload:
        async def request() -> Workload:
            self._refuse(workload.key)
            patched = await self._inner.patch_options(workload, annotation)
            self._report("options", workload.key)
            return patched

        return await self._api.call("patch", str(workload.key), request)

    async def scale(self, workload: Workload, replicas: int) -> Workload:
        async def request() -> Workload:
            scaled = await self._inner.scale(workload, replicas)
            self._report("scale", workload.key, replicas=(workload.replicas, replicas))
            return scaled

        return await self._api.call("scale", str(workload.key), request)

    async def annotate(
        self, workload: Workload, annotations: Mapping[str, str], *, manager: str = ANNOTATIONS_MANAGER
    ) -> Workload:
        async def request() -> Workload:
            annotated = await self._inner.annotate(workload, annotations, manager=manager)
            if manager != ANNOTATIONS_MANAGER:
                # What people read; no change depends on it.
                if text := annotations.get(RECOMMENDATION_ANNOTATION):
                    before = container_sizes(workload.containers)
                    self._report("recommend", workload.key, before=before, after=_parse_recommendation(text))
                return annotated
            decoded = decode_change_annotations(annotations, uid=workload.uid)
            self._report(
                "annotate",
                workload.key,
                old=read_change_annotations(workload),
                new=decoded if isinstance(decoded, ChangeAnnotations) else None,
            )
            return annotated

        return await self._api.call("annotate", str(workload.key), request)

    def emit(
        self,
        workload: Workload,
        *,
        type: EventType,  # noqa: A002 - Kubernetes' own word for it
        reason: str,
        message: str,
    ) -> None:
        self._api.gate.pass_through("emit")
        self._inner.emit(workload, type=type, reason=reason, message=message)
        self._on_event(EmittedEvent(self._api.gate.name, workload.key, reason, message))

    def _refuse(self, key: WorkloadKey) -> None:
        if fault := self._api.injector.hit(_REFUSED, str(key)):
            self._api.injector.record(fault, str(key))
            message = 'admission webhook "guard.example.com" denied the request: changes are frozen'
            raise _build_error(403, "Forbidden", message)

    def _reject_owned(self, key: WorkloadKey) -> None:
        if fault := self._api.injector.hit(_OWNED, str(key)):
            self._api.injector.record(fault, str(key))
            words = "the template keeps its sizes: another field manager owns these fields; change them there"
            raise FieldManagerConflict(
                Status(message=words, reason="Conflict", code=FieldManagerConflict.code)
            )

    def _check_version(self, pod: Pod, after: Sizes) -> None:
        """Reject a resize that the version of Kubernetes does not know."""
        if not self._features.can_resize_in_place:
            raise _build_error(404, "NotFound", "the server could not find the requested resource")
        if can_lower_memory_limits(self._features.version):
            return
        for each in pod.containers:
            old, new = each.resources.memory_limit, after[each.name].memory_limit
            if old is not None and (new or old) < old and not each.restart_on_memory_resize:
                words = "memory limits cannot be decreased unless resizePolicy is RestartContainer"
                raise _build_error(422, "Invalid", words)

    def _mutate(self, key: WorkloadKey, sizes: Sizes) -> Sizes:
        fault = self._api.injector.hit(_MUTATED, str(key))
        if fault is None:
            return sizes
        self._api.injector.record(fault, str(key))
        return round_up_memory(sizes)

    def _report(
        self,
        verb: str,
        key: WorkloadKey,
        *,
        pod: Pod | None = None,
        before: Sizes | None = None,
        after: Sizes | None = None,
        old: ChangeAnnotations | None = None,
        new: ChangeAnnotations | None = None,
        present: Sizes | None = None,
        replicas: tuple[int, int] | None = None,
    ) -> None:
        self._on_write(
            Write(
                at=self._now(),
                process=self._api.gate.name,
                verb=verb,
                workload=key,
                pod=pod,
                before=dict(before or {}),
                after=dict(after or {}),
                old=old,
                new=new,
                present=present,
                replicas=replicas,
            )
        )


class FaultyObjects:
    """Implements `ObjectClient` for one process."""

    def __init__(self, inner: ObjectClient, api: ApiFaults) -> None:
        self._inner = inner
        self._api = api

    async def get(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        subresource: str | None = None,
    ) -> Object:
        return await self._api.call(
            "get",
            f"{resource} {name}",
            lambda: self._inner.get(resource, name, namespace=namespace, subresource=subresource),
        )

    async def list_objects(
        self, resource: Resource, *, namespace: str | None = None, labels: str = "", fields: str = ""
    ) -> list[Object]:
        return await self._api.call(
            "list",
            str(resource),
            lambda: self._inner.list_objects(resource, namespace=namespace, labels=labels, fields=fields),
        )

    async def patch(
        self,
        resource: Resource,
        name: str,
        body: Any,
        *,
        type: PatchType,  # noqa: A002 - Kubernetes' own word for it
        namespace: str | None = None,
        subresource: str | None = None,
        force: bool = False,
        dry_run: bool = False,
        manager: str = FIELD_MANAGER,
    ) -> Object:
        return await self._api.call(
            "status" if subresource == "status" else "annotate",
            f"{resource} {name}",
            lambda: self._inner.patch(
                resource,
                name,
                body,
                type=type,
                namespace=namespace,
                subresource=subresource,
                force=force,
                dry_run=dry_run,
                manager=manager,
            ),
        )

    async def apply(
        self,
        resource: Resource,
        body: Mapping[str, Any],
        *,
        subresource: str | None = None,
        force: bool = False,
        dry_run: bool = False,
        manager: str = FIELD_MANAGER,
    ) -> Object:
        return await self._api.call(
            "status" if subresource == "status" else "annotate",
            f"{resource} {body['metadata']['name']}",
            lambda: self._inner.apply(
                resource, body, subresource=subresource, force=force, dry_run=dry_run, manager=manager
            ),
        )


class FaultyLeases:
    """Implements `LeaseClient` for one process."""

    def __init__(self, inner: LeaseClient, api: ApiFaults) -> None:
        self._inner = inner
        self._api = api

    async def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> Object:
        return await self._api.call(
            "lease", name, lambda: self._inner.get(resource, name, namespace=namespace)
        )

    async def create(self, resource: Resource, body: Object, *, namespace: str | None = None) -> Object:
        return await self._api.call(
            "lease", "create", lambda: self._inner.create(resource, body, namespace=namespace)
        )

    async def replace(self, resource: Resource, body: Object) -> Object:
        return await self._api.call("lease", "replace", lambda: self._inner.replace(resource, body))


def round_up_memory(sizes: Sizes) -> Sizes:
    """Round memory up to 64 MiB, as some admission webhooks do."""
    step = 64 * MIB

    def round_up(amount: int | None) -> int | None:
        return None if amount is None else -(-amount // step) * step

    return {
        name: msgspec.structs.replace(
            each, memory_request=round_up(each.memory_request), memory_limit=round_up(each.memory_limit)
        )
        for name, each in sizes.items()
    }


def _parse_recommendation(text: str) -> Sizes:
    """Return the targets in the annotation with the recommendation."""
    return {
        name: Resources.parse(each.get("requests", {}), each.get("limits", {}))
        for name, each in msgspec.json.decode(text).items()
    }


def find_mutation(injector: FaultInjector, key: WorkloadKey) -> Fault | None:
    """Return the fault by which admission changes the pods of a workload now."""
    return injector.hit(_MUTATED, str(key))


def _owner_key(pod: Pod) -> WorkloadKey:
    assert pod.owner is not None, "every simulated pod has an owner"
    return WorkloadKey(pod.owner.kind, pod.namespace, pod.owner.name)


def _build_error(code: int, reason: str, message: str) -> ApiError:
    retry_after = 2.0 if code == 429 else None
    return error_from_status(Status(message=message, reason=reason, code=code), retry_after=retry_after)

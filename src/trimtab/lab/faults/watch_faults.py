"""Faults of watches: caches that lag, lose, repeat or reorder events, and full lists in between.

`WatchHub` collects the changes of the shared cluster once; the informers of each process take them from there.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from trimtab.kube.kinds.quotas import ResourceList, ResourceQuota
from trimtab.kube.rest.client import Object
from trimtab.kube.rest.resources import NODES, OPTIMIZATION_POLICIES, PODS, RESOURCE_QUOTAS, Resource
from trimtab.lab.faults.plan import FaultDetails, FaultInjector, FaultKind
from trimtab.lab.faults.worlds import WorldSpec
from trimtab.lab.simulator.objects import RESOURCES, SimulatedPod
from trimtab.lab.simulator.simulated_informers import SimulatedInformerSet
from trimtab.lab.simulator.world import SimulatedWorld

_STALE, _GAP, _DELAYED, _SILENT = "watch-stale", "watch-gap", "watch-delayed", "watch-missed-event"
VERIFY_DELAY = 1800.0
"""The seconds after which the comparison with the server finds that a cache missed an event."""
_DUPLICATED, _REORDERED, _RELIST = "watch-duplicated", "watch-reordered", "watch-relist"
_CHANGES = ("annotate", "resize")
_KINDS = ("", PODS.kind, "Deployment", "StatefulSet", OPTIMIZATION_POLICIES.kind, NODES.kind)


def _draw_missed(rng: random.Random, world: WorldSpec) -> FaultDetails:
    del world
    return FaultDetails(target=rng.choice(["", PODS.kind, *_KINDS]), share=rng.choice([0.3, 0.8]))


def _draw_resource(rng: random.Random, world: WorldSpec) -> FaultDetails:
    del world
    return FaultDetails(target=rng.choice(_KINDS), amount=rng.choice([5.0, 60.0, 600.0]))


KINDS = (
    FaultKind(
        name=_STALE,
        sentence="The caches of one resource, or all, are outdated: events arrive only when the fault ends.",
        draw=_draw_resource,
        calls=_CHANGES,
    ),
    FaultKind(
        name=_GAP,
        sentence="Events of one resource, or all, are lost; the informer lists again when the fault ends.",
        draw=_draw_resource,
        calls=_CHANGES,
    ),
    FaultKind(
        name=_DELAYED, sentence="Events arrive up to ten minutes late.", draw=_draw_resource, calls=_CHANGES
    ),
    FaultKind(name=_DUPLICATED, sentence="Each event arrives twice.", draw=_draw_resource, calls=_CHANGES),
    FaultKind(name=_REORDERED, sentence="Events of different resources arrive in another order."),
    FaultKind(
        name=_SILENT,
        sentence="Events are lost and nobody notices, until the cache is compared with the server half an hour later.",
        draw=_draw_missed,
        weight=2.0,
        calls=_CHANGES,
    ),
    FaultKind(
        name=_RELIST,
        sentence="An informer lists everything again, as after a watch that expired.",
        draw=_draw_resource,
        calls=_CHANGES,
        duration=(300.0, 1800.0),
    ),
)


class WatchFaultEvent(NamedTuple):
    """A change of one object, as a watch delivers it."""

    at: float
    resource: Resource
    record: Any
    deleted: bool


class WatchHub:
    """All watched objects, and their changes for every subscriber."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world
        self._inboxes: list[deque[WatchFaultEvent]] = []
        self.objects: dict[tuple[Resource, str, str], Any] = {}
        """The present records."""

    def subscribe(self) -> deque[WatchFaultEvent]:
        """Return the queue of a new subscriber, which has all present objects."""
        inbox = deque(self.list_objects())
        self._inboxes.append(inbox)
        return inbox

    def unsubscribe(self, inbox: deque[WatchFaultEvent]) -> None:
        self._inboxes = [each for each in self._inboxes if each is not inbox]

    def list_objects(self) -> list[WatchFaultEvent]:
        """List all objects, each as an event that adds it."""
        self.collect()
        now = self._world.control_time
        return [
            WatchFaultEvent(now, resource, record, False) for (resource, _, _), record in self.objects.items()
        ]

    def put(self, resource: Resource, record: Any) -> None:
        """Create or replace an object."""
        self.objects[resource, record.namespace, record.name] = record
        self._publish(WatchFaultEvent(self._world.control_time, resource, record, False))

    def remove(self, resource: Resource, record: Any) -> None:
        """Delete an object; the record has the version of the deletion."""
        self.objects.pop((resource, record.namespace, record.name), None)
        self._publish(WatchFaultEvent(self._world.control_time, resource, record, True))

    def set_status(self, resource: Resource, namespace: str, name: str, status: Object) -> None:
        """Show a written status to those whose records have one."""
        found = self.objects.get((resource, namespace, name))
        # A policy's record has no status: the operator reads that from the API server.
        if found is not None and hasattr(found, "status"):
            text = msgspec.json.encode(status)
            self.put(resource, msgspec.structs.replace(found, status=text, version=found.version + 1))

    def collect(self) -> None:
        """Take over what changed in the world since the last call."""
        world = self._world
        for pod in world.deleted_pods:
            self.remove(PODS, pod.to_record(""))
        world.deleted_pods.clear()
        for workload in world.deleted_workloads:
            self.remove(workload.resource, workload)
        world.deleted_workloads.clear()
        changed, world.changed = world.changed, {}
        for member in changed.values():
            if isinstance(member, SimulatedPod):
                self.put(PODS, member.to_record(world.node_name(member)))
            else:
                self.put(RESOURCES[member.spec.kind], member.to_record())
        if changed:
            for namespace in world.quotas:
                self.put_quota(namespace)

    def put_quota(self, namespace: str) -> None:
        """Show the quota of a namespace with its present usage."""
        quota = self._world.find_quota(namespace)
        assert quota is not None
        known = self.objects.get((RESOURCE_QUOTAS, namespace, quota.name))
        if known is None or _quota_amounts(known) != _quota_amounts(quota):
            version = known.version + 1 if known else quota.version
            self.put(RESOURCE_QUOTAS, msgspec.structs.replace(quota, version=version))

    def _publish(self, event: WatchFaultEvent) -> None:
        for inbox in self._inboxes:
            inbox.append(event)


def _quota_amounts(quota: ResourceQuota) -> tuple[ResourceList, ...]:
    return quota.hard_requests, quota.hard_limits, quota.used_requests, quota.used_limits


class FaultyInformers(SimulatedInformerSet):
    """The caches of one process; `sync` delivers the events that have arrived by now."""

    def __init__(self, world: SimulatedWorld, hub: WatchHub, injector: FaultInjector) -> None:
        super().__init__(world)
        self._hub = hub
        self._injector = injector
        self._now: Callable[[], float] = lambda: world.control_time
        self._inbox = hub.subscribe()
        self._is_listed = False
        """True once the caches have had everything: no process does anything before its informers are synced."""
        self._lost: set[Resource] = set()
        """The resources of which events were lost, to be listed again."""
        self._missed: dict[Resource, float] = {}
        """The resources of which events were lost unnoticed, and when that will be found."""
        self._relisted: set[int] = set()
        """The faults that have already caused a full list."""

    def close(self) -> None:
        """Stop to receive events."""
        self._hub.unsubscribe(self._inbox)

    def sync(self) -> None:
        self._hub.collect()
        if not self._is_listed:
            self._is_listed = True
            while self._inbox:
                self._put(self._inbox.popleft())
        self._expire_watches()
        due, waiting = [], deque[WatchFaultEvent]()
        while self._inbox:
            event = self._inbox.popleft()
            if self._is_lost(event):
                self._lost.add(event.resource)
            elif fault := self._injector.hit(_SILENT, event.resource.kind):
                self._injector.record(fault, f"{event.resource} {event.record.name}")
                self._missed[event.resource] = self._now() + VERIFY_DELAY
            elif self._is_delayed(event):
                waiting.append(event)
            else:
                due.append(event)
        self._inbox.extend(waiting)
        for event in self._reorder(due):
            self._deliver(event)
        self._relist()

    def _expire_watches(self) -> None:
        for fault in self._injector.active(_RELIST):
            if fault.seed not in self._relisted:
                self._relisted.add(fault.seed)
                self._injector.record(fault, fault.target or "all resources")
                self._lost |= {resource for resource in self._caches if fault.target in {"", resource.kind}}

    def _is_lost(self, event: WatchFaultEvent) -> bool:
        if fault := self._injector.hit(_GAP, event.resource.kind):
            self._injector.record(fault, f"{event.resource} {event.record.name}")
            return True
        return False

    def _is_delayed(self, event: WatchFaultEvent) -> bool:
        fault = self._injector.hit(_STALE, event.resource.kind)
        late = self._injector.hit(_DELAYED, event.resource.kind)
        if fault is None and late and event.at + late.amount > self._now():
            fault = late
        if fault is None:
            return False
        self._injector.record(fault, f"{event.resource} {event.record.name} waits")
        return True

    def _reorder(self, events: list[WatchFaultEvent]) -> list[WatchFaultEvent]:
        fault = self._injector.hit(_REORDERED)
        if fault is None or len(events) < 2:
            return events
        self._injector.record(fault, f"{len(events)} events")
        # A watch keeps the order of one resource; between resources there is none.
        order = sorted({event.resource for event in events}, key=str)
        self._injector.rng(fault).shuffle(order)
        return sorted(events, key=lambda event: order.index(event.resource))

    def _relist(self) -> None:
        for resource, at in list(self._missed.items()):
            if at <= self._now():
                del self._missed[resource]
                self._lost.add(resource)
        for resource in sorted(self._lost, key=str):
            if self._injector.hit(_GAP, resource.kind) or self._injector.hit(_STALE, resource.kind):
                continue  # the server cannot be read yet
            self._lost.discard(resource)
            present = [event for event in self._hub.list_objects() if event.resource == resource]
            for cache in self._caches.get(resource, ()):
                for event in present:
                    cache.put(event.record, listed=True)
                cache.keep_only({event.record.uid for event in present})

    def _deliver(self, event: WatchFaultEvent) -> None:
        times = 1
        if fault := self._injector.hit(_DUPLICATED, event.resource.kind):
            self._injector.record(fault, f"{event.resource} {event.record.name}")
            times = 2
        for _ in range(times):
            self._put(event)

    def _put(self, event: WatchFaultEvent) -> None:
        for cache in self._caches.get(event.resource, ()):
            if event.deleted:
                cache.remove(event.record)
            else:
                cache.put(event.record)

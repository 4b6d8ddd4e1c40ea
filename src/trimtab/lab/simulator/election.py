"""A simulated election: a clock that the simulation advances, and the Lease that candidates write.

The production `LeaderElector` runs on both, so a simulation can take the leadership away and give it back.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable

from trimtab.kube.errors import Conflict, NotFound, Status
from trimtab.kube.rest.client import Object
from trimtab.kube.rest.resources import Resource

_LOOP_ITERATIONS = 20
"""Iterations of the event loop after which a task that was woken has done everything that it can do without sleeping."""


class SimulatedClock:
    """Simulated time for tasks that sleep; nothing wakes before `advance` is called."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._now()

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now() + seconds, next(self._order), woken))
        await woken

    async def advance(self) -> None:
        """Wake the tasks whose time has come, and let them run until they sleep again."""
        if not (self._sleepers and self._sleepers[0][0] <= self._now()):
            return
        sleeping, tasks = self._count_sleepers(), asyncio.all_tasks()
        woke = False
        while self._sleepers and self._sleepers[0][0] <= self._now():
            _, _, sleeper = heapq.heappop(self._sleepers)
            if not sleeper.done():  # done: its task was cancelled
                sleeper.set_result(None)
                woke = True
        if not woke:
            return
        for _ in range(_LOOP_ITERATIONS):
            await asyncio.sleep(0)
            # A renewal is over now. Who gained or lost a lease does not sleep again, or starts tasks.
            if self._count_sleepers() == sleeping and asyncio.all_tasks() == tasks:
                return

    @property
    def has_sleepers(self) -> bool:
        return self._count_sleepers() > 0

    def _count_sleepers(self) -> int:
        return sum(not sleeper.done() for _, _, sleeper in self._sleepers)

    async def settle(self) -> None:
        """Let all tasks run that can. The event loop has no simulated time: it only has iterations."""
        for _ in range(_LOOP_ITERATIONS):
            await asyncio.sleep(0)


class SimulatedLeases:
    """The Leases of a simulated cluster, with the requests that an election sends."""

    def __init__(self) -> None:
        self._leases: dict[str, Object] = {}
        self._version = 0

    def take(self, name: str, *, holder: str, seconds: float) -> None:
        """Let another process hold a Lease, until it has not renewed it for so many seconds."""
        spec = {"holderIdentity": holder, "leaseDurationSeconds": int(seconds), "renewTime": ""}
        self._put({"metadata": {"name": name}, "spec": spec})

    async def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> Object:
        del namespace
        if name not in self._leases:
            raise NotFound(_build_status(f"{resource} {name} not found", "NotFound", NotFound.code))
        return self._leases[name]

    async def create(self, resource: Resource, body: Object, *, namespace: str | None = None) -> Object:
        del namespace
        name = body["metadata"]["name"]
        if name in self._leases:
            raise Conflict(_build_status(f"{resource} {name} already exists", "AlreadyExists", Conflict.code))
        return self._put(body)

    async def replace(self, resource: Resource, body: Object) -> Object:
        name, version = body["metadata"]["name"], body["metadata"].get("resourceVersion")
        if version != self._leases[name]["metadata"]["resourceVersion"]:
            raise Conflict(_build_status(f"{resource} {name} has been modified", "Conflict", Conflict.code))
        return self._put(body)

    def _put(self, body: Object) -> Object:
        self._version += 1
        metadata = {**body["metadata"], "resourceVersion": str(self._version)}
        found = self._leases[metadata["name"]] = {**body, "metadata": metadata}
        return found


def _build_status(message: str, reason: str, code: int) -> Status:
    return Status(message=message, reason=reason, code=code)

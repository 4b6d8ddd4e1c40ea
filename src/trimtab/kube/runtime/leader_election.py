"""Leader election by a Lease: one of several replicas works, and never two at once.

`lease_rules` has the rules. A leader that could not renew for `renew_deadline` stops its work; the time until
`duration` is what the work has to end.

Cancelling work takes a moment, and a suspended process does not notice the time that passed. So work checks
`is_leader` right before each action that must not happen twice. A request that is already in flight is not covered;
only the resource versions of the objects themselves protect against it.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Protocol, TypeVar

import structlog
from prometheus_client import Counter, Gauge

from trimtab.kube.errors import KubeError, NotFound, describe
from trimtab.kube.rest.client import Object
from trimtab.kube.rest.resources import LEASES, Resource
from trimtab.kube.runtime.lease_rules import JITTER, LeaseObservation, LeaseSpec, LeaseTiming
from trimtab.timing import LogOnce

T = TypeVar("T")

log = structlog.get_logger(__name__)

_LEADING = Gauge("trimtab_lease_leading", "1 if this process is the leader", ["lease"])
_TERMS = Counter(
    "trimtab_lease_acquisitions_total", "Number of times this process became the leader", ["lease"]
)
_LOSSES = Counter(
    "trimtab_lease_losses_total",
    "Number of times this process lost the lease without releasing it",
    ["lease"],
)
_FAILURES = Counter(
    "trimtab_lease_failures_total", "Failed attempts to acquire or renew the lease", ["lease", "error"]
)

# Unlike CLOCK_MONOTONIC, it advances while the machine is suspended, where the system has it.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@contextmanager
def report_sole_leader(namespace: str, name: str) -> Iterator[None]:
    """Report this process as the leader where there is no election; otherwise alerts would report that nobody
    leads.
    """
    label = f"{namespace}/{name}"
    _LEADING.labels(label).set(1)
    try:
        yield
    finally:
        _LEADING.remove(label)


class LeaseClient(Protocol):
    """The requests that an election sends; the methods are those of `Client`."""

    async def get(self, resource: Resource, name: str, *, namespace: str | None = ...) -> Object: ...

    async def create(self, resource: Resource, body: Object, *, namespace: str | None = ...) -> Object: ...

    async def replace(self, resource: Resource, body: Object) -> Object: ...


class LeadershipLost(KubeError):
    """This process is no longer the leader, or cannot be sure that it is; the work has ended."""


class LeaderElector:
    """A candidate for leadership. Give it its own client, so that renewals do not wait behind other requests."""

    def __init__(
        self,
        client: LeaseClient,
        *,
        name: str,
        namespace: str,
        identity: str,
        now: Callable[[], datetime],
        timing: LeaseTiming | None = None,
        rng: random.Random | None = None,
        clock: Callable[[], float] | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        """Create a candidate; a simulated election has its own `clock`, in seconds, and its own `sleep`."""
        # A restarted process must not mistake its predecessor, which may only be suspended, for itself.
        self.identity = f"{identity}_{uuid.uuid4()}"
        self._client = client
        self._name = name
        self._namespace = namespace
        self._timing = timing or LeaseTiming()
        self._now = now
        self._clock = clock or _boot_clock
        self._sleep = sleep
        self._rng = rng or random.Random()  # noqa: S311 - jitter
        self._observation = LeaseObservation()
        self._leader_until = -math.inf
        self._errors = LogOnce()
        self._loss_reason = ""  # the reason why leadership was lost
        self._label = f"{namespace}/{name}"
        _LEADING.labels(self._label).set_function(lambda: self.is_leader)

    @property
    def is_leader(self) -> bool:
        """The process is certainly the leader now; already false when a renewal is overdue."""
        return self._clock() < self._leader_until

    async def lead(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Wait until this process leads, do the work, release the lease.

        Raises LeadershipLost if the lease is lost before the work ends; the work was cancelled then, and has ended.
        Cancelling `lead` cancels the work, and keeps renewing until it has ended.
        """
        try:
            await self._acquire()
            return await self._run_as_leader(work)
        finally:
            await self._release()

    async def _acquire(self) -> None:
        while True:
            if await self._try_acquire_or_renew() and self.is_leader:
                break
            await self._sleep(self._timing.retry_period * (1 + JITTER * self._rng.random()))
        _TERMS.labels(self._label).inc()
        log.info("lease.acquired", lease=self._label, identity=self.identity)

    async def _run_as_leader(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self._loss_reason = ""
        task = asyncio.create_task(work())
        keeper = asyncio.create_task(self._renew_until_lost(task))
        try:
            # If we are cancelled meanwhile, the task is cancelled too, and this waits until it has ended.
            return await task
        finally:
            keeper.cancel()
            await asyncio.wait({keeper})
            if self._loss_reason:
                _LOSSES.labels(self._label).inc()
                log.warning("lease.lost", lease=self._label, identity=self.identity, reason=self._loss_reason)
                us = asyncio.current_task()
                if us is None or not us.cancelling():  # a caller that cancels us must get CancelledError
                    raise LeadershipLost(f"lease {self._label} was lost: {self._loss_reason}")

    async def _renew_until_lost(self, task: asyncio.Task[Any]) -> None:
        """Renew the lease; if that fails for too long or another process holds it, end the work."""
        self._loss_reason = await self._renew_while_held()
        lease_ends = self._leader_until - self._timing.renew_deadline + self._timing.duration
        self._leader_until = -math.inf
        while not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=max(self._timing.retry_period, lease_ends - self._clock()))
            if not task.done():
                log.error(
                    "lease.work_still_running",
                    lease=self._label,
                    fix="end the work within the lease duration when it is cancelled",
                )

    async def _renew_while_held(self) -> str:
        """Renew until this process no longer leads, and return the reason."""
        while True:
            await self._sleep(min(self._timing.retry_period, self._leader_until - self._clock()))
            left = self._leader_until - self._clock()
            if left <= 0:
                reason = self._errors.current() or "this process was suspended"
                return f"not renewed for {self._timing.renew_deadline} s ({reason})"
            if await self._try_acquire_or_renew(left) is False:
                return f"{self._observation.holder} holds the lease now"

    async def _try_acquire_or_renew(self, left: float = math.inf) -> bool | None:
        """Try to acquire or renew the lease; False if another process holds it, None if the attempt failed."""
        sent = self._clock()
        try:
            async with asyncio.timeout(min(left, self._timing.attempt_timeout)):
                if not await self._write_if_free():
                    return False
        except Exception as error:  # noqa: BLE001 - after any error the lease is not renewed
            self._record_failure(error)
            return None
        self._errors.clear()
        self._leader_until = sent + self._timing.renew_deadline
        return True

    async def _write_if_free(self) -> bool:
        lease = await self._read()
        # A deleted lease that we saw held still counts as held: its leader will write it again. A process that never
        # saw one takes it at once, so that a first start does not wait.
        if not self._observation.is_free(
            self.identity, self._clock(), default_duration=self._timing.duration
        ):
            return False
        claimed = self._observation.build_claim(self.identity, self._now(), duration=self._timing.duration)
        if lease is None:
            metadata = {"name": self._name, "namespace": self._namespace}
            written = await self._client.create(
                LEASES, _build_lease(metadata, claimed), namespace=self._namespace
            )
        else:
            written = await self._replace(lease, claimed)
        self._observation.observe(written["spec"], self._clock())
        return True

    async def _release(self) -> None:
        """Release the lease if it is ours, even after a write whose response never arrived."""
        self._leader_until = -math.inf
        try:
            async with asyncio.timeout(self._timing.attempt_timeout):
                lease = await self._read()
                if lease is None or self._observation.holder != self.identity:
                    return
                await self._replace(lease, self._observation.build_release(self._now()))
        except Exception as error:  # noqa: BLE001 - it expires by itself
            log.warning("lease.release_failed", lease=self._label, error=describe(error))
        else:
            log.info("lease.released", lease=self._label, identity=self.identity)

    async def _read(self) -> Object | None:
        try:
            lease = await self._client.get(LEASES, self._name, namespace=self._namespace)
        except NotFound:
            return None
        self._observation.observe(lease.get("spec") or {}, self._clock())
        return lease

    async def _replace(self, lease: Object, spec: LeaseSpec) -> Object:
        """Replace the version that we read; raises Conflict if it changed since then."""
        return await self._client.replace(LEASES, _build_lease(lease["metadata"], spec))

    def _record_failure(self, error: Exception) -> None:
        """Count every failed attempt; log each reason once, not every two seconds."""
        _FAILURES.labels(self._label, type(error).__name__).inc()
        message = describe(error)
        if self._errors.is_new(message):
            log.warning("lease.attempt_failed", lease=self._label, error=message)


def _build_lease(metadata: Object, spec: LeaseSpec) -> Object:
    return {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": spec}


def _boot_clock() -> float:
    return time.clock_gettime(_CLOCK)

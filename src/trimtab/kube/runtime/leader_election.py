"""Leader election by a Lease: of several replicas one works, and never two at once.

By the rules in `election`. Without a renewal for `renew_deadline` a leader is in doubt and ends its work,
and what is left until `duration` is the time the work has to end.

Cancelling work takes a moment, and a frozen process knows nothing of the time that passed. So work asks
`leading` right before each deed that must not be done twice. What this leaves out: a deed that is on its
way already, which only the versions of the objects themselves can fence off.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

import structlog
from prometheus_client import Counter, Gauge

from trimtab.kube.errors import KubeError, NotFound, describe
from trimtab.kube.rest.client import Client, Object
from trimtab.kube.rest.resources import LEASES
from trimtab.kube.runtime.lease_rules import JITTER, LeaseObservation, LeaseSpec, LeaseTiming

T = TypeVar("T")

log = structlog.get_logger(__name__)

_LEADING = Gauge("trimtab_lease_leading", "Whether this process leads", ["lease"])
_TERMS = Counter("trimtab_lease_terms_total", "How often this process became the leader", ["lease"])
_LOSSES = Counter("trimtab_lease_losses_total", "How often it lost that against its will", ["lease"])
_FAILURES = Counter("trimtab_lease_failures_total", "Tries to take or renew that failed", ["lease", "error"])

# Unlike CLOCK_MONOTONIC it goes on while the machine sleeps, where the system has it.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@contextmanager
def report_sole_leader(namespace: str, name: str) -> Iterator[None]:
    """Report that this process leads, where there is no election: or it would look as if nobody did."""
    label = f"{namespace}/{name}"
    _LEADING.labels(label).set(1)
    try:
        yield
    finally:
        _LEADING.remove(label)


class LeadershipLost(KubeError):
    """We are no longer the leader, or cannot be sure of it; the work has ended."""


class LeaderElector:
    """One of those who would lead. Give it a client of its own, so that renewals wait behind no other request."""

    def __init__(
        self,
        client: Client,
        *,
        name: str,
        namespace: str,
        identity: str,
        now: Callable[[], datetime],
        timing: LeaseTiming | None = None,
        rng: random.Random | None = None,
    ) -> None:
        # A restarted process must not take its former self, perhaps only frozen, for itself.
        self.identity = f"{identity}_{uuid.uuid4()}"
        self._client = client
        self._name = name
        self._namespace = namespace
        self._timing = timing or LeaseTiming()
        self._now = now
        self._rng = rng or random.Random()  # noqa: S311 - jitter
        self._observation = LeaseObservation()
        self._leader_until = -math.inf
        self._last_error = ""  # why the last try failed
        self._loss_reason = ""  # why we lead no more
        self._label = f"{namespace}/{name}"
        _LEADING.labels(self._label).set_function(lambda: self.is_leader)

    @property
    def is_leader(self) -> bool:
        """Whether we are surely the leader at this moment: false already when a renewal is overdue."""
        return _clock() < self._leader_until

    async def lead(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Wait until we lead, do the work, give the lease back.

        Raises LeadershipLost when the lease is lost before the work ends; it was cancelled then, and has
        ended. Cancelling `lead` cancels the work, and renews until it has ended.
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
            await asyncio.sleep(self._timing.retry_period * (1 + JITTER * self._rng.random()))
        _TERMS.labels(self._label).inc()
        log.info("lease.leading", lease=self._label, identity=self.identity)

    async def _run_as_leader(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self._loss_reason = ""
        task = asyncio.create_task(work())
        keeper = asyncio.create_task(self._renew_until_lost(task))
        try:
            # Should we be cancelled meanwhile, so is the task, and we are told when it has ended.
            return await task
        finally:
            keeper.cancel()
            await asyncio.wait({keeper})
            if self._loss_reason:
                _LOSSES.labels(self._label).inc()
                log.warning("lease.lost", lease=self._label, identity=self.identity, reason=self._loss_reason)
                us = asyncio.current_task()
                if us is None or not us.cancelling():  # who cancels us must not get another answer
                    raise LeadershipLost(f"lease {self._label} is lost: {self._loss_reason}")

    async def _renew_until_lost(self, task: asyncio.Task[Any]) -> None:
        """Renew the lease; when that fails for too long or another has it, end the work."""
        self._loss_reason = await self._renew_while_held()
        lease_ends = self._leader_until - self._timing.renew_deadline + self._timing.duration
        self._leader_until = -math.inf
        while not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=max(self._timing.retry_period, lease_ends - _clock()))
            if not task.done():
                log.error("lease.work_goes_on", lease=self._label, fix="let the work end soon when cancelled")

    async def _renew_while_held(self) -> str:
        """Renew until we no longer lead, and say why."""
        while True:
            await asyncio.sleep(min(self._timing.retry_period, self._leader_until - _clock()))
            left = self._leader_until - _clock()
            if left <= 0:
                why = self._last_error or "this process stood still"
                return f"not renewed for {self._timing.renew_deadline} s ({why})"
            if await self._try_acquire_or_renew(left) is False:
                return f"{self._observation.holder} holds it now"

    async def _try_acquire_or_renew(self, left: float = math.inf) -> bool | None:
        """Try to take or renew the lease. False: another holds it. None: the try failed, the next may not."""
        sent = _clock()
        try:
            async with asyncio.timeout(min(left, self._timing.attempt_timeout)):
                if not await self._write_if_free():
                    return False
        except Exception as error:  # noqa: BLE001 - whatever it was, the lease was not renewed
            self._record_failure(error)
            return None
        self._last_error = ""
        self._leader_until = sent + self._timing.renew_deadline
        return True

    async def _write_if_free(self) -> bool:
        lease = await self._read()
        # A lease that was deleted is still held, if we saw it held: its leader shall write it anew. Who never
        # saw one takes it at once, since a first start shall not wait.
        if not self._observation.is_free(self.identity, _clock(), default_duration=self._timing.duration):
            return False
        claimed = self._observation.build_claim(self.identity, self._now(), duration=self._timing.duration)
        if lease is None:
            metadata = {"name": self._name, "namespace": self._namespace}
            written = await self._client.create(
                LEASES, _build_lease(metadata, claimed), namespace=self._namespace
            )
        else:
            written = await self._replace(lease, claimed)
        self._observation.observe(written["spec"], _clock())
        return True

    async def _release(self) -> None:
        """Give the lease back if it is ours, also by a write whose answer we never got."""
        self._leader_until = -math.inf
        try:
            async with asyncio.timeout(self._timing.attempt_timeout):
                lease = await self._read()
                if lease is None or self._observation.holder != self.identity:
                    return
                await self._replace(lease, self._observation.build_release(self._now()))
        except Exception as error:  # noqa: BLE001 - it runs out by itself
            log.warning("lease.not_released", lease=self._label, error=describe(error))
        else:
            log.info("lease.released", lease=self._label, identity=self.identity)

    async def _read(self) -> Object | None:
        try:
            lease = await self._client.get(LEASES, self._name, namespace=self._namespace)
        except NotFound:
            return None
        self._observation.observe(lease.get("spec") or {}, _clock())
        return lease

    async def _replace(self, lease: Object, spec: LeaseSpec) -> Object:
        """Write over the version that we read; had somebody written since, this is a Conflict."""
        return await self._client.replace(LEASES, _build_lease(lease["metadata"], spec))

    def _record_failure(self, error: Exception) -> None:
        """Count every failed try; say each reason once, not every two seconds."""
        _FAILURES.labels(self._label, type(error).__name__).inc()
        trouble = describe(error)
        if trouble != self._last_error:
            log.warning("lease.try_failed", lease=self._label, error=trouble)
            self._last_error = trouble


def _build_lease(metadata: Object, spec: LeaseSpec) -> Object:
    return {"apiVersion": LEASES.api_version, "kind": LEASES.kind, "metadata": metadata, "spec": spec}


def _clock() -> float:
    return time.clock_gettime(_CLOCK)

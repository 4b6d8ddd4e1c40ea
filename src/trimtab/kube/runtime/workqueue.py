"""The work queue of a control loop: which keys to look at, when, and how many at once.

A key names something in the cluster; the reconcile function is given the key alone and looks at the world
itself, so a hundred changes cost one look. A key is never worked on twice at once: what is added meanwhile
is looked at again afterwards. Failures back off key by key. The queue knows no Kubernetes and keeps nothing
on disk: after a restart the informers add every key anew.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Never

import structlog
from prometheus_client import Counter, Gauge, Histogram

from trimtab.kube.errors import KubeError, describe
from trimtab.kube.rest.retry import Backoff
from trimtab.kube.runtime.delay_heap import DelayHeap, K

log = structlog.get_logger(__name__)

_SECONDS = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_DEPTH = Gauge("trimtab_queue_depth", "Keys that wait for a worker", ["queue"])
_DELAYED = Gauge("trimtab_queue_delayed", "Keys whose time has not come", ["queue"])
_WORKING = Gauge("trimtab_queue_working", "Keys being worked on", ["queue"])
_LATENCY = Histogram("trimtab_queue_latency_seconds", "From ready to started", ["queue"], buckets=_SECONDS)
_DURATION = Histogram("trimtab_queue_duration_seconds", "From started to ended", ["queue"], buckets=_SECONDS)
_FAILURES = Counter("trimtab_queue_failures_total", "Work that failed and is retried", ["queue", "error"])

Reconcile = Callable[[K], Awaitable[float | None]]
"""Looks at one key and returns after how many seconds to look again, or None: when something changes."""


@dataclass(slots=True)
class _Attempt:
    """What was asked about a key while it was being worked on."""

    requeue: bool = False
    forgotten: bool = False


class WorkQueue(Generic[K]):
    """Keys in, reconciles out. Every method belongs to the event loop's thread; `run` it as a task.

    A key is ready, delayed or neither; and, independently, being worked on or not. Ready keys are served
    first come, first served, so none starves.
    """

    def __init__(
        self,
        name: str,
        reconcile: Reconcile[K],
        *,
        workers: int = 4,
        backoff: Backoff | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.name = name
        self._reconcile = reconcile
        self._workers = workers
        self._backoff = backoff or Backoff(first=0.5, ceiling=300.0)
        self._rng = rng or random.Random()  # noqa: S311 - jitter
        self._ready: OrderedDict[K, float] = OrderedDict()  # since when
        self._delayed: DelayHeap[K] = DelayHeap()
        self._working: dict[K, _Attempt] = {}
        self._failures: dict[K, int] = {}  # in a row; a key that succeeds or is forgotten leaves
        self._timer: asyncio.Handle | None = None
        self._timer_at = math.inf  # uvloop's handle of a time that has come cannot tell
        self._some_ready = asyncio.Event()
        self._all_done = asyncio.Event()
        # Counted when asked for: setting them at every step would cost as much as the rest of the queue.
        _DEPTH.labels(name).set_function(lambda: len(self._ready))
        _DELAYED.labels(name).set_function(lambda: len(self._delayed))
        _WORKING.labels(name).set_function(lambda: len(self._working))
        self._latency = _LATENCY.labels(name)
        self._duration = _DURATION.labels(name)

    def __len__(self) -> int:
        """How many keys wait, for a worker or for their time."""
        return len(self._ready) + len(self._delayed)

    def add(self, key: K, delay: float = 0.0) -> None:
        """Look at the key now, or after a delay of so many seconds if nothing asks for it earlier."""
        if not math.isfinite(delay):
            raise ValueError(f"queue {self.name}: a delay of {delay} for {key} is no number of seconds")
        attempt = self._working.get(key)
        if key in self._ready or (attempt is not None and attempt.requeue):
            return
        if delay > 0:
            self._delayed.put(key, _clock() + delay)
            self._set_timer()
        else:
            self._delayed.drop(key)
            if attempt is not None:
                attempt.requeue = True
            else:
                self._make_ready(key)

    def forget(self, key: K) -> None:
        """The key's object is gone: nothing is due, no failure is remembered, work under way counts for nothing."""
        self._ready.pop(key, None)
        self._delayed.drop(key)
        self._failures.pop(key, None)
        if key in self._working:
            self._working[key] = _Attempt(forgotten=True)
        self._notice_idle()

    async def wait_idle(self) -> None:
        """Wait until no key is ready or being worked on. Delayed keys do not count: some always come back."""
        while self._ready or self._working:
            self._all_done.clear()
            await self._all_done.wait()

    async def run(self) -> Never:
        """Work until cancelled; what was being worked on then is ready again, should the queue be run anew."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._workers):
                group.create_task(self._work(), name=f"{self.name} worker {number}")
        raise AssertionError("workers never end")

    async def _work(self) -> Never:
        while True:
            await self._some_ready.wait()
            if not self._ready:
                self._some_ready.clear()
                continue
            await self._work_on(*self._ready.popitem(last=False))
            # A reconcile that never waits for anything must not keep the loop from everybody else.
            await asyncio.sleep(0)

    async def _work_on(self, key: K, ready_since: float) -> None:
        began = _clock()
        self._latency.observe(began - ready_since)
        self._working[key] = _Attempt()
        delay: float | None = None
        try:
            delay = await self._reconcile_key(key)
        except asyncio.CancelledError:
            delay = 0.0
            raise
        finally:
            self._duration.observe(_clock() - began)
            self._finish(key, delay)

    async def _reconcile_key(self, key: K) -> float | None:
        """Reconcile the key; the answer is when to come back, by its own wish or because it failed."""
        try:
            delay = await self._reconcile(key)
            if delay is not None and not math.isfinite(delay):
                raise ValueError(f"reconcile asked to come back in {delay} seconds")  # noqa: TRY301 - fails as any other
        except asyncio.CancelledError as error:
            if _is_being_cancelled():
                raise
            # Something that it awaited was cancelled: left alone this would silently end the worker.
            return self._record_failure(key, error)
        except Exception as error:  # noqa: BLE001 - whatever it is, one key must not stop the others
            return self._record_failure(key, error)
        self._failures.pop(key, None)
        return delay

    def _record_failure(self, key: K, error: BaseException) -> float:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = self._backoff.delay(failures, rng=self._rng)
        unexpected = None if isinstance(error, KubeError) else error  # says where it came from
        _FAILURES.labels(self.name, type(error).__name__).inc()
        log.warning(
            "queue.failed",
            queue=self.name,
            key=str(key),
            error=describe(error),
            failures=failures,
            again_in=round(delay, 3),
            exc_info=unexpected,
        )
        return delay

    def _finish(self, key: K, delay: float | None) -> None:
        attempt = self._working.pop(key)
        if attempt.forgotten:
            self._failures.pop(key, None)
            delay = None
        if attempt.requeue:
            self._make_ready(key)
        elif delay is not None:
            self.add(key, delay)
        self._notice_idle()

    def _make_ready(self, key: K) -> None:
        self._ready[key] = _clock()
        self._some_ready.set()

    def _set_timer(self) -> None:
        """One timer for all delayed keys; it rings at or before the first, and a ring for nothing does no harm."""
        due = self._delayed.next_time
        if due is None or (self._timer is not None and self._timer_at <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(due, self._on_timer, due)
        self._timer_at = due

    def _on_timer(self, due: float) -> None:
        self._timer = None
        for key in self._delayed.pop_due(max(due, _clock())):  # the loop may ring a hair early
            self.add(key)
        self._set_timer()

    def _notice_idle(self) -> None:
        if not self._ready and not self._working:
            self._all_done.set()


def _clock() -> float:
    return asyncio.get_running_loop().time()


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0

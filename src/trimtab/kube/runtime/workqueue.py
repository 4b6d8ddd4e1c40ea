"""The work queue of a controller: the keys to reconcile, their due times, and a limit on concurrency.

A key names an object in the cluster; the reconcile function gets the key alone and reads the current state itself, so
a hundred changes cost one reconcile. A key is never reconciled twice at once: if it is added meanwhile, it is
reconciled again afterwards. Failures back off per key. The queue is independent of Kubernetes and keeps nothing on
disk: after a restart the informers add every key again.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, Never

import structlog
from prometheus_client import Counter, Gauge, Histogram

from trimtab.kube.errors import KubeError, describe
from trimtab.kube.runtime.delay_heap import DelayHeap, K
from trimtab.kube.runtime.ready_keys import ReadyKeys
from trimtab.timing import Backoff

log = structlog.get_logger(__name__)

_SECONDS = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_DEPTH = Gauge("trimtab_queue_depth", "Keys that are ready and wait for a worker", ["queue"])
_DELAYED = Gauge("trimtab_queue_delayed", "Keys that are due later", ["queue"])
_WORKING = Gauge("trimtab_queue_in_progress", "Keys being reconciled", ["queue"])
_LATENCY = Histogram(
    "trimtab_queue_latency_seconds",
    "Seconds from ready to the start of the reconcile",
    ["queue"],
    buckets=_SECONDS,
)
_DURATION = Histogram(
    "trimtab_queue_duration_seconds", "Seconds that a reconcile took", ["queue"], buckets=_SECONDS
)
_FAILURES = Counter(
    "trimtab_queue_failures_total", "Reconciles that failed and are retried", ["queue", "error"]
)

Reconcile = Callable[[K], Awaitable[float | None]]
"""A function that reconciles one key and returns the seconds until the next reconcile, or None to wait for a
change."""


@dataclass(slots=True)
class _Attempt:
    """The requests for a key while it is being reconciled."""

    requeue: bool = False
    forgotten: bool = False


class WorkQueue(Generic[K]):
    """Keys in, reconciles out. All methods must be called in the event loop's thread; `run` it as a task.

    A key is ready, delayed or neither; and, independently, being reconciled or not. Ready keys are processed in
    order, and their groups, such as namespaces, take turns, so that none starves.
    """

    def __init__(
        self,
        name: str,
        reconcile: Reconcile[K],
        *,
        group: Callable[[K], Hashable] = lambda _: None,
        workers: int = 4,
        backoff: Backoff | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.name = name
        self._reconcile = reconcile
        self._workers = workers
        self._backoff = backoff or Backoff(first=0.5, ceiling=300.0)
        self._rng = rng or random.Random()  # noqa: S311 - jitter
        self._ready = ReadyKeys[K](group)
        self._delayed: DelayHeap[K] = DelayHeap()
        self._working: dict[K, _Attempt] = {}
        self._failures: dict[K, int] = {}  # consecutive; a key that succeeds or is forgotten is removed
        self._timer: asyncio.Handle | None = None
        self._timer_at = math.inf  # uvloop's handle does not return the time of a timer that has fired
        self._some_ready = asyncio.Event()
        self._all_done = asyncio.Event()
        # Counted on demand: setting them at every step would cost as much as the rest of the queue.
        _DEPTH.labels(name).set_function(lambda: len(self._ready))
        _DELAYED.labels(name).set_function(lambda: len(self._delayed))
        _WORKING.labels(name).set_function(lambda: len(self._working))
        self._latency = _LATENCY.labels(name)
        self._duration = _DURATION.labels(name)

    def __len__(self) -> int:
        """Return the number of keys that wait for a worker or are delayed."""
        return len(self._ready) + len(self._delayed)

    def add(self, key: K, delay: float = 0.0) -> None:
        """Reconcile the key now, or after a delay in seconds unless it is added again earlier."""
        if not math.isfinite(delay):
            raise ValueError(
                f"queue {self.name}: the delay {delay} for {key} is not a finite number of seconds"
            )
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
        """Drop the key because its object is gone: its due time, its failures and the result of a reconcile in
        progress.
        """
        self._ready.drop(key)
        self._delayed.drop(key)
        self._failures.pop(key, None)
        if key in self._working:
            self._working[key] = _Attempt(forgotten=True)
        self._notice_idle()

    async def wait_idle(self) -> None:
        """Wait until no key is ready or being reconciled. Delayed keys do not count, because some always come
        back.
        """
        while self._ready or self._working:
            self._all_done.clear()
            await self._all_done.wait()

    async def run(self) -> Never:
        """Reconcile until cancelled; keys that were being reconciled then are ready again if the queue is run
        again.
        """
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
            await self._work_on(*self._ready.take())
            # A reconcile that never awaits anything must not block the event loop.
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
        """Reconcile the key; return the seconds until the next reconcile, as requested or as back-off after a
        failure.
        """
        try:
            delay = await self._reconcile(key)
            if delay is not None and not math.isfinite(delay):
                raise ValueError(f"reconcile returned a delay of {delay} seconds")  # noqa: TRY301 - fails as any other
        except asyncio.CancelledError as error:
            if _is_being_cancelled():
                raise
            # Something that it awaited was cancelled: without this branch the worker would end silently.
            return self._record_failure(key, error)
        except Exception as error:  # noqa: BLE001 - one key must not stop the others
            return self._record_failure(key, error)
        self._failures.pop(key, None)
        return delay

    def _record_failure(self, key: K, error: BaseException) -> float:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay = self._backoff.delay(failures, rng=self._rng)
        unexpected = (
            None if isinstance(error, KubeError) else error
        )  # log where an unexpected error came from
        _FAILURES.labels(self.name, type(error).__name__).inc()
        log.warning(
            "queue.reconcile_failed",
            queue=self.name,
            key=str(key),
            error=describe(error),
            failures=failures,
            retry_in=round(delay, 3),
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
        self._ready.add(key, _clock())
        self._some_ready.set()

    def _set_timer(self) -> None:
        """Set one timer for all delayed keys; it fires at or before the first due time, and an early one is
        harmless.
        """
        due = self._delayed.next_time
        if due is None or (self._timer is not None and self._timer_at <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(due, self._on_timer, due)
        self._timer_at = due

    def _on_timer(self, due: float) -> None:
        self._timer = None
        for key in self._delayed.pop_due(max(due, _clock())):  # the loop may fire slightly early
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

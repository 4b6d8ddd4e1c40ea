"""One operator process in a simulated cluster: the production operator, whose steps are taken at simulated times.

It builds the operator from the ports that it is given and leads by the Lease that these name. Whoever simulates decides
when usage is ingested, which workloads are reconciled at which second, and when Intents run; nothing happens in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Never

from trimtab.kube.errors import KubeError
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.runtime.delay_heap import DelayHeap
from trimtab.lab.simulator.election import SimulatedClock
from trimtab.lab.simulator.simulated_informers import SimulatedInformerSet
from trimtab.lab.simulator.world import SimulatedWorld
from trimtab.operator.leader import PRUNE_INTERVAL, LeaderSession, lead
from trimtab.operator.wiring import Controllers, Ports, build_operator
from trimtab.timing import Interval

STATUS_INTERVAL = 3600.0
"""The simulated seconds between two writes of the statuses of policies, which nothing in a simulation waits for."""


class OperatorProcess:
    """A process that leads whenever it holds the Lease; `start` it, and `stop` it in the end."""

    def __init__(
        self,
        world: SimulatedWorld,
        ports: Ports,
        *,
        clock: SimulatedClock,
        informers: SimulatedInformerSet,
        step: float,
        min_requeue_delay: float,
        status_interval: float = STATUS_INTERVAL,
        workers: int = 1,
    ) -> None:
        """Create a process; a workload is reconciled again after `min_requeue_delay` at the earliest.

        So many `workers` reconcile at the same time.
        """
        self._workers = workers
        self._world = world
        self._ports = ports
        self._clock = clock
        self._informers = informers
        self._step = step
        self._min_requeue_delay = min_requeue_delay
        self._workqueue: DelayHeap[WorkloadKey] = DelayHeap()
        self.operator = build_operator(ports)
        self.session: LeaderSession | None = None
        """The present leader session."""
        self.controllers: Controllers
        """The controllers of the present or the last session."""
        self._tasks: list[asyncio.Task[None]] = []
        self._status_interval = Interval(status_interval)

    @property
    def now(self) -> float:
        """The time by the clock of this process."""
        return self._ports.now()

    @property
    def queue_length(self) -> int:
        """The number of workloads that wait to be reconciled."""
        return len(self._workqueue)

    @property
    def next_due(self) -> float | None:
        """The simulated time at which the next workload is due; None if none is."""
        return self._workqueue.next_time

    def watch(self) -> None:
        """Begin to keep the caches current; objects that are added before `start` are in the first list."""
        self._tasks.append(asyncio.create_task(self.operator.cluster_state.run()))

    async def start(self) -> None:
        """Take part in the election."""
        await self.operator.cluster_state.wait_synced()
        self._tasks.append(asyncio.create_task(lead(self.operator, self._run_session, enqueue=self._enqueue)))
        await self._clock.settle()

    async def stop(self) -> None:
        """Cancel all tasks; a session saves what it learned, as at an orderly shutdown."""
        # Not the caches first: the end of a session still reads them.
        for task in reversed(self._tasks):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._tasks.clear()

    async def advance(self) -> None:
        """Let the election notice that time has passed."""
        await self._clock.advance()
        leading = self._tasks[-1]
        # The end of a session saves to the store, in threads: no simulated time may pass until that is done, or the same
        # seed would lose and regain the leadership at other times.
        while self.session is None and not self._clock.has_sleepers and not leading.done():  # noqa: ASYNC110 - tasks of two clocks
            await asyncio.sleep(0.001)
        if leading.done():
            await leading  # raise its error: a failed election looks like a cluster without an operator

    async def ingest(self) -> None:
        """Ingest usage, if this process leads."""
        if self.session is not None:
            await self.session.ingest(self.now)

    async def reconcile_due(
        self, *, on_error: Callable[[WorkloadKey, Exception], float] | None = None
    ) -> None:
        """Reconcile every workload that is due, if this process leads.

        `on_error` returns the seconds until a workload whose reconcile failed is tried again; without it the error is
        raised.
        """
        # In the order of names: the order of requests may depend on a process's hash seed.
        keys = sorted(self._workqueue.pop_due(self._world.control_time))
        for first in range(0, len(keys), self._workers):
            together = [self._reconcile(key, on_error) for key in keys[first : first + self._workers]]
            found = await asyncio.gather(*together, return_exceptions=True)
            if errors := [each for each in found if isinstance(each, BaseException)]:
                raise errors[0]
            self._informers.sync()

    async def _reconcile(
        self, key: WorkloadKey, on_error: Callable[[WorkloadKey, Exception], float] | None
    ) -> None:
        if self.session is None:
            return  # the next session enqueues all workloads
        try:
            again = await self.session.reconcile(key, self.now)
        except Exception as error:
            if on_error is None:
                raise
            again = on_error(key, error)
        if again is not None:
            self._workqueue.put(key, self._world.control_time + max(again, self._min_requeue_delay))

    async def finish_step(self, *, on_error: Callable[[object, KubeError], None] | None = None) -> None:
        """Do what the operator does beside ingesting and reconciling: history, statuses of policies, retention.

        `on_error` gets each policy whose status could not be written; without it the error is raised.
        """
        if (session := self.session) is None:
            return
        await session.controllers.recorder.flush()
        if self._status_interval.due(self.now):
            self._status_interval.restart(self.now)
            for policy in list(self.operator.cluster_state.policies):
                try:
                    await session.controllers.status_writer.write_status(policy.key)
                except KubeError as error:
                    if on_error is None:
                        raise
                    on_error(policy, error)
            await session.controllers.qos_status_writer.write_statuses()
        if self._prune_interval.due(self.now):
            self._prune_interval.restart(self.now)
            await session.retention_task.prune()

    async def run_intents(self) -> None:
        """Run a cycle of the Intents, if one is due and this process leads."""
        if (
            self.session is None
            or not self.operator.config.intents.enabled
            or not self._intent_interval.due(self.now)
        ):
            return
        self._intent_interval.restart(self.now)
        controllers = self.session.controllers
        await controllers.intent_controller.run_once(self.now)
        await controllers.effect_learner.flush()
        # The statuses that were written: the next cycle reads them from the cache, as after a watch event.
        self._informers.sync()

    def _enqueue(self, key: WorkloadKey) -> None:
        self._workqueue.put(key, self._world.control_time)

    async def _run_session(self, session: LeaderSession) -> Never:
        """Hold a leader session open; its steps are taken at simulated times."""
        self.session, self.controllers = session, session.controllers
        # The keys of an earlier session: this one enqueues all workloads itself, after its first ingest cycle.
        self._workqueue = DelayHeap()
        interval = self.operator.config.intents.interval.seconds
        self._intent_interval = Interval(max(interval, self._step), last=self.now)
        self._prune_interval = Interval(PRUNE_INTERVAL)
        try:
            await session.hold(self._wait)
        finally:
            self.session = None
        raise AssertionError("unreachable")

    async def _wait(self, _: asyncio.TaskGroup) -> Never:
        """Wait for the end of the session: all of its work is done by the steps."""
        try:
            await asyncio.Event().wait()
        finally:
            self.session = None  # before it is saved: from now on no step may be taken
        raise AssertionError("unreachable")

"""A leader session: ingest usage, reconcile workloads and write statuses until the Lease is lost.

Every session starts from the state of the cluster and the store, because another replica may have led in between.
`run` takes the steps at their times by the clock; the simulator takes the same steps at simulated times.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Never

import structlog

from trimtab.kube.errors import KubeError, describe
from trimtab.kube.kinds.policies import Policy
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.runtime.leader_election import LeadershipLost, report_sole_leader
from trimtab.kube.runtime.workqueue import WorkQueue
from trimtab.memory_trim import release_compiler_memory
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.intents.plugin_setup import check_plugins
from trimtab.operator.wiring import Controllers, Operator
from trimtab.store import Retention, Store, StoreError

log = structlog.get_logger(__name__)

WORKERS = 8
"""The number of workloads that are reconciled concurrently."""
SHUTDOWN_TIMEOUT = 5.0
"""The seconds that the end of a session waits for the store to write pending history."""
FEATURE_RETRY_INTERVAL = 5.0
"""The seconds after which feature detection is retried."""

PRUNE_INTERVAL = 6 * 3600.0
"""The seconds between two prunes of the store; if it is unavailable, the next one is soon enough."""

RunSession = Callable[["LeaderSession"], Coroutine[Any, Any, Never]]


class LeaderSession:
    """The work of a leader; create one for each session and `run` it once."""

    def __init__(
        self,
        operator: Operator,
        *,
        may_write: Callable[[], bool],
        enqueue: Callable[[WorkloadKey], None] | None = None,
    ) -> None:
        """Create a session; without `enqueue`, a work queue reconciles the workloads while it runs."""
        self._operator = operator
        self._config = operator.ports.config
        self.workload_queue: WorkQueue[WorkloadKey] = WorkQueue(
            "workloads",
            lambda key: self.reconcile(key, time.time()),
            # One namespace may make thousands of workloads ready at once, again and again, by changing a policy.
            group=lambda key: key.namespace,
            workers=WORKERS,
        )
        self.enqueue: Callable[[WorkloadKey], None] = enqueue or self.workload_queue.add
        """Reconciles a workload soon, because something about it changed."""
        self.controllers: Controllers = operator.build_controllers(may_write=may_write, enqueue=self.enqueue)
        self.views = self.controllers.views
        self.retention_task = RetentionTask(operator.ports.store, now=operator.ports.now)
        self._applied_config: OperatorConfig | None = None
        """The configuration of the last reconcile of all workloads; None before the first one."""
        self._was_stopped = False
        """True if that reconcile was to change nothing, because of an emergency stop or one that could not be read."""
        self._reported_config_problem = ""
        """The configuration problem that the statuses of policies report."""

    def policy_changed(self, policy: Policy, old: Policy | None) -> None:
        """Update a policy's status because it was created, deleted or changed; it may select no workload."""
        if policy is old or old is None or not policy.is_equivalent_to(old):
            self.controllers.status_writer.enqueue(policy.key)

    # The steps

    async def reconcile(self, key: WorkloadKey, now: float) -> float | None:
        """Reconcile one workload and return the seconds until the next reconcile."""
        return await self.controllers.reconciler.reconcile(key, now)

    async def ingest(self, now: float) -> None:
        """Ingest usage, and reconcile all workloads if this is the first time or the configuration changed."""
        await self.controllers.ingest_cycle.run_once(now)
        # Bounds, windows and limits come from the configuration, and a new one causes no event of any
        # workload. Nor does an emergency stop that can be read at last and does not exist.
        if self._config.current is not self._applied_config or self._is_stopped() is not self._was_stopped:
            self.enqueue_all()
        # The operator goes on with the last valid configuration, so users of a policy would not notice the
        # invalid one.
        if self._config.problem != self._reported_config_problem:
            self._reported_config_problem = self._config.problem
            for policy in self._operator.cluster_state.policies:
                self.controllers.status_writer.enqueue(policy.key)

    def _is_stopped(self) -> bool:
        return bool(self._operator.emergency_stop.reason)

    def enqueue_all(self) -> None:
        """Reconcile all workloads."""
        parts, cluster_state = self.controllers, self._operator.cluster_state
        self._applied_config, self._was_stopped = self._config.current, self._is_stopped()
        parts.limiter.set_limits(self._applied_config.disruption_limits.limits)
        policies = {
            workload.key: self._operator.policy_resolver.resolve(workload)
            for workload in cluster_state.list_workloads()
        }
        # A status that is written halfway would count only some of the workloads of its policy.
        parts.status_writer.hold_until_reconciled(
            {key: policy.key for key, policy in policies.items() if policy}
        )
        # Policies that select no workload are enqueued by no reconcile, and would keep the status of the
        # last session.
        for each in cluster_state.policies:
            parts.status_writer.enqueue(each.key)
        # In order, so that the workloads of a policy are reconciled together.
        for key in sorted(policies.keys() | parts.vpa_recommender.targets()):
            self.enqueue(key)

    async def detect_features(self) -> bool:
        """Detect the cluster's features; return False, keeping the known ones, if the API server does not answer."""
        try:
            await self._operator.ports.features.detect()
        except KubeError as error:
            log.warning("operator.feature_detection_failed", error=describe(error))
            return False
        return True

    async def save(self) -> None:
        """Store the history and everything learned, for the next leader."""
        # A store that does not answer must not delay the release of the Lease, for which another replica
        # waits.
        with suppress(TimeoutError):
            async with asyncio.timeout(SHUTDOWN_TIMEOUT):
                await asyncio.shield(self.controllers.recorder.flush())
        # Shielded against a second cancellation, which would lose what was learned since the last save.
        await asyncio.shield(self.controllers.recommender.save(self._operator.ports.now()))
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(SHUTDOWN_TIMEOUT):
                await asyncio.shield(self.controllers.savings.save(self._operator.ports.now()))

    def clear_gauges(self) -> None:
        """Remove the gauges about workloads: the next leader reports them."""
        self.controllers.gauges.clear()
        self.controllers.cost_gauges.clear()
        self.controllers.recommender.clear_gauges()

    async def hold(self, work: Callable[[asyncio.TaskGroup], Coroutine[Any, Any, Never]]) -> Never:
        """Do what comes first in a session, then its work, and in the end save what was learned."""
        # Without feature detection, pods would be replaced that can be resized in place.
        while not await self.detect_features():  # noqa: ASYNC110 - the API server must be polled
            await asyncio.sleep(FEATURE_RETRY_INTERVAL)
        try:
            async with asyncio.TaskGroup() as group:
                try:
                    # Before the first cycle: its few samples would otherwise replace what the VPA's own recommender
                    # learned in weeks.
                    await self.controllers.vpa_recommender.load_checkpoints(self._operator.ports.now())
                    await work(group)
                finally:
                    await self.save()
        finally:
            self.clear_gauges()  # only now: a task of the group could set them again
        raise AssertionError("unreachable")

    # By the clock

    async def run(self) -> Never:
        """Ingest usage every cycle, and reconcile whatever changed."""
        await self.hold(self._run_tasks)

    async def _run_tasks(self, group: asyncio.TaskGroup) -> Never:
        parts = self.controllers
        group.create_task(self.retention_task.run())
        group.create_task(parts.recorder.run())
        group.create_task(parts.qos_status_writer.run())
        group.create_task(parts.node_prices.run())
        group.create_task(self._run_intents())
        await self.ingest(time.time())
        # The first cycle has loaded the kernels of the strategies: from now on LLVM is hardly used, and its pages would
        # only count towards the pod's memory. Releasing them in every cycle saved 12 MiB more and nothing else.
        release_compiler_memory()
        # Only now: before the first cycle, a status would report no workloads and no usage.
        group.create_task(parts.status_writer.queue.run())
        group.create_task(self.workload_queue.run())
        step = self._operator.ports.schedule.step
        while True:
            # Wait until the last step is over and has been scraped.
            await asyncio.sleep(step - time.time() % step + step / 10)
            # An upgrade of the control plane may add or remove the resize of pods while the operator runs.
            await self.detect_features()
            await self.ingest(time.time())

    async def _run_intents(self) -> Never:
        parts, ports = self.controllers, self._operator.ports
        async with parts.kpi_connections, asyncio.TaskGroup() as group:
            group.create_task(check_plugins(ports.plugin_registry, ports.metrics))
            group.create_task(parts.effect_learner.run())
            await parts.intent_controller.run()
        raise AssertionError("unreachable")


async def lead(
    operator: Operator,
    run: RunSession = LeaderSession.run,
    *,
    enqueue: Callable[[WorkloadKey], None] | None = None,
) -> Never:
    """Run a leader session whenever this replica is elected; without an election, right away."""

    async def run_session(may_write: Callable[[], bool]) -> Never:
        session = LeaderSession(operator, may_write=may_write, enqueue=enqueue)
        operator.session = session
        try:
            await run(session)
        finally:
            # Otherwise events of the cluster would be enqueued to a session that has ended, and the
            # dashboard would show it.
            operator.session = None
        raise AssertionError("unreachable")

    while True:
        # A new candidate with the current configuration: what the old one knew about the Lease is out of
        # date.
        elector = operator.build_elector()
        if elector is None:
            with report_sole_leader(operator.config.namespace, operator.config.leader_election.name):
                await run_session(lambda: True)
        try:
            await elector.lead(lambda: run_session(lambda: elector.is_leader))  # noqa: B023 - awaited here
        except LeadershipLost as error:
            log.warning("operator.leadership_lost", reason=str(error))


class RetentionTask:
    """Prunes one store periodically, so that it does not fill its disk; `run` it as a task while leading."""

    def __init__(self, store: Store, *, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now

    async def run(self) -> Never:
        """Prune at every interval until cancelled."""
        while True:
            await self.prune()
            await asyncio.sleep(PRUNE_INTERVAL)

    async def prune(self) -> None:
        """Delete what the default retention no longer keeps."""
        try:
            await self._store.prune(Retention(), now=self._now())
        # The next prune deletes what this one did not; a failure must not end the leader session.
        except StoreError as error:
            log.warning("store.prune_failed", error=str(error))

"""A term as leader: reads usage, learns, looks at workloads and writes statuses, until the lease is lost.

Every term begins from what is in the cluster and the store, for another may have led in between.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Never

import structlog

from trimtab.actuation.executor import Actuator
from trimtab.actuation.kube_cluster import LiveCluster
from trimtab.actuation.rate_limiter import Pacer
from trimtab.intents.plugins.registry import Registry
from trimtab.kube.errors import KubeError, describe
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.policies import Policy
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.capabilities import Version, lowers_memory_limits, resizes_in_place, server_version
from trimtab.kube.rest.client import Client
from trimtab.kube.runtime.event_recorder import EventRecorder
from trimtab.kube.runtime.workqueue import WorkQueue
from trimtab.memory_trim import let_go_of_llvm
from trimtab.operator.audit import LiveJournal
from trimtab.operator.cluster_state import Catalog
from trimtab.operator.config.reloader import LiveConfig
from trimtab.operator.intents.intent_index import Roll
from trimtab.operator.intents.safe_sizes import LearnedSafeSizes
from trimtab.operator.intents.session import IntentTerm
from trimtab.operator.metrics import Metrics
from trimtab.operator.nodeqos.status_writer import NodeQuality
from trimtab.operator.policy.competing_controllers import Rivals
from trimtab.operator.policy.gauges import Tally
from trimtab.operator.policy.matching import Standing, standings
from trimtab.operator.policy.resolver import Orders
from trimtab.operator.policy.status import Weather
from trimtab.operator.policy.status_writer import PolicyKey, Statuses
from trimtab.operator.sizing.guardrails import PromQLGuardrails
from trimtab.operator.sizing.ingest_cycle import Turns
from trimtab.operator.sizing.reconciler import SizingLoop
from trimtab.operator.state import Desk
from trimtab.operator.store_retention import Tidying
from trimtab.operator.vpa.recommender import DropIn
from trimtab.recommender.recommender import DEFAULT, Learning
from trimtab.recommender.source_ingester import Pace, School
from trimtab.store import Store
from trimtab.usage.prometheus.source import Prometheus
from trimtab.usage.source import Source

log = structlog.get_logger(__name__)

WORKERS = 8
LAST_WORDS = 5.0
"""Seconds that the end of a leader session waits for the store to take what waits for its history."""
ASK_AGAIN = 5.0
"""Seconds after which a server that did not say what it can do is asked again."""
STANDINGS_LAST = 10.0
"""Seconds for which it is not counted again which policies overlap."""


@dataclass(frozen=True, kw_only=True)
class Means:
    """What a process has to lead with: the same for every term of it."""

    client: Client
    catalog: Catalog
    events: EventRecorder
    sources: Mapping[str, Source[Any]]
    store: Store
    config: LiveConfig
    metrics: Metrics
    pace: Pace = field(default_factory=Pace)
    roll: Roll | None = None
    """None where nobody looks after intents."""
    registry: Registry = field(default_factory=Registry)

    @property
    def prometheus(self) -> Prometheus | None:
        """Whatever is asked in PromQL, and is no usage, is asked of the first source that understands it."""
        return next((each for each in self.sources.values() if isinstance(each, Prometheus)), None)


class Term:
    """What a leader does; made anew for each term, and `run` once."""

    def __init__(self, means: Means, *, may_write: Callable[[], bool]) -> None:
        self._means = means
        self._may_write = may_write
        self._catalog = catalog = means.catalog
        self._config = config = means.config
        self._resizes = False
        self._server = Version(0, 0)
        self._acted_on = config.current
        self._standings: dict[PolicyKey, Standing] = {}
        self._counted_at = float("-inf")
        self._name = catalog.cluster_name
        self._cluster = LiveCluster(means.client, means.events, kinds=catalog.kinds)
        self._learning = Learning(
            means.sources,
            means.store,
            cluster=self._name,
            pace=means.pace,
            metrics=means.metrics,
        )
        self._orders = Orders(catalog, lambda: config.current)
        self._tally = Tally(means.metrics)
        self._pacer = Pacer(config.current.pace.limits)
        self._statuses = self._made_statuses()
        self._node_quality = NodeQuality(
            means.client,
            policies=catalog.node_policies,
            nodes=catalog.nodes,
            may_write=may_write,
            now=time.time,
        )
        self._tidying = Tidying(means.store, now=time.time)
        self._vpas = DropIn(
            means.client, catalog, may_write=may_write, dry_run=lambda: config.current.dry_run
        )
        self._rivals = Rivals(catalog, means.roll, lambda: config.current)
        self._turns = Turns(
            catalog=catalog,
            orders=self._orders,
            learning=self._learning,
            statuses=self._statuses,
            vpas=self._vpas,
            look_again=self.look_again,
            metrics=means.metrics,
            intent_targets=self._rivals.intent_targets,
        )
        self._journal = LiveJournal(
            means.client,
            self._cluster,
            means.store,
            name=self._name,
            metrics=means.metrics,
            may_annotate=lambda: may_write() and not config.current.dry_run,
        )
        self._shown_problem = ""
        """What the statuses of policies say is wrong with the configuration."""
        self._loop = self._made_loop()
        self._intents = self._made_intents(means.roll) if means.roll else None
        self.desk = Desk(
            name=self._name,
            objects=means.client,
            catalog=catalog,
            orders=self._orders,
            learning=self._learning,
            statuses=self._statuses,
            store=means.store,
            intents=self._intents.desk if self._intents else None,
        )
        self._workloads: WorkQueue[WorkloadKey] = WorkQueue(
            "workloads", lambda key: self._loop.look(key, time.time()), workers=WORKERS
        )

    def _made_statuses(self) -> Statuses:
        return Statuses(
            self._means.client,
            policy=self._policy,
            standing=self._standing,
            problem=lambda policy: self._orders.of_policy(policy).problem,
            weather=self._weather,
            may_write=self._may_write,
            events=self._means.events,
            tally=self._tally,
        )

    def _made_loop(self) -> SizingLoop:
        means = self._means
        rivals = self._rivals
        return SizingLoop(
            catalog=self._catalog,
            orders=self._orders,
            learning=self._learning,
            actuator=Actuator(self._cluster, may_write=self._may_write, pacer=self._pacer),
            statuses=self._statuses,
            journal=self._journal,
            guardrails=PromQLGuardrails(means.prometheus),
            vpas=self._vpas,
            neighbourhood=lambda: self._turns.neighbourhood,
            resizes_in_place=lambda: self._resizes,
            memory_limits_stay=self._memory_limits_stay,
            metrics=means.metrics,
            intent=rivals.intent,
            unread=rivals.unread,
        )

    def _made_intents(self, roll: Roll) -> IntentTerm:
        means = self._means
        return IntentTerm(
            client=means.client,
            cluster=self._cluster,
            catalog=self._catalog,
            roll=roll,
            safe_sizes=LearnedSafeSizes(
                self._catalog, self._orders, self._learning, lambda: self._turns.neighbourhood
            ),
            registry=means.registry,
            events=means.events,
            usage=means.prometheus or means.sources[DEFAULT],
            store=means.store,
            name=self._name,
            config=self._config,
            metrics=means.metrics,
            pacer=self._pacer,
            may_write=self._may_write,
            resizes_in_place=lambda: self._resizes,
            memory_limits_stay=self._memory_limits_stay,
        )

    def look_again(self, key: WorkloadKey) -> None:
        """Something about this workload has changed."""
        self._workloads.add(key)

    def policy_changed(self, policy: Policy, old: Policy | None) -> None:
        """It is new, gone, or wants something else; its workloads are told apart, and it may have none."""
        if policy is old or old is None or not policy.says_the_same_as(old):
            self._statuses.look_again(policy.key)

    async def run(self) -> Never:
        """Turn after turn, and a look at whatever changed."""
        try:
            async with asyncio.TaskGroup() as group:
                await self._work(group)
        finally:
            self._tally.clear()
            self._learning.clear_gauges()
        raise AssertionError("unreachable")

    async def _work(self, group: asyncio.TaskGroup) -> Never:
        # Or pods would be replaced that need not be.
        while not await self._look_at_features():  # noqa: ASYNC110 - it has to be asked
            await asyncio.sleep(ASK_AGAIN)
        group.create_task(self._tidying.run())
        group.create_task(self._journal.run())
        group.create_task(self._node_quality.run())
        try:
            if self._intents is not None:
                group.create_task(self._intents.run())
            await self._vpas.begin(time.time())
            await self._take_turn()
            self._look_at_all()
            # Not before: a status would tell of no workload, and of usage that nobody has read yet.
            group.create_task(self._statuses.queue.run())
            group.create_task(self._workloads.run())
            await self._take_turns()
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORDS):
                    await asyncio.shield(self._journal.catch_up())
            await asyncio.shield(self._learning.save(time.time()))

    async def _take_turns(self) -> Never:
        while True:
            step = self._means.pace.step
            await asyncio.sleep(
                step - time.time() % step + step / 10
            )  # when the last step is over and scraped
            await self._look_at_features()
            await self._take_turn()
            if self._config.current is not self._acted_on:
                self._look_at_all()
            if self._config.problem != self._shown_problem:
                self._shown_problem = self._config.problem
                for policy in self._catalog.policies:
                    self._statuses.look_again(policy.key)

    async def _take_turn(self) -> None:
        let_go_of_llvm()  # what the imports, or the last turn's new strategies, have left
        await self._turns.take(time.time())
        let_go_of_llvm()

    def _look_at_all(self) -> None:
        """At the start, and when the configuration says something else."""
        self._acted_on = self._config.current
        self._pacer.adopt(self._acted_on.pace.limits)
        mandates = {workload.key: self._orders.of(workload) for workload in self._catalog.workloads()}
        self._statuses.expect({key: mandate.key for key, mandate in mandates.items() if mandate})
        for policy in self._catalog.policies:
            self._statuses.look_again(policy.key)
        # In order, so that those of a policy are looked at together.
        for key in sorted(mandates.keys() | self._vpas.targets()):
            self.look_again(key)

    async def _look_at_features(self) -> bool:
        """See what the cluster can do by now; False when it does not say, and what was known holds."""
        try:
            self._resizes = await resizes_in_place(self._means.client)
            self._server = (await server_version(self._means.client)).version
        except KubeError as error:
            log.warning("operator.features_unknown", error=describe(error))
            return False
        return True

    def _memory_limits_stay(self, pods: Iterable[Pod]) -> bool:
        """Whether the server, or a kubelet of these pods, does not lower memory limits in place."""
        nodes = [self._catalog.nodes.get(name) for name in {pod.node for pod in pods}]
        kubelets = [Version.parse(node.kubelet) for node in nodes if node]
        return not lowers_memory_limits(self._server, *kubelets)

    def _policy(self, key: PolicyKey) -> Policy | None:
        namespace, name = key
        return self._catalog.policies.get(name, namespace)

    def _standing(self, policy: Policy) -> Standing:
        if time.monotonic() - self._counted_at > STANDINGS_LAST:
            found = standings(self._catalog.selection, self._catalog.workloads())
            self._standings = {each.key: standing for each, standing in found.items()}
            self._counted_at = time.monotonic()
        return self._standings.get(policy.key) or Standing()

    def _weather(self, policy: Policy) -> Weather:
        school = self._learning.of(self._orders.of_policy(policy).sizing)
        return Weather(
            now=time.time(),
            usage_trouble=school.trouble,
            source=school.name,
            usage_since=school.since,
            unsampled=tuple(sorted(self._unsampled(school, policy))),
            dry_run=self._config.current.dry_run,
            config_problem=self._config.problem,
        )

    def _unsampled(self, school: School, policy: Policy) -> Iterator[str]:
        """Name the policy's containers that run, but have no samples."""
        for namespace, pod, container in school.unsampled:
            found = self._catalog.pods.get(pod, namespace)
            workload = self._catalog.workload_of(found) if found else None
            mandate = self._orders.of(workload) if workload else None
            if mandate and mandate.key == policy.key:
                yield f"{namespace}/{pod} {container}"

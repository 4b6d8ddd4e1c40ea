"""The stage: the operator of production at work on a simulated cluster, in simulated time.

What decides and acts is not written here: turns learn from usage, the sizing loop looks at workloads, the actuator
resizes, watches and takes back, all of them the very classes that run in a cluster. The stage only calls them when
their time has come: looks in between two steps at the second that they asked for, turns when a step is over.

    async with Stage(scene, policies={"all": OptimizationPolicySpec(mode=Mode.AUTO)}, seed=7) as stage:
        stage.observe(lambda moment: print(moment.cpu_requested))
        await stage.run(86400)

Left out: intents, leadership, the webhook, and whatever waits on a network.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from trimtab.actuation.executor import Actuator
from trimtab.actuation.rate_limiter import Pacer
from trimtab.api.optimizationpolicy import OptimizationPolicySpec
from trimtab.kube.kinds.policies import Policy
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.kube.rest.client import Object
from trimtab.kube.rest.resources import OPTIMIZATION_POLICIES
from trimtab.kube.runtime.delay_heap import Schedule
from trimtab.lab.simulator.autoscaler import Autoscaler
from trimtab.lab.simulator.fake_cluster import SimulatedCluster
from trimtab.lab.simulator.metrics import Moment, moment, needed_by
from trimtab.lab.simulator.objects import uid_of
from trimtab.lab.simulator.scenario import Scene
from trimtab.lab.simulator.simulated_informers import SimulatedFollowing, SimulatedObjects
from trimtab.lab.simulator.usage_source import SimulatedUsage
from trimtab.lab.simulator.world import World
from trimtab.operator.audit import LiveJournal
from trimtab.operator.cluster_state import Catalog
from trimtab.operator.config.model import Guardrail, OperatorConfig
from trimtab.operator.intents.safe_sizes import LearnedSafeSizes
from trimtab.operator.metrics import Metrics
from trimtab.operator.policy.gauges import Tally
from trimtab.operator.policy.matching import Standing, standings
from trimtab.operator.policy.resolver import Orders
from trimtab.operator.policy.status import Outcome, Weather
from trimtab.operator.policy.status_writer import PolicyKey, Silence, Statuses
from trimtab.operator.sizing.ingest_cycle import Turns
from trimtab.operator.sizing.reconciler import SizingLoop
from trimtab.operator.state import Desk
from trimtab.operator.vpa.recommender import DropIn
from trimtab.recommender.recommender import DEFAULT, Learning
from trimtab.recommender.source_ingester import Pace
from trimtab.store import Store

COUNT_EVERY = 3600.0
"""Seconds after which the nodes that are needed are counted again."""
PATIENCE = 60.0
SAMPLES_KEPT = 2 * 3600.0
"""Seconds of usage that are kept at least: as long as a change is watched."""

Observer = Callable[[Moment], None]


class Stage:
    """A scene with an operator on it; without policies there is none, and requests stay as they are."""

    def __init__(
        self,
        scene: Scene,
        *,
        policies: Mapping[str, OptimizationPolicySpec] | None = None,
        seed: int = 0,
        step: float | None = None,
        past: float = 0.0,
        keep: float = SAMPLES_KEPT,
        patience: float = PATIENCE,
        pack: bool = False,
        autoscale: bool = False,
        config: OperatorConfig | None = None,
    ) -> None:
        """`step` is that of demand when not given; `past` is for how long usage is known when the operator begins, and
        `keep` for how long it is remembered at least. `patience` is how long at least passes until a workload is
        looked at again that only time could change, and at most half a step; events are answered at once.

        `pack` has the scheduler fill nodes instead of spreading pods, `autoscale` has nodes come and go as needed.
        """
        self.step = step or scene.demand.step
        self.world = World(scene, seed=seed, pack=pack)
        self.config = config or OperatorConfig()
        self._autoscaler = Autoscaler(self.world) if autoscale else None
        self._policies = _records(policies or {}, home=self.config.namespace)
        self._past = past
        # Usage stays as it is within a step: who only waits for it need not look every few seconds.
        self._patience = min(patience, self.step / 2)
        self._observers: list[Observer] = []
        self._looks: Schedule[WorkloadKey] = Schedule()
        self._needed, self._counted_at = 0, float("-inf")
        self._leaving = contextlib.AsyncExitStack()
        self.metrics = Metrics()
        """What the operator counts of itself."""
        self.usage = SimulatedUsage(self.world, keep=max(past, keep, SAMPLES_KEPT) + self.step)
        self.cluster = SimulatedCluster(self.world)
        self.following = SimulatedFollowing(self.world)
        """What the catalog follows; who puts an object of another kind in there has it followed too."""
        self._objects = SimulatedObjects(self.world)

    # Watching

    def observe(self, observer: Observer) -> None:
        """Have it called with every moment from now on."""
        self._observers.append(observer)

    @property
    def now(self) -> float:
        """Simulated seconds since 1970."""
        return self.world.now

    def outcomes(self) -> dict[WorkloadKey, Outcome]:
        """What became of each workload at the operator's last look: state, reason, recommendations."""
        found = ((key, self._statuses.outcome(key)) for key in self.world.workloads)
        return {key: outcome for key, outcome in found if outcome}

    async def status(self, policy: str) -> Object:
        """The status of a policy, as the operator writes it."""
        key = self.config.namespace, policy
        await self._statuses.write(key)
        return self._objects.statuses.get(("OptimizationPolicy", *key), {})

    # Running

    async def __aenter__(self) -> Self:
        folder = self._leaving.enter_context(tempfile.TemporaryDirectory(prefix="trimtab-stage-"))
        self.store = await self._leaving.enter_async_context(Store.open(Path(folder) / "stage.db"))
        self._assemble()
        picture = asyncio.create_task(self.catalog.run())
        self._leaving.push_async_callback(_ended, picture)
        self.following.begin()
        for policy in self._policies:
            self.following.put(OPTIMIZATION_POLICIES, policy)
        await self.catalog.ready()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._leaving.aclose()

    async def run(self, seconds: float) -> None:
        """Let so much time pass, in whole steps; the past, which the operator does not see happen, comes first."""
        if self._past and not self.world.steps:
            for _ in range(round(self._past / self.step)):
                self._advance()
        if not self.world.steps:
            self._advance()
            seconds -= self.step
        for _ in range(round(seconds / self.step)):
            if self._policies:
                await self._turns.take(self.now)
                await self._look_until(self.now + self.step)
                await self._journal.catch_up()
            self._advance()

    def _advance(self) -> None:
        self.world.step(self.step)
        self.usage.take()
        if self._autoscaler:
            self._autoscaler.look()
        self.following.refresh()
        if self.now - self._counted_at >= COUNT_EVERY:
            self._needed, self._counted_at = needed_by(self.world), self.now
        found = moment(self.world, needed=self._needed)
        for observer in self._observers:
            observer(found)

    async def _look_until(self, end: float) -> None:
        """All looks whose time comes before the next step is over, each at its own time."""
        while (at := self._next()) is not None and at < end:
            self.world.settle(max(at, self.world.time))
            self.following.refresh()
            # In order of their names, for who asked first may depend on how a process hashes.
            for key in sorted(self._looks.pop_due(self.world.time)):
                again = await self._loop.look(key, self.world.time)
                self.following.refresh()
                if again is not None:
                    self._looks.put(key, self.world.time + max(again, self._patience))

    def _next(self) -> float | None:
        times = (self._looks.next_time, self.world.due.next_time)
        return min((at for at in times if at is not None), default=None)

    def _look_again(self, key: WorkloadKey) -> None:
        self._looks.put(key, self.world.time)

    # Putting it together, as `operator.term` does

    def _assemble(self) -> None:
        name = "simulation"
        self.catalog = Catalog(self.following, home=self.config.namespace, look_again=self._look_again)
        orders = Orders(self.catalog, lambda: self.config)
        sources = {DEFAULT: self.usage}
        learning = Learning(sources, self.store, cluster=name, pace=self._pace(), metrics=self.metrics)
        self._statuses = Statuses(
            self._objects,
            policy=self._policy,
            standing=self._standing,
            problem=lambda policy: orders.of_policy(policy).problem,
            weather=lambda _: Weather(
                now=self.now, usage_trouble=learning.troubles.get(DEFAULT, ""), source=self.usage.name
            ),
            may_write=lambda: True,
            events=Silence(),
            tally=Tally(self.metrics),
        )
        self.desk = Desk(
            name=name,
            objects=self._objects,
            catalog=self.catalog,
            orders=orders,
            learning=learning,
            statuses=self._statuses,
            store=self.store,
        )
        vpas = DropIn(self._objects, self.catalog, may_write=lambda: True, dry_run=lambda: False)
        self._turns = Turns(
            catalog=self.catalog,
            orders=orders,
            learning=learning,
            statuses=self._statuses,
            vpas=vpas,
            look_again=self._look_again,
            metrics=self.metrics,
        )
        self.safe_sizes = LearnedSafeSizes(self.catalog, orders, learning, lambda: self._turns.neighbourhood)
        """What Intents on this stage must respect."""
        self._journal = LiveJournal(
            self._objects,
            self.cluster,
            self.store,
            name=name,
            metrics=self.metrics,
            may_annotate=lambda: True,
        )
        self._loop = SizingLoop(
            catalog=self.catalog,
            orders=orders,
            learning=learning,
            actuator=Actuator(self.cluster, may_write=lambda: True, pacer=Pacer(self.config.pace.limits)),
            statuses=self._statuses,
            journal=self._journal,
            guardrails=_Objectives(self.world),
            vpas=vpas,
            neighbourhood=lambda: self._turns.neighbourhood,
            resizes_in_place=lambda: True,
            metrics=self.metrics,
        )

    def _pace(self) -> Pace:
        past_step = self.step * max(1, round(300.0 / self.step))
        return Pace(
            step=self.step, past_step=past_step, past=max(self._past, past_step), save_every=float("inf")
        )

    def _policy(self, key: PolicyKey) -> Policy | None:
        namespace, name = key
        return self.catalog.policies.get(name, namespace)

    def _standing(self, policy: Policy) -> Standing:
        found = standings(self.catalog.selection, self.catalog.workloads())
        return found.get(policy) or Standing()


class _Objectives:
    """Guardrails in the lab: whatever they ask, they hold while a service meets its objective."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def verdicts(
        self, workload: Workload, guardrails: Sequence[Guardrail], *, now: float
    ) -> Mapping[str, bool | None]:
        del now
        found = self._world.workloads[workload.key]
        service, slowest = found.spec.service, float(self._world.times[found.number, -1])
        holds = slowest <= service.objective if service and slowest == slowest else None  # noqa: PLR0124 - NaN
        return {guardrail.name: holds for guardrail in guardrails}


def _records(policies: Mapping[str, OptimizationPolicySpec], *, home: str) -> list[Policy]:
    return [
        Policy(
            namespace=home,
            name=name,
            uid=uid_of("policy", name),
            version=1,
            generation=1,
            created=0,
            spec=spec,
            problem="",
        )
        for name, spec in policies.items()
    ]


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

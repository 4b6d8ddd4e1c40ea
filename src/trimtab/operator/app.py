"""The operator as a process: joins the parts, waits to lead, and ends in good order.

Every replica keeps the live picture, answers the webhook and tells of its health; only the leader has a `term`. So
another can take over at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Never

import structlog

from trimtab.api.kind import INSTALL
from trimtab.kube.auth import Connection, runs_in_pod
from trimtab.kube.cache.informer_set import ABSENT, Following
from trimtab.kube.kinds.policies import Policy
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import OPTIMIZATION_POLICIES
from trimtab.kube.rest.retry import RateLimit, RetryRule
from trimtab.kube.runtime.event_recorder import EventRecorder
from trimtab.kube.runtime.leader_election import Candidate, LeadershipLost, leading_alone
from trimtab.operator.cluster_state import Catalog
from trimtab.operator.config.model import LearningSettings, OperatorConfig
from trimtab.operator.config.reloader import LiveConfig
from trimtab.operator.health import Health
from trimtab.operator.http_server import listening
from trimtab.operator.intents.intent_index import Roll
from trimtab.operator.intents.plugin_setup import plugins
from trimtab.operator.leader import Means, Term
from trimtab.operator.policy.competing_controllers import Rivals
from trimtab.operator.state import Desk
from trimtab.operator.webhook.lifecycle import Gate
from trimtab.operator.webhook.pod_sizing import Births
from trimtab.operator.webhook.server import Admission
from trimtab.recommender.source_ingester import Pace
from trimtab.store import Store
from trimtab.usage.source import source

log = structlog.get_logger(__name__)

COMPONENT = "trimtab-operator"
_OUTSIDE = "outside a pod the API server cannot reach the webhook by its Service; policies are checked by their CRD alone"
_REACHABLE = (
    "set webhook.url to an address at which the API server reaches this process, or webhook.enabled to false"
)
LOOK_FOR_LACKS = 30.0
"""Seconds between two looks for what is lacking."""

Companion = Callable[[Client, Callable[[], Desk | None]], AbstractAsyncContextManager[None]]
"""What runs beside the operator in its process, such as the dashboard: it is given the client, and asks for the desk of
the term of now, which is None while another replica leads."""


class Operator:
    """One process of the operator; `run` it until it is told to end."""

    def __init__(
        self,
        connection: Connection,
        config: LiveConfig,
        *,
        companions: Sequence[Companion] = (),
        in_pod: bool | None = None,
    ) -> None:
        """Join the parts; `in_pod` says whether the webhook's Service leads here, and is seen by the process when left out."""
        self._in_pod = runs_in_pod() if in_pod is None else in_pod
        self._companions = companions
        self._connection = connection
        self._config = config
        self._metrics = config.metrics
        self._health = Health()
        self._term: Term | None = None

    async def run(self) -> None:
        """Work until SIGTERM or SIGINT; what was learned is kept and the lease given back."""
        working = asyncio.create_task(self._work())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, working.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await working
        log.info("operator.ended")

    async def _work(self) -> Never:
        config = self._config.current
        async with AsyncExitStack() as stack:
            health = listening(self._health.application(self._metrics), config.address)
            log.info("operator.listening", port=await stack.enter_async_context(health))
            limit = RateLimit(per_second=200.0, burst=400)
            client = await stack.enter_async_context(Client(self._connection, rate=limit))
            store = await stack.enter_async_context(Store.open(config.store.url, patient=True))
            sources = {
                name: await stack.enter_async_context(
                    source(each.provider, client=client, store=store, **each.settings)
                )
                for name, each in config.sources.items()
            }
            following = Following(client)
            catalog = Catalog(following, home=config.namespace, look_again=self._look_again)
            roll = Roll(following)
            roll.on_owner_change(self._look_again)
            registry = stack.enter_context(plugins(config.intents.plugins))
            catalog.policies.on_change(self._policy_changed)
            events = EventRecorder(client, component=COMPONENT, instance=socket.gethostname(), now=_now)
            for companion in self._companions:
                await stack.enter_async_context(companion(client, self._desk))
            group = await stack.enter_async_context(asyncio.TaskGroup())
            for task in (self._config.run(), events.run(), catalog.run()):
                group.create_task(task)
            if config.webhook.enabled and not (self._in_pod or config.webhook.url):
                # The Service that stands for us in a pod leads nowhere: each policy that is written would be refused.
                log.warning("webhook.not_registered", reason=_OUTSIDE, fix=_REACHABLE)
            # One that is switched off stands down; but who only looks switches off nobody's.
            elif config.webhook.enabled or not config.dry_run:
                await stack.enter_async_context(self._webhook(client, catalog, roll, group))
            self._health.ready["cluster"] = lambda: unlisted(catalog)
            await catalog.ready()
            group.create_task(tell_of_lacks(catalog, lambda: self._config.current))

            means = Means(
                client=client,
                catalog=catalog,
                events=events,
                sources=sources,
                store=store,
                config=self._config,
                metrics=self._metrics,
                pace=_pace(config.learning),
                roll=roll,
                registry=registry,
            )
            await self._terms(means)
        raise AssertionError("unreachable")

    @asynccontextmanager
    async def _webhook(
        self, client: Client, catalog: Catalog, roll: Roll, group: asyncio.TaskGroup
    ) -> AsyncIterator[None]:
        gate = Gate(client, self._config.current, now=_now, metrics=self._metrics)

        def config() -> OperatorConfig:
            return self._config.current

        births = Births(catalog, Rivals(catalog, roll, config), config)
        admission = Admission(
            config=config,
            policies=lambda: catalog.policies,
            births=births.of if config().webhook.pods else None,
            metrics=self._metrics,
        )
        async with gate.listening(admission.application()) as port:
            if port:
                log.info("webhook.listening", port=port)
            self._health.ready["webhook"] = gate.trouble
            keeping = group.create_task(gate.run())
            try:
                yield
            finally:
                keeping.cancel()
                await asyncio.wait([keeping])
                # In a pod the Service and the other replicas stay; outside nobody listens there any more.
                if port and not self._in_pod:
                    await gate.withdraw()

    async def _terms(self, means: Means) -> Never:
        """Lead whenever we are elected."""
        election = self._config.current.leader_election
        if not election.enabled:
            with leading_alone(self._config.current.namespace, election.name):
                await self._serve(Term(means, may_write=lambda: True))
        # A client of its own, and one try a request: a renewal that waits is a renewal that comes too late.
        async with Client(self._connection, retry=RetryRule(attempts=1)) as client:
            while True:
                candidate = Candidate(
                    client,
                    name=election.name,
                    namespace=self._config.current.namespace,
                    identity=socket.gethostname(),
                    now=_now,
                    timing=election.timing,
                )
                try:
                    await candidate.lead(
                        lambda: self._serve(Term(means, may_write=lambda: candidate.leading))  # noqa: B023 - awaited here
                    )
                except LeadershipLost as error:
                    log.warning("operator.leads_no_more", reason=str(error))

    async def _serve(self, term: Term) -> Never:
        self._term = term
        try:
            await term.run()
        finally:
            self._term = None

    def _desk(self) -> Desk | None:
        return self._term.desk if self._term else None

    def _look_again(self, key: WorkloadKey) -> None:
        if self._term is not None:
            self._term.look_again(key)

    def _policy_changed(self, old: Policy | None, new: Policy | None, /) -> None:
        if self._term is not None and (found := new or old):
            self._term.policy_changed(found, old)


def unlisted(catalog: Catalog) -> str:
    """What the picture of the cluster waits for, for who asks whether we are ready; empty when it is whole."""
    if catalog.is_ready:
        return ""
    troubles = [f"{kind}: {why}" for kind, why in catalog.troubles().items() if why != ABSENT]
    return "; ".join(["its objects are being listed", *troubles])


async def tell_of_lacks(catalog: Catalog, config: Callable[[], OperatorConfig]) -> Never:
    """Tell of each thing that is lacking when it begins to: a kind or a namespace may also go while we work."""
    told: set[tuple[str, str]] = set()
    while True:
        namespaces = {each.name for each in catalog.namespaces}
        lacks = set(lacking(catalog.troubles(), namespaces, config()))
        for what, fix in sorted(lacks - told):
            log.warning("operator.lacks", what=what, fix=fix)
        told = lacks
        await asyncio.sleep(LOOK_FOR_LACKS)


def lacking(
    troubles: Mapping[str, str], namespaces: Collection[str], config: OperatorConfig
) -> Iterator[tuple[str, str]]:
    """What a newcomer's cluster may not have, without which the operator waits and nothing happens; and the fix."""
    if troubles.get(str(OPTIMIZATION_POLICIES)) == ABSENT:
        yield str(OPTIMIZATION_POLICIES), INSTALL
    if config.leader_election.enabled and config.namespace not in namespaces:
        fix = f"kubectl create namespace {config.namespace}, or name another by --set namespace=NAME"
        yield f"namespace {config.namespace}", fix


def _pace(learning: LearningSettings) -> Pace:
    return Pace(
        step=learning.step.seconds,
        past_step=learning.history_step.seconds,
        past=learning.history.seconds,
        lateness=learning.lateness.seconds,
    )


def _now() -> datetime:
    return datetime.now(UTC)

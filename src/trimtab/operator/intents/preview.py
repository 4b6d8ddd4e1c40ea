"""What the operator would plan for one intent now, with all that it would look at, and nothing done.

The same parts as the loop's, asked once. Room is not shared out among intents: the preview is of an intent alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from trimtab.errors import TrimtabError
from trimtab.intents.actuator import actuator
from trimtab.intents.constraints import Limits
from trimtab.intents.effects.fit import complete, recalled
from trimtab.intents.effects.model import Effects
from trimtab.intents.objective import Goal
from trimtab.intents.plan import Plan
from trimtab.intents.planner import PLANNERS, Budget, planner
from trimtab.intents.state import State
from trimtab.kube.cache.informer_set import Following
from trimtab.kube.errors import ApiError, NotFound, describe
from trimtab.kube.kinds.custom import IntentKey
from trimtab.kube.rest.capabilities import resizes_in_place
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import INTENTS, VPAS
from trimtab.operator.cluster_state import Catalog
from trimtab.operator.config.intents import IntentSettings
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.intents.capacity import room_of
from trimtab.operator.intents.endpoints import Endpoints
from trimtab.operator.intents.guardrails import Others, limits_of, said_of_use
from trimtab.operator.intents.intent_index import Roll
from trimtab.operator.intents.observer import Observation, Observer
from trimtab.operator.intents.planning import BUILT_IN
from trimtab.operator.intents.safe_sizes import SafeSize
from trimtab.store import Store
from trimtab.usage.prometheus.source import Prometheus
from trimtab.usage.source import source

PATIENCE = 60.0


@dataclass(frozen=True, slots=True)
class Preview:
    """A plan, and what it was made of."""

    goal: Goal
    state: State
    limits: Limits
    plan: Plan
    took: float
    """Seconds."""
    unknown: tuple[str, ...] = ()
    """Why objectives are unknown."""
    remarks: tuple[str, ...] = ()


def previewed(
    state: State,
    goal: Goal,
    *,
    settings: IntentSettings,
    limits: Limits,
    effects: Effects | None = None,
    now: float,
    clock: Callable[[], float],
    remarks: tuple[str, ...] = (),
    unknown: tuple[str, ...] = (),
) -> Preview:
    """The plan for a state and a goal, by the planner and the actuators of these settings that are built in."""
    name = settings.planner_of(goal.namespace)
    chosen = planner(name if name in PLANNERS.names() else BUILT_IN)
    actuators = [actuator(name, **given) for name, given in settings.actuators.items()]

    def make() -> Plan:
        return chosen.plan(
            state,
            goal,
            actuators=actuators,
            effects=complete(effects or Effects(), goal, state),
            limits=limits,
            now=now,
            budget=Budget(states=settings.states),
        )

    make()  # the first plan of a process compiles formulas, which says nothing of how long one takes
    started = clock()
    plan = make()
    return Preview(goal, state, limits, plan, clock() - started, unknown, remarks)


async def preview(client: Client, config: OperatorConfig, key: IntentKey, *, now: float) -> Preview:
    """Of an intent of a cluster, by what Prometheus and the store know now."""
    await _require_intent(client, key)
    async with AsyncExitStack() as stack:
        following = Following(client)
        catalog = Catalog(following, home=config.namespace, look_again=lambda _: None)
        roll = Roll(following)
        await stack.enter_async_context(_running(catalog))
        intent = roll.intent(key)
        if intent is None or intent.spec is None:
            unread = catalog.unread(INTENTS)
            missing = f"Intents cannot be read: {unread}" if unread else "there is no such Intent"
            why = intent.problem if intent else missing
            raise TrimtabError(f"{'/'.join(key)}: {why}")
        usage = await stack.enter_async_context(
            source(config.metrics_source.provider, client=client, **config.metrics_source.settings)
        )
        settings = config.intents
        endpoints = await stack.enter_async_context(
            Endpoints(
                usage if isinstance(usage, Prometheus) else None,
                stale=settings.stale.seconds,
                patience=settings.timeout.seconds,
            )
        )
        observer = Observer(catalog, roll, endpoints, settings=lambda: settings)
        (observation,) = await observer.look([intent], now=now)
        if observation.state is None or observation.workload is None:
            raise TrimtabError(f"{'/'.join(key)}: {observation.trouble}")
        workload = observation.workload
        others = Others(
            workload,
            hpas=catalog.hpas_of(workload),
            vpa=catalog.applied_by(workload.key),
            unread_vpas=catalog.unread(VPAS),
            resizes_in_place=await resizes_in_place(client),
        )
        own = limits_of(observation, config=config, others=others, safe=SafeSize(), rests_until=0.0)
        room = room_of(
            nodes=catalog.nodes,
            pods=catalog.pods,
            quotas=catalog.quotas,
            targets={intent.namespace: [observation.state]},
            settings=settings,
        )
        return previewed(
            observation.state,
            observation.goal,
            settings=settings,
            limits=room.narrowed(own, observation.state, intent.namespace),
            effects=await _remembered(config, catalog.cluster_name, observation, stack),
            now=now,
            clock=time.perf_counter,
            remarks=(*others.said(), *said_of_use(observation.state, observation.goal)),
            unknown=tuple(f"{name}: {each.why}" for name, each in observation.readings.items() if each.why),
        )


async def _require_intent(client: Client, key: IntentKey) -> None:
    """Refuse an Intent that cannot be read before the whole cluster is: that may take a minute, and more rights."""
    namespace, name = key
    try:
        await client.get(INTENTS, name, namespace=namespace)
    except NotFound as error:
        # Only of an object does the server say what was not found: otherwise it does not know the kind.
        if error.reason != "NotFound":
            why = "the cluster does not know Intents; install our CRDs: `trimtab crds | kubectl apply --server-side -f -`"
        else:
            why = f"there is no such Intent; `kubectl get intents -n {namespace}` lists those that there are"
        raise TrimtabError(f"{namespace}/{name}: {why}") from error
    except ApiError as error:
        raise TrimtabError(f"{namespace}/{name}: Intents cannot be read: {describe(error)}") from error


@asynccontextmanager
async def _running(catalog: Catalog) -> AsyncIterator[None]:
    """Follow a cluster until the end of the block; its informers have ended before their client is closed."""
    running = asyncio.create_task(catalog.run())
    try:
        await _synced(catalog)
        yield
    finally:
        running.cancel()
        await asyncio.wait([running])


async def _synced(catalog: Catalog) -> None:
    try:
        await catalog.ready(timeout=PATIENCE)
    except TimeoutError:
        why = "; ".join(f"{resource}: {each}" for resource, each in catalog.troubles().items())
        raise TrimtabError(
            f"the cluster could not be read within {PATIENCE:.0f} s: {why or 'the server is slow'}"
        ) from None


async def _remembered(
    config: OperatorConfig, cluster: str, observation: Observation, stack: AsyncExitStack
) -> Effects:
    """What the store knows, where it is one that can be reached from here: a database, not the operator's own file."""
    if "://" not in config.store.url:
        return Effects()
    store = await stack.enter_async_context(Store.open(config.store.url))
    kept = await store.effects.find(cluster=cluster, name=observation.goal.intent)
    return recalled(observation.goal, kept)[0]

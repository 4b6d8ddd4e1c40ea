"""Preview of the plan for one Intent, without executing it.

It uses the same parts as the controller, once. Capacity is not shared between Intents: the preview is for one
Intent alone.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from trimtab.errors import TrimtabError
from trimtab.intents.actuator import actuator
from trimtab.intents.constraints import PlanConstraints
from trimtab.intents.effects.fit import add_priors, decode_effects
from trimtab.intents.effects.model import EffectModels
from trimtab.intents.kpi.client import PromqlKpiClient
from trimtab.intents.objective import Goal
from trimtab.intents.planner import PLANNERS, Plan, SearchBudget, create_planner
from trimtab.intents.state import TargetState
from trimtab.kube.cache.informer_set import InformerSet
from trimtab.kube.errors import ApiError, NotFound, describe
from trimtab.kube.kinds.custom import IntentKey
from trimtab.kube.rest.capabilities import supports_in_place_resize
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import INTENTS, VPAS
from trimtab.operator.cluster_state import ClusterState
from trimtab.operator.config.intents import IntentSettings
from trimtab.operator.config.model import OperatorConfig
from trimtab.operator.intent_index import IntentIndex
from trimtab.operator.intents.capacity import available_capacity
from trimtab.operator.intents.guardrails import AutoscalerConstraints, build_constraints, explain_no_release
from trimtab.operator.intents.observer import IntentObservation, IntentObserver
from trimtab.operator.intents.planning import DEFAULT_PLANNER
from trimtab.operator.intents.safe_sizes import SafeSize
from trimtab.store import Store
from trimtab.usage.source import source

SYNC_TIMEOUT = 60.0


@dataclass(frozen=True, slots=True)
class PlanPreview:
    """A plan and its inputs."""

    goal: Goal
    state: TargetState
    constraints: PlanConstraints
    plan: Plan
    duration: float
    """The duration of planning in seconds."""
    unknown: tuple[str, ...] = ()
    """The reasons why objectives are unknown."""
    remarks: tuple[str, ...] = ()


def preview_state(
    state: TargetState,
    goal: Goal,
    *,
    settings: IntentSettings,
    limits: PlanConstraints,
    effects: EffectModels | None = None,
    now: float,
    clock: Callable[[], float],
    remarks: tuple[str, ...] = (),
    unknown: tuple[str, ...] = (),
) -> PlanPreview:
    """Plan for a state and a goal with the built-in planner and actuators of the settings."""
    name = settings.planner_for(goal.namespace)
    chosen = create_planner(name if name in PLANNERS.names() else DEFAULT_PLANNER)
    actuators = [actuator(name, **given) for name, given in settings.actuators.items()]

    def make() -> Plan:
        return chosen.plan(
            state,
            goal,
            actuators=actuators,
            effects=add_priors(effects or EffectModels(), goal, state),
            limits=limits,
            now=now,
            budget=SearchBudget(max_states=settings.max_states),
        )

    make()  # the first plan of a process compiles formulas, which would distort the duration
    started = clock()
    plan = make()
    return PlanPreview(goal, state, limits, plan, clock() - started, unknown, remarks)


async def preview_intent(
    client: Client, config: OperatorConfig, key: IntentKey, *, now: float
) -> PlanPreview:
    """Preview the plan for an Intent of a cluster, with current data from Prometheus and the store."""
    await _require_intent(client, key)
    async with AsyncExitStack() as stack:
        informers = InformerSet(client)
        cluster_state = ClusterState(informers)
        intent_index = IntentIndex(informers)
        await stack.enter_async_context(_run_informers(cluster_state))
        intent = intent_index.get_intent(key)
        if intent is None or intent.spec is None:
            unsynced = cluster_state.unsynced_reason(INTENTS, key[0])
            missing = f"Intents cannot be read: {unsynced}" if unsynced else "the Intent does not exist"
            why = intent.problem if intent else missing
            raise TrimtabError(f"{'/'.join(key)}: {why}")
        metrics = config.sources[""]
        usage = await stack.enter_async_context(source(metrics.provider, client=client, **metrics.settings))
        settings = config.intents
        kpis = await stack.enter_async_context(
            PromqlKpiClient(
                usage.promql, max_age=settings.max_sample_age.seconds, timeout=settings.timeout.seconds
            )
        )
        observer = IntentObserver(
            cluster_state,
            intent_index,
            kpis,
            settings=lambda: settings,
            query_rules=lambda: config.query_rules,
            check_seconds=math.inf,  # the user waits for this Intent alone
        )
        (observation,) = await observer.observe([intent], now=now)
        if observation.state is None or observation.workload is None:
            raise TrimtabError(f"{'/'.join(key)}: {observation.problem}")
        workload = observation.workload
        others = AutoscalerConstraints(
            workload,
            hpas=cluster_state.list_hpas(workload),
            vpa=cluster_state.active_vpa(workload.key),
            vpas_unsynced_reason=cluster_state.unsynced_reason(VPAS, workload.namespace),
            bounds_unsynced_reason=cluster_state.unsynced_bounds_reason(workload.namespace),
            can_resize_in_place=await supports_in_place_resize(client),
        )
        own = build_constraints(
            observation, config=config, autoscalers=others, safe=SafeSize(), cooldown_until=0.0
        )
        capacity = available_capacity(
            nodes=cluster_state.nodes,
            pods=cluster_state.pods,
            quotas=cluster_state.quotas,
            targets={intent.namespace: [observation.state]},
            settings=settings,
        )
        return preview_state(
            observation.state,
            observation.goal,
            settings=settings,
            limits=capacity.constrain(own, observation.state, intent.namespace),
            effects=await _restore_effects(config, cluster_state.cluster_name, observation, stack),
            now=now,
            clock=time.perf_counter,
            remarks=(*others.explain(), *explain_no_release(observation.state, observation.goal)),
            unknown=tuple(
                f"{name}: {each.reason}" for name, each in observation.readings.items() if each.reason
            ),
        )


async def _require_intent(client: Client, key: IntentKey) -> None:
    """Fail early if the Intent cannot be read, because reading the whole cluster takes longer and needs more
    permissions.
    """
    namespace, name = key
    try:
        await client.get(INTENTS, name, namespace=namespace)
    except NotFound as error:
        # A 404 without the reason NotFound means that the server does not know the kind.
        if error.reason != "NotFound":
            why = "the cluster has no Intent kind; install Trimtab's CRDs: `trimtab crds | kubectl apply --server-side -f -`"
        else:
            why = f"the Intent does not exist; `kubectl get intents -n {namespace}` lists all"
        raise TrimtabError(f"{namespace}/{name}: {why}") from error
    except ApiError as error:
        raise TrimtabError(f"{namespace}/{name}: Intents cannot be read: {describe(error)}") from error


@asynccontextmanager
async def _run_informers(cluster_state: ClusterState) -> AsyncIterator[None]:
    """Run the informers for the duration of the block; they have ended before their client is closed."""
    running = asyncio.create_task(cluster_state.run())
    try:
        await _wait_synced(cluster_state)
        yield
    finally:
        running.cancel()
        await asyncio.wait([running])


async def _wait_synced(cluster_state: ClusterState) -> None:
    try:
        await cluster_state.wait_synced(timeout=SYNC_TIMEOUT)
    except TimeoutError:
        why = "; ".join(
            f"{resource}: {each}" for resource, each in cluster_state.errors_by_resource().items()
        )
        raise TrimtabError(
            f"the cluster could not be read within {SYNC_TIMEOUT:.0f} s: {why or 'the server is slow'}"
        ) from None


async def _restore_effects(
    config: OperatorConfig, cluster: str, observation: IntentObservation, stack: AsyncExitStack
) -> EffectModels:
    """Load effects from the store if it is a shared database, not the operator's own file."""
    if "://" not in config.store.url:
        return EffectModels()
    store = await stack.enter_async_context(Store.open(config.store.url))
    kept = await store.effects.find(cluster=cluster, name=observation.goal.intent)
    return decode_effects(observation.goal, kept)[0]

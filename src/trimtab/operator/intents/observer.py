"""Observation of all Intents: goals, states of targets, and reasons for unknown values.

All Intents are observed together, so that their queries need few requests. Only the history of pods is kept
between cycles, and it is rebuilt from observations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cache

from trimtab.actuation.effective_size import live_pods
from trimtab.aio import take_turns
from trimtab.api.intent import IntentSpec
from trimtab.api.kpiprofile import KPIType
from trimtab.intents.kpi.availability import PodHistory, Uptime
from trimtab.intents.kpi.client import KpiClient
from trimtab.intents.kpi.measurement import (
    KpiDefinition,
    KpiReading,
    as_availability,
    resolve_kpi,
    unknown_reading,
)
from trimtab.intents.kpi.query import LOAD, OPERATOR_SERVER, KpiQuery, build_kpi_query, build_usage_templates
from trimtab.intents.objective import Goal, Objective
from trimtab.intents.state import TargetState
from trimtab.kube.kinds.custom import IntentRecord, resolve_profile_key
from trimtab.kube.kinds.nodes import SchedulingConstraints
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.namespace_cache import BudgetExhausted, NamespaceBudget
from trimtab.operator.cluster_state import ClusterState
from trimtab.operator.config.intents import IntentSettings
from trimtab.operator.intent_index import IntentIndex
from trimtab.operator.intents.state_builder import build_goal, build_state, find_main_container
from trimtab.usage.prometheus.namespace_scope import NamespaceScope, QueryRules
from trimtab.usage.prometheus.template import QueryError

MAX_CHECK_SECONDS = 0.1
"""The CPU seconds that queries of one namespace may take in a cycle: what is left waits, so that no flood of new queries
delays other namespaces."""
WAITS_FOR_CHECK = "the namespace has many new queries; this one is checked in one of the next cycles"

MIN_WINDOW = 15.0
"""The shortest window of CPU rates in seconds."""


@dataclass(frozen=True, slots=True)
class IntentObservation:
    """One Intent, its target, and the observed state."""

    intent: IntentRecord
    spec: IntentSpec
    goal: Goal
    readings: Mapping[str, KpiReading]
    """The readings by objective."""
    workload: Workload | None
    pods: Sequence[Pod] = ()
    state: TargetState | None = None
    """The state of the target; None if it does not exist."""
    main_container: str = ""
    """The name of the main container."""
    problem: str = ""
    """The reason why nothing can be done for the Intent."""
    kpi_window: float = 0.0
    """The longest window of its KPIs in seconds, for which they still include older values."""

    @property
    def is_known(self) -> bool:
        return self.state is not None and all(each.value is not None for each in self.readings.values())


IsolateErrors = Callable[[IntentRecord], AbstractContextManager[None]]


def _raise_errors(_: IntentRecord) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(slots=True)
class _IntentQueries:
    """The queries of one Intent: by objective, and for additional data about its target."""

    objectives: dict[str, KpiQuery | KpiReading | None] = field(default_factory=dict)
    """The query of each objective, or the reading that makes one unnecessary; None if it is measured from the pods."""
    extra: dict[str, KpiQuery] = field(default_factory=dict)
    """The queries for other quantities, such as the load."""

    @property
    def of_objectives(self) -> list[KpiQuery]:
        return [query for query in self.objectives.values() if isinstance(query, KpiQuery)]


class IntentObserver:
    """The observer of all Intents of a cluster."""

    def __init__(
        self,
        cluster_state: ClusterState,
        intent_index: IntentIndex,
        kpis: KpiClient,
        *,
        settings: Callable[[], IntentSettings],
        query_rules: Callable[[], QueryRules] = QueryRules,
        check_seconds: float = MAX_CHECK_SECONDS,
    ) -> None:
        self._cluster_state = cluster_state
        self._intent_index = intent_index
        self._kpis = kpis
        self._settings = settings
        self._query_rules = query_rules
        self._history: dict[WorkloadKey, PodHistory] = {}
        self.check_budget = NamespaceBudget(check_seconds)
        """The time of this cycle for new queries."""
        self._definitions: dict[tuple[str, str], KpiDefinition] = {}
        """The KPIs of this cycle by their name in an Intent and its namespace."""

    def start_cycle(self) -> None:
        """Give each namespace the time of a new cycle for its queries."""
        self.check_budget.renew()
        self._definitions.clear()

    def restore_history(self, target: WorkloadKey, past: Uptime) -> None:
        """Restore the stored uptime of a target's past pods, unless some were observed since."""
        known = self._history.get(target, PodHistory({}))
        # What was observed in this process is newer than what is stored, and must not be counted twice.
        if known.past_pods == Uptime():
            self._history[target] = replace(known, past_pods=past)

    async def observe(
        self, intents: Sequence[IntentRecord], *, now: float, isolate: IsolateErrors | None = None
    ) -> list[IntentObservation]:
        """Observe every Intent with a valid spec.

        `isolate` creates the context in which one Intent is observed; if it suppresses an error, only that Intent
        is skipped.
        """
        isolate = isolate or _raise_errors
        wanted = [intent for intent in intents if intent.spec is not None]
        built: list[tuple[IntentRecord, _IntentQueries]] = []
        async for intent in take_turns(wanted):
            with isolate(intent):
                built.append((intent, self._build_queries(intent)))
        readings = await self._kpis.measure(
            [query for _, queries in built for query in (*queries.of_objectives, *queries.extra.values())],
            at=now,
        )
        targets = {intent.target for intent in wanted}
        # Otherwise the histories of deleted targets would add up for ever.
        self._history = {key: kept for key, kept in self._history.items() if key in targets}
        seen: set[WorkloadKey] = set()
        excluded_nodes = cache(self._excluded_nodes)  # most workloads have the same scheduling constraints
        found = []
        for intent, queries in built:
            assert intent.target is not None
            with isolate(intent):
                self._observe_pods(intent.target, seen, now)
                found.append(self._build_observation(intent, queries, readings, excluded_nodes))
        return found

    # Queries

    def resolve_kpi(self, measured_by: str, namespace: str) -> KpiDefinition:
        """Resolve the KPI of an objective, with a problem if it cannot be measured."""
        key = measured_by, namespace
        if (found := self._definitions.get(key)) is None:
            try:
                found = self._resolve_kpi(measured_by, namespace)
            except BudgetExhausted:
                found = KpiDefinition(KPIType.CUSTOM, less_is_better=True, problem=WAITS_FOR_CHECK)
            self._definitions[key] = found
        return found

    def _resolve_kpi(self, measured_by: str, namespace: str) -> KpiDefinition:
        rules, key = self._query_rules(), resolve_profile_key(measured_by, namespace)
        profile = self._intent_index.get_profile(key)
        if profile is None:
            return KpiDefinition(
                KPIType.CUSTOM, less_is_better=True, problem=f"there is no KPIProfile {measured_by}"
            )
        if profile.spec is None:
            # An unreadable profile makes its objective unknown, and so blocks actions, instead of being
            # ignored.
            return KpiDefinition(KPIType.CUSTOM, less_is_better=True, problem=profile.problem)
        scope = rules.scope(author=key[0], reader=namespace)
        queries = self._settings().default_queries
        return resolve_kpi(profile.spec, queries, rules=rules, scope=scope, budget=self.check_budget)

    def _build_queries(self, intent: IntentRecord) -> _IntentQueries:
        assert intent.spec is not None
        target, namespace = intent.spec.target_ref, intent.namespace
        found = _IntentQueries()
        for objective in intent.spec.objectives:
            definition = self.resolve_kpi(objective.measured_by, namespace)
            if definition.problem:
                found.objectives[objective.name] = unknown_reading(definition.problem)
            elif definition.is_from_pods:
                found.objectives[objective.name] = None
            else:
                try:
                    query = definition.build_query(
                        namespace=namespace,
                        target=target,
                        quantity=objective.measured_by,
                        budget=self.check_budget,
                    )
                except BudgetExhausted:
                    found.objectives[objective.name] = unknown_reading(WAITS_FOR_CHECK)
                    continue
                except QueryError as error:
                    # A profile is checked at admission, but not for this target: only its objective is unknown.
                    found.objectives[objective.name] = unknown_reading(
                        f"KPIProfile {objective.measured_by}, query: {error}"
                    )
                    continue
                found.objectives[objective.name] = query
                # A throughput is the load itself: a second query for the same value would only cost the
                # server.
                if definition.type is KPIType.THROUGHPUT:
                    found.extra.setdefault(LOAD, query)
        for quantity, (server, template, scope) in self._extra_templates(intent).items():
            if quantity not in found.extra:
                with suppress(QueryError, BudgetExhausted):  # an invalid load query counts as none
                    found.extra[quantity] = build_kpi_query(
                        template,
                        namespace=namespace,
                        target=target,
                        quantity=quantity,
                        server=server,
                        scope=scope,
                        budget=self.check_budget,
                    )
        return found

    def _extra_templates(self, intent: IntentRecord) -> dict[str, tuple[str, str, NamespaceScope | None]]:
        """Return server, template and scope for the target's load and the usage of its main container, by quantity."""
        assert intent.spec is not None
        found: dict[str, tuple[str, str, NamespaceScope | None]] = {}
        for objective in intent.spec.objectives:
            key = resolve_profile_key(objective.measured_by, intent.namespace)
            profile = self._intent_index.get_profile(key)
            kpi = self.resolve_kpi(objective.measured_by, intent.namespace)
            # A profile with a problem, such as a server that is not allowed, must not send its load query either.
            if profile and profile.spec and LOAD in profile.spec.props and not kpi.problem:
                scope = self._query_rules().scope(author=key[0], reader=intent.namespace)
                found[LOAD] = kpi.endpoint or OPERATOR_SERVER, profile.spec.props[LOAD], scope
        default = self._settings().default_queries.get(KPIType.THROUGHPUT)
        if LOAD not in found and default:
            found[LOAD] = OPERATOR_SERVER, default, None
        workload = self._find_workload(intent)
        if workload is not None and (main := find_main_container(workload.containers)):
            # A rate needs two samples in its window: with a window as short as the interval, it is often
            # empty.
            window = max(MIN_WINDOW, 4 * self._settings().interval.seconds)
            templates = build_usage_templates(main, window)
            found |= {quantity: (OPERATOR_SERVER, template, None) for quantity, template in templates.items()}
        return found

    # Observations

    def _observe_pods(self, target: WorkloadKey, seen: set[WorkloadKey], now: float) -> None:
        workload = self._cluster_state.get(target)
        # Two Intents may have one target: observed twice, its pods would count twice the uptime.
        if workload is None or target in seen:
            return
        seen.add(target)
        history = self._history.get(target) or PodHistory({})
        self._history[target] = history.observe(live_pods(self._cluster_state.list_pods(workload)), now=now)

    def _excluded_nodes(self, scheduling: SchedulingConstraints) -> frozenset[str]:
        """Return the nodes that such pods cannot use."""
        nodes = self._cluster_state.nodes
        return frozenset(node.name for node in nodes if not scheduling.allows_node(node.taints, node.labels))

    def _build_observation(
        self,
        intent: IntentRecord,
        queries: _IntentQueries,
        readings: Mapping[KpiQuery, KpiReading],
        excluded_nodes: Callable[[SchedulingConstraints], frozenset[str]],
    ) -> IntentObservation:
        spec, target = intent.spec, intent.target
        assert spec is not None
        assert target is not None
        workload = self._cluster_state.get(target)
        goal = self.build_goal(intent, spec)
        # Readings of a target that is gone may linger for minutes: they must not be answered with actions.
        if workload is None or workload.deleting:
            gone = f"{target} does not exist"
            nothing = dict.fromkeys(queries.objectives, unknown_reading(gone))
            return IntentObservation(intent, spec, goal, nothing, None, problem=gone)
        pods = live_pods(self._cluster_state.list_pods(workload))
        history = self._history.get(target) or PodHistory({})
        found: dict[str, KpiReading] = {}
        for objective in goal.objectives:
            query = queries.objectives[objective.name]
            if query is None:
                reading = _read_availability(objective, history, pods)
            else:
                reading = readings[query] if isinstance(query, KpiQuery) else query
            if objective.kind is KPIType.AVAILABILITY:
                reading = as_availability(reading, wanted=objective.value)
            found[objective.name] = reading
        more = {name: readings[query].value for name, query in queries.extra.items()}
        main = find_main_container(workload.containers)
        state = build_state(
            workload,
            pods,
            history,
            found,
            more,
            main=main,
            excluded_nodes=excluded_nodes(workload.scheduling),
            limits=self._settings().size_limits(workload.namespace),
        )
        window = max((query.window for query in queries.of_objectives), default=0.0)
        return IntentObservation(intent, spec, goal, found, workload, pods, state, main, kpi_window=window)

    def build_goal(self, intent: IntentRecord, spec: IntentSpec) -> Goal:
        """Build the goal of an Intent from its spec and profiles."""
        return build_goal(
            str(intent),
            spec,
            namespace=intent.namespace,
            resolve_kpi=lambda measured_by: self.resolve_kpi(measured_by, intent.namespace),
            settings=self._settings(),
            target_uid=workload.uid if (workload := self._find_workload(intent)) else "",
        )

    def _find_workload(self, intent: IntentRecord) -> Workload | None:
        return self._cluster_state.get(intent.target) if intent.target else None


def _read_availability(objective: Objective, history: PodHistory, pods: Sequence[Pod]) -> KpiReading:
    """Read the availability of pods from their history.

    It is unknown while the objective depends on pods that are starting: counted as available, pods that never get
    ready would meet it; not counted, each scale-out would be followed by another.
    """
    low, high = history.combined_bounds(pod.uid for pod in pods)
    if objective.evaluate(low) is not objective.evaluate(high):
        return unknown_reading(
            "the availability depends on pods that are starting; it is known once they are ready"
        )
    return KpiReading.from_value(low)

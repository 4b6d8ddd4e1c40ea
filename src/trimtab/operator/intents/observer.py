"""Observation of all Intents: goals, states of targets, and reasons for unknown values.

All Intents are observed together, so that their queries need few requests. Only the history of pods is kept
between cycles, and it is rebuilt from observations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache

from trimtab.actuation.effective_size import live_pods
from trimtab.api.intent import IntentSpec
from trimtab.api.kpiprofile import KPIType
from trimtab.intents.kpi.availability import PodHistory, Uptime, combine_availabilities
from trimtab.intents.kpi.measurement import (
    LOAD_PROPERTY,
    KpiDefinition,
    KpiReading,
    as_availability,
    resolve_kpi,
    unknown_reading,
)
from trimtab.intents.kpi.query import KpiQuery, build_kpi_query
from trimtab.intents.objective import Goal
from trimtab.intents.state import TargetState
from trimtab.kube.kinds.custom import IntentRecord, resolve_profile_key
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.scheduling import SchedulingConstraints
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.operator.cluster_state import ClusterState
from trimtab.operator.config.intents import IntentSettings
from trimtab.operator.intents.endpoints import OPERATOR_SERVER, KpiEndpoints
from trimtab.operator.intents.intent_index import IntentIndex
from trimtab.operator.intents.state_builder import (
    CPU,
    CPU_PODS,
    MEMORY,
    MEMORY_MEDIAN,
    build_goal,
    build_state,
    find_main_container,
)
from trimtab.usage.prometheus.promql import equals, format_duration
from trimtab.usage.prometheus.template import QueryError

MIN_WINDOW = 15.0
MAX_WINDOW = 300.0
"""The longest window of CPU rates in seconds, for targets with long scrape intervals such as a minute."""


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


ServerQuery = tuple[str, KpiQuery]
"""The server and the query."""
IsolateErrors = Callable[[IntentRecord], AbstractContextManager[None]]


def _raise_errors(_: IntentRecord) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(slots=True)
class _IntentQueries:
    """The queries of one Intent: by objective, and for additional data about its target."""

    objectives: dict[str, ServerQuery | KpiReading | None] = field(default_factory=dict)
    """The query of each objective; None if it is measured from the pods."""
    extra: dict[str, ServerQuery] = field(default_factory=dict)

    def iter_all(self) -> Iterable[ServerQuery]:
        yield from (query for query in self.objectives.values() if isinstance(query, tuple))
        yield from self.extra.values()


class IntentObserver:
    """The observer of all Intents of a cluster."""

    def __init__(
        self,
        cluster_state: ClusterState,
        intent_index: IntentIndex,
        endpoints: KpiEndpoints,
        *,
        settings: Callable[[], IntentSettings],
    ) -> None:
        self._cluster_state = cluster_state
        self._intent_index = intent_index
        self._endpoints = endpoints
        self._settings = settings
        self._history: dict[WorkloadKey, PodHistory] = {}

    def restore_history(self, target: WorkloadKey, past: Uptime) -> None:
        """Restore the stored uptime of a target's past pods, unless some were observed since."""
        known = self._history.get(target, PodHistory({}))
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
        query: list[tuple[IntentRecord, _IntentQueries]] = []
        by_server: dict[str, list[KpiQuery]] = {}
        for intent in wanted:
            with isolate(intent):
                queries = self._build_queries(intent)
                for server, each in queries.iter_all():
                    by_server.setdefault(server, []).append(each)
                query.append((intent, queries))
        readings = await self._endpoints.read_kpis(by_server, at=now)
        targets = {intent.target for intent in wanted}
        self._history = {key: kept for key, kept in self._history.items() if key in targets}
        seen: set[WorkloadKey] = set()
        excluded_nodes = cache(self._excluded_nodes)  # most workloads have the same scheduling constraints
        found = []
        for intent, queries in query:
            assert intent.target is not None
            with isolate(intent):
                self._observe_pods(intent.target, seen, now)
                found.append(self._build_observation(intent, queries, readings, excluded_nodes))
        return found

    # Queries

    def resolve_kpi(self, measured_by: str, namespace: str) -> KpiDefinition:
        """Resolve the KPI of an objective, with a problem if it cannot be measured."""
        profile = self._intent_index.get_profile(resolve_profile_key(measured_by, namespace))
        if profile is None:
            return KpiDefinition(
                KPIType.CUSTOM, less_is_better=True, problem=f"there is no KPIProfile {measured_by}"
            )
        if profile.spec is None:
            return KpiDefinition(KPIType.CUSTOM, less_is_better=True, problem=profile.problem)
        return resolve_kpi(profile.spec, self._settings().default_queries)

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
                    query = definition.endpoint, definition.build_query(namespace=namespace, target=target)
                except QueryError as error:
                    # A profile is checked at admission, but not for this target: only its objective is unknown.
                    found.objectives[objective.name] = unknown_reading(
                        f"KPIProfile {objective.measured_by}, query: {error}"
                    )
                    continue
                found.objectives[objective.name] = query
                if definition.type is KPIType.THROUGHPUT:
                    found.extra.setdefault(LOAD_PROPERTY, query)
        for name, (server, text) in self._extra_queries(intent).items():
            if name not in found.extra:
                try:
                    found.extra[name] = server, build_kpi_query(text, namespace=namespace, target=target)
                except QueryError:
                    continue  # an invalid load query counts as none
        return found

    def _extra_queries(self, intent: IntentRecord) -> dict[str, tuple[str, str]]:
        """Return the queries for the target's load and the usage of its main container."""
        assert intent.spec is not None
        found: dict[str, tuple[str, str]] = {}
        for objective in intent.spec.objectives:
            profile = self._intent_index.get_profile(
                resolve_profile_key(objective.measured_by, intent.namespace)
            )
            if profile and profile.spec and LOAD_PROPERTY in profile.spec.props:
                found[LOAD_PROPERTY] = (
                    profile.spec.endpoint or OPERATOR_SERVER,
                    profile.spec.props[LOAD_PROPERTY],
                )
        if LOAD_PROPERTY not in found and (usual := self._settings().default_queries.get(KPIType.THROUGHPUT)):
            found[LOAD_PROPERTY] = OPERATOR_SERVER, usual
        workload = self._find_workload(intent)
        if workload is not None and (main := find_main_container(workload.containers)):
            window = max(MIN_WINDOW, 4 * self._settings().interval.seconds)
            found[CPU] = OPERATOR_SERVER, build_cpu_query(main, window)
            found[CPU_PODS] = OPERATOR_SERVER, f"count({_build_cpu_rates(main, window)})"
            peaks = f"max_over_time(container_memory_working_set_bytes{{{_container_matchers(main)}}}[1h])"
            found[MEMORY] = OPERATOR_SERVER, f"max({peaks})"
            found[MEMORY_MEDIAN] = OPERATOR_SERVER, f"quantile(0.5, {peaks})"
        return found

    # Observations

    def _observe_pods(self, target: WorkloadKey, seen: set[WorkloadKey], now: float) -> None:
        workload = self._cluster_state.get(target)
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
        readings: Mapping[ServerQuery, KpiReading],
        excluded_nodes: Callable[[SchedulingConstraints], frozenset[str]],
    ) -> IntentObservation:
        spec, target = intent.spec, intent.target
        assert spec is not None
        assert target is not None
        workload = self._cluster_state.get(target)
        goal = self.build_goal(intent, spec)
        if workload is None or workload.deleting:
            gone = f"{target} does not exist"
            nothing = dict.fromkeys(queries.objectives, unknown_reading(gone))
            return IntentObservation(intent, spec, goal, nothing, None, problem=gone)
        pods = live_pods(self._cluster_state.list_pods(workload))
        history = self._history.get(target) or PodHistory({})
        found: dict[str, KpiReading] = {}
        for name, query in queries.objectives.items():
            if query is None:
                serving = [history.availability(pod.uid) for pod in pods]
                found[name] = KpiReading.from_value(combine_availabilities(serving))
            else:
                found[name] = readings[query] if isinstance(query, tuple) else query
        for objective in goal.objectives:
            if objective.kind is KPIType.AVAILABILITY:
                found[objective.name] = as_availability(found[objective.name], wanted=objective.value)
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
        )
        window = max(
            (query[1].window for query in queries.objectives.values() if isinstance(query, tuple)),
            default=0.0,
        )
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


def build_cpu_query(container: str, window: float) -> str:
    """Build the query for the CPU usage of a container in all pods: recent rates, otherwise over a longer window.
    Recent rates alone would underestimate the usage; counting a deleted pod for a while is on the safe side.
    """
    return f"sum({_build_cpu_rates(container, window)})"


def _build_cpu_rates(container: str, window: float) -> str:
    rates = [
        f"rate(container_cpu_usage_seconds_total{{{_container_matchers(container)}}}[{format_duration(each)}])"
        for each in (window, MAX_WINDOW)
    ]
    return " or ".join(rates)


def _container_matchers(container: str) -> str:
    return f'namespace="$namespace",pod=~"$pods",{equals("container", container)}'

"""What is known of every intent at one moment: its goal, the state of its target, and why what is unknown is so.

All intents are observed together, so that all their questions travel in few requests. Between two looks only the
history of pods is kept; it is rebuilt by looking, and what is lost of it speaks for less availability, or more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache

from trimtab.actuation.effective_size import live_pods
from trimtab.api.intent import IntentSpec
from trimtab.api.kpiprofile import KPIType
from trimtab.intents.kpi.availability import PodHistory, Uptime, together
from trimtab.intents.kpi.measurement import LOAD, Measure, Reading, as_share, measure, unknown
from trimtab.intents.kpi.query import QueryError, Question, question
from trimtab.intents.objective import Goal
from trimtab.intents.state import State
from trimtab.kube.kinds.custom import Intent, profile_key
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.scheduling import Placing
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.operator.cluster_state import Catalog
from trimtab.operator.config.intents import IntentSettings
from trimtab.operator.intents.endpoints import OWN, Endpoints
from trimtab.operator.intents.intent_index import Roll
from trimtab.operator.intents.state_builder import (
    CPU,
    CPU_PODS,
    MEMORY,
    MEMORY_MEDIAN,
    goal_of,
    main_container,
    state_of,
)
from trimtab.usage.prometheus.promql import equals, span

SHORTEST_WINDOW = 15.0
LONGEST_WINDOW = 300.0
"""Seconds over which CPU is looked at where it is scraped too seldom for less, as once a minute."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One intent, its target, and what is known of both."""

    intent: Intent
    spec: IntentSpec
    goal: Goal
    readings: Mapping[str, Reading]
    """By objective."""
    workload: Workload | None
    pods: Sequence[Pod] = ()
    state: State | None = None
    """None where the target is not there."""
    main: str = ""
    """The container that does the work."""
    trouble: str = ""
    """Why nothing can be done for it at all."""
    window: float = 0.0
    """Seconds that the slowest of its KPIs averages over: until they have passed, it shows what was before, too."""

    @property
    def is_known(self) -> bool:
        return self.state is not None and all(each.value is not None for each in self.readings.values())


Asked = tuple[str, Question]
"""Which server, and what."""
Isolate = Callable[[Intent], AbstractContextManager[None]]


def _raise_errors(_: Intent) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(slots=True)
class _Questions:
    """What is asked for one intent: by objective, and by what else is to be known of its target."""

    objectives: dict[str, Asked | Reading | None] = field(default_factory=dict)
    """None: from the pods."""
    more: dict[str, Asked] = field(default_factory=dict)

    def all(self) -> Iterable[Asked]:
        yield from (asked for asked in self.objectives.values() if isinstance(asked, tuple))
        yield from self.more.values()


class Observer:
    """Looks at all intents of a cluster at once."""

    def __init__(
        self,
        catalog: Catalog,
        roll: Roll,
        endpoints: Endpoints,
        *,
        settings: Callable[[], IntentSettings],
    ) -> None:
        self._catalog = catalog
        self._roll = roll
        self._endpoints = endpoints
        self._settings = settings
        self._history: dict[WorkloadKey, PodHistory] = {}

    def inherit(self, target: WorkloadKey, past: Uptime) -> None:
        """What the store knows of a target's pods of the past, where none of them was seen to go since."""
        known = self._history.get(target, PodHistory({}))
        if known.gone == Uptime():
            self._history[target] = replace(known, gone=past)

    async def look(
        self, intents: Sequence[Intent], *, now: float, isolate: Isolate | None = None
    ) -> list[Observation]:
        """Observe every intent that has a valid spec.

        `isolate` makes the context in which one intent is observed; where it suppresses an error, that intent alone is
        left out.
        """
        isolate = isolate or _raise_errors
        wanted = [intent for intent in intents if intent.spec is not None]
        asked: list[tuple[Intent, _Questions]] = []
        by_server: dict[str, list[Question]] = {}
        for intent in wanted:
            with isolate(intent):
                questions = self._questions(intent)
                for server, each in questions.all():
                    by_server.setdefault(server, []).append(each)
                asked.append((intent, questions))
        readings = await self._endpoints.readings(by_server, at=now)
        targets = {intent.target for intent in wanted}
        self._history = {key: kept for key, kept in self._history.items() if key in targets}
        seen: set[WorkloadKey] = set()
        closed = cache(self._closed)  # most workloads say the same of nodes
        found = []
        for intent, questions in asked:
            assert intent.target is not None
            with isolate(intent):
                self._look_at_pods(intent.target, seen, now)
                found.append(self._observation(intent, questions, readings, closed))
        return found

    # What is asked

    def measure(self, measured_by: str, namespace: str) -> Measure:
        """How an objective is measured; with a problem where it cannot be."""
        profile = self._roll.profile(profile_key(measured_by, namespace))
        if profile is None:
            return Measure(
                KPIType.CUSTOM, less_is_better=True, problem=f"there is no KPIProfile {measured_by}"
            )
        if profile.spec is None:
            return Measure(KPIType.CUSTOM, less_is_better=True, problem=profile.problem)
        return measure(profile.spec, self._settings().usual_queries)

    def _questions(self, intent: Intent) -> _Questions:
        assert intent.spec is not None
        target, namespace = intent.spec.target_ref, intent.namespace
        found = _Questions()
        for objective in intent.spec.objectives:
            how = self.measure(objective.measured_by, namespace)
            if how.problem:
                found.objectives[objective.name] = unknown(how.problem)
            elif how.from_pods:
                found.objectives[objective.name] = None
            else:
                try:
                    asked = how.endpoint, how.question(namespace=namespace, target=target)
                except QueryError as error:
                    # A profile is checked when it is written, but not for this target: its objective alone is unknown.
                    found.objectives[objective.name] = unknown(
                        f"KPIProfile {objective.measured_by}, query: {error}"
                    )
                    continue
                found.objectives[objective.name] = asked
                if how.type is KPIType.THROUGHPUT:
                    found.more.setdefault(LOAD, asked)
        for name, query in self._more(intent).items():
            if name not in found.more:
                server, text = query
                try:
                    found.more[name] = server, question(text, namespace=namespace, target=target)
                except QueryError:
                    continue  # the load of a profile, which is as good as none
        return found

    def _more(self, intent: Intent) -> dict[str, tuple[str, str]]:
        """What else is to be known of the target: its load, and what its main container uses."""
        assert intent.spec is not None
        found: dict[str, tuple[str, str]] = {}
        for objective in intent.spec.objectives:
            profile = self._roll.profile(profile_key(objective.measured_by, intent.namespace))
            if profile and profile.spec and LOAD in profile.spec.props:
                found[LOAD] = profile.spec.endpoint or OWN, profile.spec.props[LOAD]
        if LOAD not in found and (usual := self._settings().usual_queries.get(KPIType.THROUGHPUT)):
            found[LOAD] = OWN, usual
        workload = self._workload(intent)
        if workload is not None and (main := main_container(workload.containers)):
            window = max(SHORTEST_WINDOW, 4 * self._settings().interval.seconds)
            found[CPU] = OWN, cpu_query(main, window)
            found[CPU_PODS] = OWN, f"count({_cpu_rates(main, window)})"
            peaks = f"max_over_time(container_memory_working_set_bytes{{{_of(main)}}}[1h])"
            found[MEMORY] = OWN, f"max({peaks})"
            found[MEMORY_MEDIAN] = OWN, f"quantile(0.5, {peaks})"
        return found

    # What is known

    def _look_at_pods(self, target: WorkloadKey, seen: set[WorkloadKey], now: float) -> None:
        workload = self._catalog.get(target)
        if workload is None or target in seen:
            return
        seen.add(target)
        history = self._history.get(target) or PodHistory({})
        self._history[target] = history.look(live_pods(self._catalog.pods_of(workload)), now=now)

    def _closed(self, placing: Placing) -> frozenset[str]:
        """The nodes that such pods may not go to."""
        nodes = self._catalog.nodes
        return frozenset(node.name for node in nodes if not placing.admits(node.taints, node.labels))

    def _observation(
        self,
        intent: Intent,
        questions: _Questions,
        readings: Mapping[Asked, Reading],
        closed: Callable[[Placing], frozenset[str]],
    ) -> Observation:
        spec, target = intent.spec, intent.target
        assert spec is not None
        assert target is not None
        workload = self._catalog.get(target)
        goal = self.goal(intent, spec)
        if workload is None or workload.deleting:
            gone = f"{target} is not there"
            nothing = dict.fromkeys(questions.objectives, unknown(gone))
            return Observation(intent, spec, goal, nothing, None, trouble=gone)
        pods = live_pods(self._catalog.pods_of(workload))
        history = self._history.get(target) or PodHistory({})
        found: dict[str, Reading] = {}
        for name, asked in questions.objectives.items():
            if asked is None:
                serving = [history.availability(pod.uid) for pod in pods]
                found[name] = Reading.of(together(serving))
            else:
                found[name] = readings[asked] if isinstance(asked, tuple) else asked
        for objective in goal.objectives:
            if objective.kind is KPIType.AVAILABILITY:
                found[objective.name] = as_share(found[objective.name], wanted=objective.value)
        more = {name: readings[asked].value for name, asked in questions.more.items()}
        main = main_container(workload.containers)
        state = state_of(workload, pods, history, found, more, main=main, closed=closed(workload.placing))
        window = max(
            (asked[1].window for asked in questions.objectives.values() if isinstance(asked, tuple)),
            default=0.0,
        )
        return Observation(intent, spec, goal, found, workload, pods, state, main, window=window)

    def goal(self, intent: Intent, spec: IntentSpec) -> Goal:
        """What an intent wants, as its profiles measure it."""
        return goal_of(
            str(intent),
            spec,
            namespace=intent.namespace,
            measure=lambda measured_by: self.measure(measured_by, intent.namespace),
            settings=self._settings(),
            target_uid=workload.uid if (workload := self._workload(intent)) else "",
        )

    def _workload(self, intent: Intent) -> Workload | None:
        return self._catalog.get(intent.target) if intent.target else None


def cpu_query(container: str, window: float) -> str:
    """What a container of all pods of a target uses: each of late, else over as long as is needed to see it. By those alone
    that are seen of late, less would seem to be used than is; that a pod that has gone counts for a while errs on the safe
    side.
    """
    return f"sum({_cpu_rates(container, window)})"


def _cpu_rates(container: str, window: float) -> str:
    rates = [
        f"rate(container_cpu_usage_seconds_total{{{_of(container)}}}[{span(each)}])"
        for each in (window, LONGEST_WINDOW)
    ]
    return " or ".join(rates)


def _of(container: str) -> str:
    return f'namespace="$namespace",pod=~"$pods",{equals("container", container)}'

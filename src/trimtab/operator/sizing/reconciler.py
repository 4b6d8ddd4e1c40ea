"""The sizing loop: a look at one workload recommends, applies and tells.

It is given a key and looks at the world: the live picture (`catalog`), what was learned (`learning`), the marks on the
workload. So a lost event, a restart or another leader cost time and nothing else. Time is passed in.

Who is sized, and on whose word: a `mandate`, by a policy; and apart from that, each VPA that names us (`dropin`). Left
out: reading usage and learning from it (`turn`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import msgspec

from trimtab.actuation.actions import EvictPod, PatchTemplate, ResizePod
from trimtab.actuation.decide.health import Evidence
from trimtab.actuation.executor import Actuator, Report
from trimtab.actuation.hold import read_hold
from trimtab.api.optimizationpolicy import Mode, WorkloadState
from trimtab.kube.kinds.hpas import Hpa
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.operator.cluster_state import Catalog, containers_of
from trimtab.operator.config.model import Guardrail
from trimtab.operator.logs import about
from trimtab.operator.metrics import Metrics
from trimtab.operator.policy.resolver import Mandate, Orders
from trimtab.operator.policy.status import Outcome, Skipped, same
from trimtab.operator.policy.status_writer import Statuses
from trimtab.operator.sizing.throttling import throttled_lately
from trimtab.operator.vpa.recommender import DropIn
from trimtab.recommender.cluster_constraints import Neighbourhood
from trimtab.recommender.cohort import Learned
from trimtab.recommender.recommender import Learning
from trimtab.recommender.workload import Assessment, assess
from trimtab.usage.pod_ownership import WorkloadContainer

METHODS = {ResizePod: "InPlace", EvictPod: "Recreate", PatchTemplate: "Template"}
NEW_KILL = 3600.0
"""Seconds in which a kill is news, to whom it was not known before."""
VPA_INTERVAL = 60.0
"""Seconds after which a workload is looked at again that only a VPA is about."""
FINE = frozenset({WorkloadState.RECOMMENDED, WorkloadState.APPLIED, WorkloadState.PENDING})


class Journal(Protocol):
    """Who is told of what was recommended and done: users, by annotations and Events; the store."""

    async def recommended(
        self, workload: Workload, assessment: Assessment, *, changed: bool, mandate: Mandate, now: float
    ) -> None: ...

    async def reported(self, workload: Workload, report: Report, *, mandate: Mandate, now: float) -> None: ...

    def left(self, workload: Workload) -> None: ...


class Guardrails(Protocol):
    """Who knows whether what must not get worse holds."""

    async def verdicts(
        self, workload: Workload, guardrails: Sequence[Guardrail], *, now: float
    ) -> Mapping[str, bool | None]: ...


class SizingLoop:
    """All workloads of a cluster that a policy selects, one look at a time."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        orders: Orders,
        learning: Learning,
        actuator: Actuator,
        statuses: Statuses,
        journal: Journal,
        guardrails: Guardrails,
        vpas: DropIn,
        neighbourhood: Callable[[], Neighbourhood],
        resizes_in_place: Callable[[], bool],
        memory_limits_stay: Callable[[Iterable[Pod]], bool] = lambda _: False,
        metrics: Metrics,
        intent: Callable[[WorkloadKey], str] = lambda _: "",
        unread: Callable[[], str] = lambda: "",
    ) -> None:
        self._catalog = catalog
        self._orders = orders
        self._learning = learning
        self._actuator = actuator
        self._statuses = statuses
        self._journal = journal
        self._guardrails = guardrails
        self._vpas = vpas
        self._neighbourhood = neighbourhood
        self._resizes_in_place = resizes_in_place
        self._memory_limits_stay = memory_limits_stay
        self._metrics = metrics
        self._intent = intent
        """The name of the intent that has the say over a workload; empty where none has."""
        self._unread = unread
        """Why it is not known who else has the say over any workload; empty where it is."""

    async def look(self, key: WorkloadKey, now: float) -> float | None:
        """Look at one workload; the answer is after how many seconds to look again."""
        workload = self._catalog.get(key)
        mandate = self._orders.of(workload) if workload and not workload.deleting else None
        name = mandate.name if mandate else ""
        with about(kind=key.kind, namespace=key.namespace, name=key.name, policy=name):
            try:
                again = await self._look(key, workload, mandate, now)
                if self._vpas.asks_for(key):
                    await self._tell_vpas(key, workload, mandate, now)
                    again = min(again or VPA_INTERVAL, VPA_INTERVAL) if workload else None
            except Exception as error:
                self._metrics.reconciliation_errors.labels(name, type(error).__name__).inc()
                raise
            finally:
                self._statuses.looked_at(key)
        return again

    async def _tell_vpas(
        self, key: WorkloadKey, workload: Workload | None, mandate: Mandate | None, now: float
    ) -> None:
        sizing = self._orders.sizing(mandate, asked=True)
        learned: dict[str, Learned] = {}
        if workload and sizing:
            names = containers_of(self._catalog, workload)
            pods, ended = self._catalog.pods_of(workload), self._catalog.failed_of(workload)
            async with self._learning.lock:
                # Without a policy nobody else notes them.
                self._learning.note_memory(workload, pods, names, ended=ended, now=now)
                for name in names:
                    if found := self._learning.learned(name, sizing, now=now, runs_on=workload.runs_on):
                        learned[name.container] = found
        await self._vpas.tell(key, learned, now, rules=mandate.rules if mandate else None)

    async def _look(
        self, key: WorkloadKey, workload: Workload | None, mandate: Mandate | None, now: float
    ) -> float | None:
        if workload is None or mandate is None:
            if self._actuator.forget(key) and workload and not workload.deleting:
                self._journal.left(workload)
            self._statuses.drop(key)
            return None
        interval = mandate.spec.reconciliation_interval.seconds
        if mandate.problem:
            outcome = Outcome(WorkloadState.SKIPPED, reason=mandate.problem, skipped=Skipped.POLICY_INVALID)
            self._statuses.put(mandate.key, key, outcome)
            return interval
        if mandate.spec.mode is Mode.DISABLED:
            disabled = Outcome(WorkloadState.SKIPPED, "the mode is Disabled", skipped=Skipped.DISABLED)
            before = self._statuses.outcome(key)
            self._statuses.put(mandate.key, key, before if before and before.recommendations else disabled)
            return interval
        with self._metrics.reconciliation_duration.labels(mandate.name).time():
            return min(interval, await self._size(workload, mandate, now))

    async def _size(self, workload: Workload, mandate: Mandate, now: float) -> float:
        key, pods = workload.key, self._catalog.pods_of(workload)
        hpas = self._catalog.hpas_of(workload)
        async with self._learning.lock:
            self._note_kills(workload, pods, mandate, now)
            assessment = self._assess(workload, pods, mandate, hpas, now)
        before = self._statuses.outcome(key)
        changed = before is None or not same(before.recommendations, assessment.recommendations)
        if changed and assessment.sizes:
            self._metrics.recommendations.labels(mandate.name).inc()
        if assessment.sizes:
            await self._journal.recommended(workload, assessment, changed=changed, mandate=mandate, now=now)
        report = await self._apply(workload, pods, assessment, mandate, now)
        if report is None:
            self._statuses.drop(key)
            return mandate.spec.reconciliation_interval.seconds
        applied = report.marks.applied.at if report.marks and report.marks.applied else None
        held = assessment.held if report.state in FINE and assessment.held else ""
        outcome = Outcome(
            state=WorkloadState.SKIPPED if held else report.state,
            reason=held or report.reason,
            # Why a number was recommended is told as of when it was: the evidence grows all the time.
            recommendations=assessment.recommendations if changed or not before else before.recommendations,
            recommended_at=now if changed and assessment.sizes else before.recommended_at if before else None,
            applied_at=applied,
            skipped=Skipped.NO_RECOMMENDATION if held or not assessment.sizes else Skipped.CANNOT_APPLY,
        )
        if outcome.state is WorkloadState.FAILED and (before is None or before.state is not outcome.state):
            self._metrics.reconciliation_errors.labels(mandate.name, "Failed").inc()
        self._statuses.put(mandate.key, key, outcome)
        return (
            mandate.spec.reconciliation_interval.seconds
            if report.again is None
            else max(report.again - now, 0.5)
        )

    def _note_kills(self, workload: Workload, pods: list[Pod], mandate: Mandate, now: float) -> None:
        names, ended = containers_of(self._catalog, workload), self._catalog.failed_of(workload)
        kills = self._learning.note_memory(workload, pods, names, ended=ended, now=now)
        # Pods remember theirs for ever, and who has just begun to look would tell of all of them at once.
        self._metrics.oom_kills.labels(mandate.name).inc(sum(now - kill.at < NEW_KILL for kill in kills))

    def _assess(
        self, workload: Workload, pods: list[Pod], mandate: Mandate, hpas: list[Hpa], now: float
    ) -> Assessment:
        def learned(container: str) -> Learned | None:
            name = WorkloadContainer.of(workload.key, container)
            return self._learning.learned(name, mandate.sizing, now=now, runs_on=workload.runs_on)

        rules = mandate.rules
        if not self._resizes_in_place():
            rules = msgspec.structs.replace(rules, restarts_pods=True)
        return assess(
            workload,
            pods,
            rules=rules,
            learned=learned,
            around=self._neighbourhood().around(workload, replicas=workload.replicas, hpas=hpas),
            source=self._learning.of(mandate.sizing).name,
            now=now,
            sync=self._orders.pod_sync(
                workload,
                mandate,
                pods,
                intent=self._intent(workload.key),
                resizes_in_place=self._resizes_in_place(),
            ),
        )

    async def _apply(
        self, workload: Workload, pods: list[Pod], assessment: Assessment, mandate: Mandate, now: float
    ) -> Report | None:
        """Bring the workload towards what is recommended, as far as it may be touched."""
        config, hold = self._orders.config, read_hold(workload.annotations)
        vpa = self._catalog.applied_by(workload.key)
        wish = assessment.wish(
            mandate.strategy(config, now=now),
            resizes_in_place=self._resizes_in_place(),
            withheld=mandate.withheld(workload, config, vpa=vpa, intent=self._intent(workload.key), hold=hold)
            or self._unread(),
            unread=self._learning.of(mandate.sizing).trouble,
            on_hold=str(hold) if hold else "",
        )
        wish = replace(wish, memory_limits_stay=self._memory_limits_stay(pods))
        if hold and hold.sizes:
            wish = hold.asked(wish)
        report = self._actuator.glance(workload, pods, wish, now=int(now))
        if report is None:
            # Only now: to ask how thousands fare that need nothing would be a burden.
            evidence = await self._evidence(workload, pods, mandate, now)
            wish = replace(wish, evidence=evidence)
            report = await self._actuator.reconcile(workload.key, wish, now=int(now))
        if report is not None:
            for deed in report.done:
                if method := METHODS.get(type(deed)):
                    self._metrics.applications.labels(mandate.name, method).inc()
            await self._journal.reported(workload, report, mandate=mandate, now=now)
        return report

    async def _evidence(self, workload: Workload, pods: list[Pod], mandate: Mandate, now: float) -> Evidence:
        """What tells whether a change hurts, besides the pods themselves."""
        school = self._learning.of(mandate.sizing)
        guardrails, throttled = await asyncio.gather(
            self._guardrails.verdicts(workload, mandate.guardrails(self._orders.config), now=now),
            throttled_lately(
                school.source,
                () if school.trouble else pods,  # who could not be read is not asked for each of them again
                seconds=mandate.spec.update_strategy.canary.observation.seconds,
                step=self._learning.step,
                now=now,
            ),
        )
        return Evidence(guardrails=guardrails, throttled=throttled)

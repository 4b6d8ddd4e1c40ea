"""The sizing loop: a turn reads usage and learns; a look at one workload recommends, applies and tells.

It is given a key and looks at the world: the live picture (`catalog`), what was learned (`learning`), the marks on the
workload. So a lost event, a restart or another leader cost time and nothing else. Time is passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

import structlog

from trimtab.actuation.actuator import Actuator, Report
from trimtab.actuation.deeds import EvictPod, PatchTemplate, ResizePod
from trimtab.api.optimizationpolicy import Mode, WorkloadState
from trimtab.kube.hpas import Hpa
from trimtab.kube.pods import Pod
from trimtab.kube.workloads import Workload, WorkloadKey
from trimtab.operator.assessment import Assessment, assess, runs_on
from trimtab.operator.catalog import Catalog
from trimtab.operator.cohort import Learned, kills_of
from trimtab.operator.config import OperatorConfig
from trimtab.operator.learning import Learning, Want
from trimtab.operator.mandate import Mandate, Mandates
from trimtab.operator.metrics import Metrics
from trimtab.operator.neighbourhood import Neighbourhood
from trimtab.operator.status import Outcome
from trimtab.operator.statuses import Statuses
from trimtab.usage.owners import WorkloadContainer

log = structlog.get_logger(__name__)

METHODS = {ResizePod: "InPlace", EvictPod: "Recreate", PatchTemplate: "Template"}
FINE = frozenset({WorkloadState.RECOMMENDED, WorkloadState.APPLIED, WorkloadState.PENDING})


class Journal(Protocol):
    """Who is told of what was recommended and done: users, by annotations and Events; the store."""

    async def recommended(
        self, workload: Workload, assessment: Assessment, *, mandate: Mandate, now: float
    ) -> None: ...

    async def reported(self, workload: Workload, report: Report, *, mandate: Mandate, now: float) -> None: ...


class Guardrails(Protocol):
    """Who knows whether what must not get worse holds."""

    async def verdicts(self, workload: Workload, *, now: float) -> Mapping[str, bool | None]: ...


class SizingLoop:
    """All workloads of a cluster that a policy selects, one look at a time."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        learning: Learning,
        actuator: Actuator,
        statuses: Statuses,
        journal: Journal,
        guardrails: Guardrails,
        config: Callable[[], OperatorConfig],
        resizes_in_place: Callable[[], bool],
        metrics: Metrics,
    ) -> None:
        self._catalog = catalog
        self._learning = learning
        self._actuator = actuator
        self._statuses = statuses
        self._journal = journal
        self._guardrails = guardrails
        self._config = config
        self._resizes_in_place = resizes_in_place
        self._metrics = metrics
        self._mandates = Mandates(config())
        self._neighbourhood = Neighbourhood()

    @property
    def mandates(self) -> Mandates:
        """Those of the configuration that holds now."""
        if self._mandates.config is not self._config():
            self._mandates = Mandates(self._config())
        return self._mandates

    # A turn

    async def turn(self, now: float) -> None:
        """Read usage up to now, and learn from it."""
        catalog = self._catalog
        self.mandates.forget_all_but(frozenset(catalog.policies))
        workloads = list(catalog.workloads())
        self._neighbourhood = Neighbourhood(
            nodes=catalog.nodes,
            daemon_sets=(each for each in workloads if each.kind == "DaemonSet"),
            limit_ranges=catalog.limit_ranges,
            quotas=catalog.quotas,
        )
        wanted = {
            WorkloadContainer.of(workload.key, container.name): Want(mandate.sizing, workload.created)
            for workload in workloads
            if (mandate := self._mandate(workload)) and not mandate.problem
            for container in workload.containers
            if container.role != "init"
        }
        was_in_trouble = bool(self._learning.trouble)
        await self._learning.advance(now, wanted=wanted, owners=catalog.owners(), running=self._running())
        if bool(self._learning.trouble) != was_in_trouble:
            for policy in catalog.policies:
                self._statuses.look_again(policy.key)

    def _running(self) -> set[WorkloadContainer]:
        """The containers of pods that are ready: they should have samples."""
        found = set()
        for pod in self._catalog.pods:
            if pod.ready and (workload := self._catalog.workload_of(pod)):
                found |= {
                    WorkloadContainer.of(workload.key, each.name)
                    for each in pod.containers
                    if each.role != "init"
                }
        return found

    # A look

    async def look(self, key: WorkloadKey, now: float) -> float | None:
        """Look at one workload; the answer is after how many seconds to look again."""
        workload = self._catalog.get(key)
        mandate = self._mandate(workload) if workload else None
        if workload is None or workload.deleting or mandate is None:
            self._actuator.forget(key)
            self._statuses.drop(key)
            return None
        interval = mandate.spec.reconciliation_interval.seconds
        if mandate.problem:
            self._note(mandate, key, Outcome(WorkloadState.SKIPPED, reason=mandate.problem))
            return interval
        if mandate.spec.mode is Mode.DISABLED:
            before = self._statuses.outcome(key) or Outcome(WorkloadState.SKIPPED, "the mode is Disabled")
            self._note(mandate, key, before)
            return interval
        with self._metrics.reconciliation_duration.labels(mandate.name).time():
            return min(interval, await self._size(workload, mandate, now))

    async def _size(self, workload: Workload, mandate: Mandate, now: float) -> float:
        key, pods = workload.key, self._catalog.pods_of(workload)
        hpas = self._catalog.hpas_of(workload)
        async with self._learning.lock:
            assessment = self._assess(workload, pods, mandate, hpas, now)
        before = self._statuses.outcome(key)
        changed = before is None or before.recommendations != assessment.recommendations
        if changed and assessment.sizes:
            self._metrics.recommendations.labels(mandate.name).inc()
            await self._journal.recommended(workload, assessment, mandate=mandate, now=now)
        report = await self._apply(workload, pods, assessment, mandate, now)
        if report is None:
            self._statuses.drop(key)
            return mandate.spec.reconciliation_interval.seconds
        applied = report.marks.applied.at if report.marks and report.marks.applied else None
        held = assessment.held if report.state in FINE and assessment.held else ""
        self._note(
            mandate,
            key,
            Outcome(
                state=WorkloadState.SKIPPED if held else report.state,
                reason=held or report.reason,
                recommendations=assessment.recommendations,
                recommended_at=now if changed or before is None else before.recommended_at,
                applied_at=applied,
            ),
        )
        return (
            mandate.spec.reconciliation_interval.seconds
            if report.again is None
            else max(report.again - now, 0.5)
        )

    def _assess(
        self, workload: Workload, pods: list[Pod], mandate: Mandate, hpas: list[Hpa], now: float
    ) -> Assessment:
        steady = runs_on(workload)
        self._learning.note_kills(
            kill
            for container in workload.containers
            for kill in kills_of(WorkloadContainer.of(workload.key, container.name), pods)
        )

        def learned(container: str) -> Learned | None:
            name = WorkloadContainer.of(workload.key, container)
            return self._learning.learned(name, mandate.sizing, now=now, runs_on=steady)

        return assess(
            workload,
            pods,
            rules=mandate.rules,
            learned=learned,
            around=self._neighbourhood.around(workload, replicas=workload.replicas, hpas=hpas),
            source=self._learning.source.name,
            now=now,
        )

    async def _apply(
        self, workload: Workload, pods: list[Pod], assessment: Assessment, mandate: Mandate, now: float
    ) -> Report | None:
        """Bring the workload towards what is recommended, as far as it may be touched."""
        wish = assessment.wish(
            mandate.spec,
            resizes_in_place=self._resizes_in_place(),
            withheld=mandate.withheld(workload, self._config()),
        )
        report = self._actuator.glance(workload, pods, wish, now=int(now))
        if report is None:
            # Only now: to ask for the guardrails of thousands that need nothing would be a burden.
            verdicts = await self._guardrails.verdicts(workload, now=now)
            wish = replace(wish, evidence=replace(wish.evidence, guardrails=verdicts))
            report = await self._actuator.reconcile(workload.key, wish, now=int(now))
        if report is not None and report.done:
            for deed in report.done:
                if method := METHODS.get(type(deed)):
                    self._metrics.applications.labels(mandate.name, method).inc()
            await self._journal.reported(workload, report, mandate=mandate, now=now)
        return report

    def _mandate(self, workload: Workload) -> Mandate | None:
        return self.mandates.of(self._catalog.selection.of(workload))

    def _note(self, mandate: Mandate, key: WorkloadKey, outcome: Outcome) -> None:
        """Tell the policy's status; a workload of the default policy has none that could be told."""
        if mandate.policy is None:
            self._statuses.drop(key)
        else:
            self._statuses.put(mandate.policy.key, key, outcome)

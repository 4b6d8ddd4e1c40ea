"""Tells what was recommended and done: on the workload by an annotation and an Event, and in the store's history.

Each is told once. Whether a recommendation has been told already is read from the workload's own annotation, so a
restart or another leader tells nothing twice. None of it may hold up the loop: a server that is away costs the
telling, and the log says so; the annotation is made up for at the next look, and the history when the store is back.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Never

import msgspec
import structlog

from trimtab.actuation.change_annotations import Marks, own_marks
from trimtab.actuation.executor import Report
from trimtab.actuation.hold import read_hold
from trimtab.actuation.port import Cluster
from trimtab.actuation.resources import Sizes, said, written
from trimtab.kube.errors import KubeError, describe
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.kinds.workloads import Workload
from trimtab.kube.rest.object_client import Objects
from trimtab.operator.metrics import Metrics
from trimtab.operator.policy.resolver import Mandate
from trimtab.recommender.workload import Assessment
from trimtab.store import HistoryEntry, Store
from trimtab.store.write_queue import WriteQueue

log = structlog.get_logger(__name__)

RECOMMENDATION = "trimtab.io/recommendation"
MANAGER = "trimtab.io-recommendation"
MOST_WAITING = 10_000
"""Entries that wait for a store that is away, the newest; some megabytes."""


class LiveJournal:
    """Tells of a real cluster."""

    def __init__(
        self,
        client: Objects,
        cluster: Cluster,
        store: Store,
        *,
        name: str,
        metrics: Metrics,
        may_annotate: Callable[[], bool],
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._name = name
        self._metrics = metrics
        self._may_annotate = may_annotate
        self._history = WriteQueue[HistoryEntry]("history", store.history, most=MOST_WAITING)

    async def recommended(
        self, workload: Workload, assessment: Assessment, *, changed: bool, mandate: Mandate, now: float
    ) -> None:
        """Tell of a recommendation that differs from the one on the workload; `changed` if not at the last look."""
        targets = assessment.targets
        steps = {name: each for name, each in assessment.sizes.items() if each != targets[name]}
        written_down = {name: _written(each, steps.get(name)) for name, each in targets.items()}
        text = msgspec.json.encode(written_down).decode()
        if dict(workload.annotations).get(RECOMMENDATION) == text:
            return
        if self._may_annotate():
            await self._annotate(workload, text)
        if not changed:
            return
        if self._may_annotate():
            self._cluster.emit(workload, type="Normal", reason="Recommended", message=_said(targets, steps))
        why = {each.container: each.text for each in assessment.recommendations}
        has = assessment.effective
        self._history.put(
            [
                HistoryEntry(
                    timestamp=now,
                    cluster=self._name,
                    namespace=workload.namespace,
                    kind=workload.key.kind,
                    name=workload.name,
                    container=name,
                    what="recommended",
                    before=written(has[name]) if name in has else None,
                    after=written(target),
                    who=f"policy {mandate.name}",
                    why=why[name],
                )
                for name, target in targets.items()
            ]
        )

    async def reported(self, workload: Workload, report: Report, *, mandate: Mandate, now: float) -> None:
        """Tell of changes that began, came to their end, or were taken back."""
        entries: list[HistoryEntry] = []
        for before, after in pairwise(report.seen):
            entries += self._news(workload, before, after, mandate=mandate, now=now)
        self._history.put(entries)

    def left(self, workload: Workload) -> None:
        """Tell of a change under way that nobody will bring to its end: no policy is about the workload any more."""
        found = own_marks(workload)
        if found and found.change and self._may_annotate():
            message = (
                f"no policy is about it any more; the change to {said(found.change.after)} is left as it is"
            )
            self._cluster.emit(workload, type="Warning", reason="ChangeLeft", message=message)
            log.warning("journal.change_left", workload=str(workload.key), change=found.change.id)

    def _news(
        self, workload: Workload, before: Marks, after: Marks, *, mandate: Mandate, now: float
    ) -> list[HistoryEntry]:
        change = before.change or after.change
        if change is None:
            return []
        if before.change is None:
            return [self._entry(workload, "applying", change.before, change.after, mandate, now)]
        if after.change is not None:
            return []
        if after.applied and after.applied.id == change.id:
            return [self._entry(workload, "applied", change.before, change.after, mandate, now)]
        if not after.reverted or after.reverted.id != change.id:
            return []  # somebody took the marks away, or the workload is another of that name
        self._metrics.reverts.labels(mandate.name, "overtaken" if change.blameless else "worse").inc()
        return [
            self._entry(workload, "reverted", change.after, change.before, mandate, now, after.reverted.why)
        ]

    def _entry(
        self,
        workload: Workload,
        what: str,
        before: Sizes,
        after: Sizes,
        mandate: Mandate,
        now: float,
        why: str = "",
    ) -> HistoryEntry:
        hold = read_hold(workload.annotations)
        person = hold if hold and hold.sizes and what != "reverted" else None
        return HistoryEntry(
            timestamp=now,
            cluster=self._name,
            namespace=workload.namespace,
            kind=workload.key.kind,
            name=workload.name,
            what=what,
            before={name: written(resources) for name, resources in before.items()},
            after={name: written(resources) for name, resources in after.items()},
            who=person.who if person else f"policy {mandate.name}",
            why=why
            or (person.why if person else f"the recommendation of strategy {mandate.sizing.strategy}"),
        )

    async def _annotate(self, workload: Workload, text: str) -> None:
        body = {
            "metadata": {
                "name": workload.name,
                "namespace": workload.namespace,
                "uid": workload.uid,  # or one that is gone would be made anew
                "annotations": {RECOMMENDATION: text},
            }
        }
        try:
            await self._client.apply(workload.resource, body, force=True, manager=MANAGER)
        except KubeError as error:
            log.warning("journal.not_annotated", workload=str(workload.key), error=describe(error))

    async def run(self) -> Never:
        """Write to the history what waits for it, until cancelled."""
        await self._history.run()

    async def catch_up(self) -> None:
        """Write to the history what waits for it."""
        await self._history.flush()


def _written(target: Resources, step: Resources | None) -> dict[str, Any]:
    """Write where a container should go, and the next step where it takes several."""
    return written(target) if step is None else written(target) | {"nextStep": written(step)}


def _said(targets: Sizes, steps: Sizes) -> str:
    """For people: `web: cpu 180m; next step: web: cpu 60m`."""
    return f"{said(targets)}; next step: {said(steps)}" if steps else said(targets)

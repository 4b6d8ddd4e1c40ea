"""Record recommendations, changes and OOM kills: in an annotation and an Event of the workload, and in the store's history.

Each is recorded once. The workload's annotation says which recommendation was recorded last, so a restart or another
leader records nothing twice. Recording never delays a reconcile: if the API server is unavailable the record is lost and
logged. The next reconcile repeats the annotation, and the history is written when the store is available again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Never

import msgspec
import structlog

from trimtab.actuation.change_annotations import RECOMMENDATION_ANNOTATION, read_change_annotations
from trimtab.actuation.decide.observation import State
from trimtab.actuation.executor import ChangeExecutor, ReconcileResult, Requester, WrittenTransition
from trimtab.actuation.hold import read_hold
from trimtab.actuation.port import ClusterPort
from trimtab.actuation.resources import Sizes, format_sizes, to_manifest
from trimtab.api.quantity import format_short
from trimtab.kube.errors import KubeError, describe, is_lost_race
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.operator.metrics import Metrics
from trimtab.operator.policy.resolver import EffectivePolicy
from trimtab.recommender.oom_kills import OomKill
from trimtab.recommender.workload import WorkloadRecommendation
from trimtab.store import HistoryRecord, Store
from trimtab.store.write_queue import WriteQueue

log = structlog.get_logger(__name__)

RECOMMENDATION_MANAGER = "trimtab.io-recommendation"
MAX_PENDING = 10_000
"""The number of newest entries kept while the store is unavailable; a few megabytes."""


class AuditRecorder:
    """Records what happens to the workloads of a real cluster."""

    def __init__(
        self,
        cluster: ClusterPort,
        executor: ChangeExecutor,
        store: Store,
        *,
        cluster_name: str,
        metrics: Metrics,
        may_annotate: Callable[[], bool],
        on_written: Callable[[Sequence[HistoryRecord]], None] | None = None,
    ) -> None:
        """Create a recorder; `on_written` is called with entries once the history has them."""
        self._cluster = cluster
        self._executor = executor
        self._cluster_name = cluster_name
        self._metrics = metrics
        self._may_annotate = may_annotate
        self._abandoned: dict[WorkloadKey, str] = {}
        """The ids of the changes that were reported as abandoned, of workloads that still have them."""
        self._history = WriteQueue[HistoryRecord](
            "history", store.history, max_waiting=MAX_PENDING, on_written=on_written
        )

    async def record_recommendation(
        self,
        workload: Workload,
        recommendation: WorkloadRecommendation,
        *,
        changed: bool,
        policy: EffectivePolicy,
        now: float,
    ) -> None:
        """Record a recommendation that differs from the workload's annotation; `changed` if it is new since the last cycle."""
        targets = recommendation.targets
        steps = {name: each for name, each in recommendation.sizes.items() if each != targets[name]}
        document = {name: _recommendation_document(each, steps.get(name)) for name, each in targets.items()}
        text = msgspec.json.encode(document).decode()
        # Otherwise every reconcile of every workload would send a request that changes nothing.
        if dict(workload.annotations).get(RECOMMENDATION_ANNOTATION) == text:
            return
        if self._may_annotate():
            await self._annotate(workload, text)
        # The next step differs, or someone removed the annotation: the recommendation itself is no news.
        if not changed:
            return
        if self._may_annotate():
            self._cluster.emit(
                workload, type="Normal", reason="Recommended", message=_format_recommendation(targets, steps)
            )
        why = {each.container: each.text for each in recommendation.recommendations}
        has = recommendation.effective
        self._history.put(
            [
                HistoryRecord(
                    timestamp=now,
                    cluster=self._cluster_name,
                    namespace=workload.namespace,
                    kind=workload.key.kind,
                    name=workload.name,
                    container=name,
                    what="recommended",
                    before=to_manifest(has[name]) if name in has else None,
                    after=to_manifest(target),
                    who=f"policy {policy.name}",
                    why=why[name],
                )
                for name, target in targets.items()
            ]
        )

    def record_result(self, workload: Workload, result: ReconcileResult) -> None:
        """Record changes that started, completed, were refused or reverted, whoever requested them."""
        if result.transitions:
            self._abandoned.pop(workload.key, None)
        for each in result.transitions:
            self._metrics.change_transitions.labels(each.source, each.target, each.id).inc()
        self._history.put(
            [entry for each in result.transitions if (entry := self._change_entry(workload, each))]
        )

    def record_oom_kills(self, workload: Workload, kills: Iterable[OomKill]) -> None:
        """Record OOM kills. Pods report their last kill forever, also to the next leader: the key has it stored once."""
        self._history.put(
            HistoryRecord(
                timestamp=kill.at,
                cluster=self._cluster_name,
                namespace=workload.namespace,
                kind=workload.key.kind,
                name=workload.name,
                container=kill.container.container,
                what="killed",
                who="the kernel",
                why=_format_oom_kill(kill),
                event_key=kill.key or None,
            )
            for kill in sorted(kills, key=lambda kill: kill.at)
        )

    def record_usage_shifts(self, workload: Workload, description: str) -> None:
        """Report sudden changes of the usage pattern of a workload."""
        if self._may_annotate():
            self._cluster.emit(workload, type="Warning", reason="UsageShifted", message=description)

    def record_abandoned_change(self, workload: Workload) -> None:
        """Report a change in progress that nobody will complete, because no policy or Intent has the workload any more."""
        found = read_change_annotations(workload)
        # Once for each change and process: a process that was restarted has nothing in memory by which to tell that the
        # change was left before, and the policy may have gone while no process ran.
        if (
            found
            and found.change
            and self._may_annotate()
            and self._abandoned.get(workload.key) != found.change.id
        ):
            self._abandoned[workload.key] = found.change.id
            sizes = format_sizes(found.change.after)
            message = f"No policy or active Intent targets this workload any more: the change to {sizes} stays incomplete; select it with a policy to complete the change, or restart it"
            self._cluster.emit(workload, type="Warning", reason="ChangeAbandoned", message=message)
            log.warning("audit.change_abandoned", workload=str(workload.key), change=found.change.id)

    def forget_workload(self, key: WorkloadKey) -> None:
        """Forget what was reported of a workload that was deleted."""
        self._abandoned.pop(key, None)

    def _change_entry(self, workload: Workload, transition: WrittenTransition) -> HistoryRecord | None:
        """Return the entry of a transition that starts or ends a change; None for all others."""
        change, reverted, requester = transition.change, transition.after.reverted, transition.requester
        # When it was written, which may be long before it is known that it arrived.
        now = transition.at
        starts, ends = transition.source is State.IDLE, transition.target is State.IDLE
        # Transitions between two states of one change would fill the history with steps that no user asks
        # for.
        if change is None or starts is ends:
            return None
        entry = self._build_entry(
            workload, "applying" if starts else "applied", change.before, change.after, requester, now
        )
        if reverted and reverted != transition.before.reverted and reverted.refused:
            return _identify(
                msgspec.structs.replace(entry, what="refused", why=reverted.why),
                workload,
                change.id,
                transition,
            )
        # The end of a revert is no application: the history must show the size that the workload has now.
        if transition.source is State.REVERTING and reverted:
            reason = "overtaken" if change.not_at_fault else "worse"
            self._metrics.reverts.labels(requester.policy, requester.intent, reason).inc()
            entry = self._build_entry(
                workload, "reverted", change.after, change.before, requester, now, reverted.why
            )
        return _identify(entry, workload, change.id, transition)

    def _build_entry(
        self,
        workload: Workload,
        what: str,
        before: Sizes,
        after: Sizes,
        requester: Requester,
        now: float,
        why: str = "",
    ) -> HistoryRecord:
        hold = read_hold(workload.annotations)
        # A revert is decided by Trimtab, even if it undoes the size that a person chose.
        person = hold if hold and hold.sizes and what != "reverted" else None
        return HistoryRecord(
            timestamp=now,
            cluster=self._cluster_name,
            namespace=workload.namespace,
            kind=workload.key.kind,
            name=workload.name,
            what=what,
            before={name: to_manifest(resources) for name, resources in before.items()},
            after={name: to_manifest(resources) for name, resources in after.items()},
            who=person.author if person else str(requester),
            why=why or (person.why if person else requester.reason),
        )

    async def _annotate(self, workload: Workload, text: str) -> None:
        annotations = {RECOMMENDATION_ANNOTATION: text}
        try:
            await self._executor.write(
                workload.key,
                lambda cluster: cluster.annotate(workload, annotations, manager=RECOMMENDATION_MANAGER),
            )
        # The annotation is for people to read: a workload is sized even if it cannot be annotated.
        except KubeError as error:
            # After a lost race the next reconcile writes it again.
            if not is_lost_race(error):
                log.warning("audit.annotation_failed", workload=str(workload.key), error=describe(error))

    async def run(self) -> Never:
        """Write pending history records until cancelled."""
        await self._history.run()

    async def flush(self) -> None:
        """Write all pending history records."""
        await self._history.flush()


def _identify(
    entry: HistoryRecord, workload: Workload, change_id: str, transition: WrittenTransition
) -> HistoryRecord:
    """Return the entry with its transition, and with a key by which the history has it once.

    A leader whose response was lost, and the next one, may both take the write of a transition for their own.
    """
    key = f"change/{workload.uid}/{change_id}/{entry.what}"
    return msgspec.structs.replace(entry, transition=transition.id, event_key=key)


def _format_oom_kill(kill: OomKill) -> str:
    if kill.limit:
        return f"OOM-killed at its memory limit of {format_short('memory', kill.limit)}"
    if kill.request:
        return f"OOM-killed without a memory limit; it requested {format_short('memory', kill.request)}"
    return "OOM-killed without a memory limit or request"


def _recommendation_document(target: Resources, step: Resources | None) -> dict[str, Any]:
    """Return a container's target, and the next step if it takes several."""
    return to_manifest(target) if step is None else to_manifest(target) | {"nextStep": to_manifest(step)}


def _format_recommendation(targets: Sizes, steps: Sizes) -> str:
    """Format a recommendation for people: `web: cpu 180m; next step: web: cpu 60m`."""
    return f"{format_sizes(targets)}; next step: {format_sizes(steps)}" if steps else format_sizes(targets)

"""Writing of statuses of Intents and KPIProfiles, and of Events on Intents.

A status is written when its content changes; changing values alone are written at intervals.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import structlog

from trimtab.api.intent import ObjectiveVerdict
from trimtab.api.kpiprofile import KPIType
from trimtab.api.meta import Document
from trimtab.intents.kpi.measurement import find_profile_problem
from trimtab.kube.errors import KubeError, NotFound, describe
from trimtab.kube.kinds.custom import IntentKey, IntentRecord, KPIProfileRecord
from trimtab.kube.rest.object_client import ObjectClient
from trimtab.kube.rest.resources import INTENTS, KPI_PROFILES, Resource
from trimtab.kube.runtime.event_correlator import EventType, ObjectReference
from trimtab.namespace_cache import BudgetExhausted, NamespaceBudget
from trimtab.operator.intents.observer import IntentObservation
from trimtab.operator.intents.status import (
    IntentOutcome,
    build_intent_status,
    build_invalid_status,
    stable_fields,
)
from trimtab.operator.policy.status_writer import EventSink
from trimtab.timing import is_recent
from trimtab.usage.prometheus.namespace_scope import QueryRules

log = structlog.get_logger(__name__)

REFRESH_INTERVAL = 30.0
"""The seconds after which changed values are written."""


class IntentStatusWriter:
    """The writer of statuses and Events of Intents."""

    def __init__(self, client: ObjectClient, events: EventSink, *, may_write: Callable[[], bool]) -> None:
        self._client = client
        self._events = events
        self._may_write = may_write
        self._statuses: dict[IntentKey, tuple[str, Document, float | None]] = {}
        """The uid, the intended status and the time of its write, None until it succeeded, by Intent."""

        self._status_before_start: dict[IntentKey, Document] = {}
        """The status of each Intent before the start of its plan was written."""

    def last_status(self, intent: IntentRecord) -> Document:
        """Return the status of an Intent: the last one of this process, written or not, otherwise the server's.

        It has the executed actions: if the server rejects it, they must not be repeated.
        """
        written = self._statuses.get(intent.key)
        if written is not None and written[0] == intent.uid:
            return written[1]
        return intent.read_status()

    def forget_all_but(self, intents: Container[IntentKey]) -> None:
        self._statuses = {key: written for key, written in self._statuses.items() if key in intents}

    async def write_observed(
        self, observation: IntentObservation, outcome: IntentOutcome, *, now: float
    ) -> None:
        intent = observation.intent
        before = self._status_before_start.pop(intent.key, self.last_status(intent))
        status = build_intent_status(observation, outcome, before=before, now=now)
        self._emit_verdicts(intent, before, status)
        self._emit_outcome(intent, outcome, before)
        self._emit_oom_kills(intent, outcome, before)
        await self._write(intent, self.last_status(intent), status, now)

    async def write_started(
        self, observation: IntentObservation, outcome: IntentOutcome, *, now: float
    ) -> None:
        """Write that a plan starts, before it does; `write_observed` later replaces it by the result.

        If the server rejects it, the plan is executed anyway, and this process remembers it.
        """
        intent, plan = observation.intent, outcome.plan
        assert plan is not None
        before = self.last_status(intent)
        status = build_intent_status(observation, replace(outcome, done=plan.actions), before=before, now=now)
        if not self._may_write():
            return
        self._statuses[intent.key] = intent.uid, status, None
        self._status_before_start[intent.key] = before
        try:
            if await self._apply(INTENTS, intent, status):
                self._statuses[intent.key] = intent.uid, status, now
        except KubeError as error:
            log.warning("intent.status_write_failed", intent=str(intent), error=describe(error))

    async def write_invalid(self, intent: IntentRecord, *, now: float) -> None:
        before = self.last_status(intent)
        await self._write(intent, before, build_invalid_status(intent, before=before, now=now), now)

    async def write_profile(
        self,
        profile: KPIProfileRecord,
        queries: Mapping[KPIType, str],
        rules: QueryRules,
        budget: NamespaceBudget,
    ) -> None:
        """Write the status of a profile: whether it can be measured. Without time to check it, its status stays."""
        problem = profile.problem
        if profile.spec:
            try:
                problem = find_profile_problem(
                    profile.spec, queries, rules=rules, namespace=profile.namespace, budget=budget
                )
            except BudgetExhausted:
                return
        status: Document = {"observedGeneration": profile.generation, "resolved": not problem}
        if problem:
            status["reason"] = problem[:4096]
        if status != msgspec.json.decode(profile.status) and self._may_write():
            await self._apply(KPI_PROFILES, profile, status)

    async def _write(self, intent: IntentRecord, before: Document, status: Document, now: float) -> None:
        written_at = self._statuses[intent.key][2] if intent.key in self._statuses else float("-inf")
        is_there = written_at is not None and (
            status == before or is_recent(written_at, now, within=REFRESH_INTERVAL)
        )
        if is_there and stable_fields(status) == stable_fields(before):
            return
        if self._may_write():
            self._statuses[intent.key] = intent.uid, status, None
            if await self._apply(INTENTS, intent, status):
                self._statuses[intent.key] = intent.uid, status, now

    async def _apply(
        self, resource: Resource, found: IntentRecord | KPIProfileRecord, status: Document
    ) -> bool:
        metadata: dict[str, Any] = {"name": found.name, "namespace": found.namespace, "uid": found.uid}
        try:
            body = {"metadata": metadata, "status": status}
            await self._client.apply(resource, body, subresource="status", force=True)
        except NotFound:
            return False
        return True

    def _emit_verdicts(self, intent: IntentRecord, before: Document, status: Document) -> None:
        known = {each["name"]: each["verdict"] for each in before.get("objectives") or ()}
        for each in status["objectives"]:
            verdict, was = each["verdict"], known.get(each["name"])
            if verdict == was or (was is None and verdict == ObjectiveVerdict.MET):
                continue
            now = f"{each['current']:g}" if "current" in each else each.get("reason", "unknown")
            kind: EventType = "Normal" if verdict == ObjectiveVerdict.MET else "Warning"
            self._emit(
                intent, kind, f"Objective{verdict}", f"{each['name']}: {now}, target {each['target']:g}"
            )

    def _emit_outcome(self, intent: IntentRecord, outcome: IntentOutcome, before: Document) -> None:
        plan = outcome.plan
        if plan is None or not plan.actions:
            return
        actions = "; ".join(action.describe() for action in outcome.done or plan.actions)
        if outcome.done:
            rest = f"; not done: {outcome.blocked_reason}" if outcome.blocked_reason else ""
            self._emit(
                intent, "Normal", plan.purpose.value, f"{actions}{rest}; because {'; '.join(plan.why)}"
            )
        elif (
            outcome.blocked_reason
            and (before.get("plan") or {}).get("blockedReason") != outcome.blocked_reason
        ):
            self._emit(intent, "Normal", "Blocked", f"{actions}; not done: {outcome.blocked_reason}")

    def _emit_oom_kills(self, intent: IntentRecord, outcome: IntentOutcome, before: Document) -> None:
        """Emit a Warning Event for OOM kills, once for each message."""
        written = [each["message"] for each in before.get("conditions") or () if each["type"] == "Met"]
        if outcome.oom_message and not any(outcome.oom_message in message for message in written):
            self._emit(intent, "Warning", "OOMKilled", outcome.oom_message)

    def _emit(self, intent: IntentRecord, kind: EventType, reason: str, message: str) -> None:
        reference = ObjectReference(
            api_version=INTENTS.api_version,
            kind=INTENTS.kind,
            name=intent.name,
            namespace=intent.namespace,
            uid=intent.uid,
        )
        self._events.record(reference, type=kind, reason=reason, message=message[:1000], action="Plan")

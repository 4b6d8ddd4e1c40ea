"""Tells of intents where people look: the status of each Intent and KPIProfile, and Events about an Intent.

A status is written when what it says has changed; numbers that only move are written every now and then.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import structlog

from trimtab.api.intent import Verdict
from trimtab.api.kpiprofile import KPIType
from trimtab.intents.kpi.measurement import problem_of_profile
from trimtab.kube.errors import KubeError, NotFound, describe
from trimtab.kube.kinds.custom import Intent, IntentKey, KPIProfile
from trimtab.kube.rest.object_client import Objects
from trimtab.kube.rest.resources import INTENTS, KPI_PROFILES, Resource
from trimtab.kube.runtime.event_correlator import EventType, ObjectReference
from trimtab.operator.intents.observer import Observation
from trimtab.operator.intents.status import Document, Outcome, gist, invalid_status, status_of
from trimtab.operator.policy.status_writer import Voice

log = structlog.get_logger(__name__)

REFRESH = 30.0
"""Seconds after which numbers that moved are written."""


class Telling:
    """What was said of each intent, and saying it anew."""

    def __init__(self, client: Objects, events: Voice, *, may_write: Callable[[], bool]) -> None:
        self._client = client
        self._events = events
        self._may_write = may_write
        self._said: dict[IntentKey, tuple[str, Document, float | None]] = {}
        """The uid, the status that it is to have, and when that was written; None while it could not be."""

        self._before_begun: dict[IntentKey, Document] = {}
        """The status that an intent had before it was written down that its plan is being carried out."""

    def before(self, intent: Intent) -> Document:
        """The status that an intent has: ours, whether it could be written or not, else the server's.

        What was done is in it: a server that does not take it must not have it done again and again.
        """
        said = self._said.get(intent.key)
        if said is not None and said[0] == intent.uid:
            return said[1]
        found: Document = msgspec.json.decode(intent.status) or {}
        return found

    def forget_all_but(self, intents: Container[IntentKey]) -> None:
        self._said = {key: said for key, said in self._said.items() if key in intents}

    async def observed(self, observation: Observation, outcome: Outcome, *, now: float) -> None:
        intent = observation.intent
        before = self._before_begun.pop(intent.key, self.before(intent))
        status = status_of(observation, outcome, before=before, now=now)
        self._tell_verdicts(intent, before, status)
        self._tell_outcome(intent, outcome, before)
        self._tell_kills(intent, outcome, before)
        await self._write(intent, self.before(intent), status, now)

    async def begun(self, observation: Observation, outcome: Outcome, *, now: float) -> None:
        """Write down that a plan is being carried out, before it is; `observed` then replaces it by what came of it.

        A server that does not take it is no reason to do nothing: what was done is then remembered in this process.
        """
        intent, plan = observation.intent, outcome.plan
        assert plan is not None
        before = self.before(intent)
        status = status_of(observation, replace(outcome, done=plan.deeds), before=before, now=now)
        if not self._may_write():
            return
        self._said[intent.key] = intent.uid, status, None
        self._before_begun[intent.key] = before
        try:
            if await self._apply(INTENTS, intent, status):
                self._said[intent.key] = intent.uid, status, now
        except KubeError as error:
            log.warning("intent.status_not_written", intent=str(intent), error=describe(error))

    async def invalid(self, intent: Intent, *, now: float) -> None:
        before = self.before(intent)
        await self._write(intent, before, invalid_status(intent, before=before, now=now), now)

    async def profile(self, profile: KPIProfile, queries: Mapping[KPIType, str]) -> None:
        """Say of a profile whether it can be measured by."""
        problem = problem_of_profile(profile.spec, queries) if profile.spec else profile.problem
        status: Document = {"observedGeneration": profile.generation, "resolved": not problem}
        if problem:
            status["reason"] = problem[:4096]
        if status != msgspec.json.decode(profile.status) and self._may_write():
            await self._apply(KPI_PROFILES, profile, status)

    async def _write(self, intent: Intent, before: Document, status: Document, now: float) -> None:
        written_at = self._said[intent.key][2] if intent.key in self._said else 0.0
        is_there = written_at is not None and (status == before or 0 <= now - written_at < REFRESH)
        if is_there and gist(status) == gist(before):
            return
        if self._may_write():
            self._said[intent.key] = intent.uid, status, None
            if await self._apply(INTENTS, intent, status):
                self._said[intent.key] = intent.uid, status, now

    async def _apply(self, resource: Resource, found: Intent | KPIProfile, status: Document) -> bool:
        metadata: dict[str, Any] = {"name": found.name, "namespace": found.namespace, "uid": found.uid}
        try:
            body = {"metadata": metadata, "status": status}
            await self._client.apply(resource, body, subresource="status", force=True)
        except NotFound:
            return False
        return True

    def _tell_verdicts(self, intent: Intent, before: Document, status: Document) -> None:
        known = {each["name"]: each["verdict"] for each in before.get("objectives") or ()}
        for each in status["objectives"]:
            verdict, was = each["verdict"], known.get(each["name"])
            if verdict == was or (was is None and verdict == Verdict.MET):
                continue
            now = f"{each['current']:g}" if "current" in each else each.get("reason", "unknown")
            kind: EventType = "Normal" if verdict == Verdict.MET else "Warning"
            self._tell(
                intent, kind, f"Objective{verdict}", f"{each['name']}: {now}, wanted {each['wanted']:g}"
            )

    def _tell_outcome(self, intent: Intent, outcome: Outcome, before: Document) -> None:
        plan = outcome.plan
        if plan is None or not plan.deeds:
            return
        deeds = "; ".join(deed.told() for deed in outcome.done or plan.deeds)
        if outcome.done:
            rest = f"; not done: {outcome.withheld}" if outcome.withheld else ""
            self._tell(intent, "Normal", plan.purpose.value, f"{deeds}{rest}; because {'; '.join(plan.why)}")
        elif outcome.withheld and (before.get("plan") or {}).get("withheld") != outcome.withheld:
            self._tell(intent, "Normal", "Withheld", f"{deeds}; not done: {outcome.withheld}")

    def _tell_kills(self, intent: Intent, outcome: Outcome, before: Document) -> None:
        """Tell of OOM kills once for each thing that there is to say of them."""
        said = [each["message"] for each in before.get("conditions") or () if each["type"] == "Met"]
        if outcome.killed and not any(outcome.killed in message for message in said):
            self._tell(intent, "Warning", "OOMKilled", outcome.killed)

    def _tell(self, intent: Intent, kind: EventType, reason: str, message: str) -> None:
        about = ObjectReference(
            api_version=INTENTS.api_version,
            kind=INTENTS.kind,
            name=intent.name,
            namespace=intent.namespace,
            uid=intent.uid,
        )
        self._events.record(about, type=kind, reason=reason, message=message[:1000], action="Plan")

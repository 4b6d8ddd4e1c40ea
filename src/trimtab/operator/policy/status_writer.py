"""Writes the status of each policy when it has changed, and no more often than anybody reads it; a trouble is an Event.

Outcomes are noted here as workloads are looked at. A policy whose outcomes changed is written a moment later, with all
that changed meanwhile; while some of its workloads have yet to be looked at (`expect`), not at all, for what it said would
be true of the others only. What is written is compared with what is there; after a restart that is asked of the server.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

import msgspec

from trimtab.kube.errors import NotFound
from trimtab.kube.kinds.policies import Policy
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.object_client import Objects
from trimtab.kube.rest.resources import OPTIMIZATION_POLICIES
from trimtab.kube.runtime.event_correlator import EventType, ObjectReference
from trimtab.kube.runtime.workqueue import WorkQueue
from trimtab.operator.policy.gauges import Tally
from trimtab.operator.policy.matching import Standing
from trimtab.operator.policy.status import Document, Outcome, Weather, news, status_of

PolicyKey = tuple[str, str]

DEFAULT: PolicyKey = ("", "default")
"""In the place of a policy: that of the operator's configuration, which has no status."""

QUICKLY = 1
"""The level of compression."""

GATHER = 2.0
"""Seconds in which changes are gathered into one write."""


class Voice(Protocol):
    """Who tells users of an object, by an Event."""

    def record(
        self,
        about: ObjectReference,
        *,
        type: EventType,  # noqa: A002 - Kubernetes' own word for it
        reason: str,
        message: str,
        action: str,
    ) -> None: ...


class Silence:
    """A voice for where nobody reads Events: statuses say the same."""

    def record(self, about: ObjectReference, **told: str) -> None:
        pass


class Statuses:
    """What became of every workload, by policy; `queue` is to be run as a task."""

    def __init__(
        self,
        client: Objects,
        *,
        policy: Callable[[PolicyKey], Policy | None],
        standing: Callable[[Policy], Standing],
        problem: Callable[[Policy], str],
        weather: Callable[[Policy], Weather],
        may_write: Callable[[], bool],
        events: Voice,
        tally: Tally,
    ) -> None:
        self._client = client
        self._policy = policy
        self._standing = standing
        self._problem = problem
        self._weather = weather
        self._may_write = may_write
        self._events = events
        self._tally = tally
        self._outcomes: dict[PolicyKey, dict[WorkloadKey, Outcome]] = {}
        self._owner: dict[WorkloadKey, PolicyKey] = {}
        self._written: dict[PolicyKey, tuple[str, bytes]] = {}
        """The status that each has, and of which uid: another may have taken its name. As squeezed JSON: with their
        explanations those of 2,000 policies are 11 MiB else."""
        self._expected: dict[WorkloadKey, PolicyKey] = {}
        self._waiting: Counter[PolicyKey] = Counter()
        """How many of those that are expected each has."""
        self.queue: WorkQueue[PolicyKey] = WorkQueue("policies", self.write, workers=4)

    def outcome(self, workload: WorkloadKey) -> Outcome | None:
        """What became of a workload at the last look."""
        owner = self._owner.get(workload)
        return self.of(owner).get(workload) if owner else None

    def of(self, policy: PolicyKey) -> Mapping[WorkloadKey, Outcome]:
        return self._outcomes.get(policy, {})

    def put(self, policy: PolicyKey, workload: WorkloadKey, outcome: Outcome) -> None:
        """Note what became of a workload; it belongs to this policy from now on."""
        if self._owner.get(workload, policy) != policy:
            self.drop(workload)
        self._owner[workload] = policy
        outcomes = self._outcomes.setdefault(policy, {})
        if outcomes.get(workload) != outcome:
            outcomes[workload] = outcome
            self.look_again(policy)

    def drop(self, workload: WorkloadKey) -> None:
        """The workload is gone, or no policy is about it."""
        owner = self._owner.pop(workload, None)
        if owner is not None:
            self._outcomes.get(owner, {}).pop(workload, None)
            self.look_again(owner)

    def expect(self, workloads: Mapping[WorkloadKey, PolicyKey]) -> None:
        """All of these are about to be looked at: hold back the statuses of their policies until they have been."""
        self._expected = dict(workloads)
        self._waiting = Counter(workloads.values())

    def looked_at(self, workload: WorkloadKey) -> None:
        """It has been, whatever came of it."""
        policy = self._expected.pop(workload, None)
        if policy is not None:
            self._waiting[policy] -= 1
            if not self._waiting[policy]:
                self.look_again(policy)

    def look_again(self, policy: PolicyKey) -> None:
        """Something that a policy's status tells of has changed."""
        self.queue.add(policy, delay=GATHER)

    async def write(self, key: PolicyKey) -> float | None:
        """Write the status of a policy where it has changed; the answer is when to try again, if at all."""
        if self._waiting[key]:
            return None
        policy = self._policy(key)
        if policy is None and key != DEFAULT:
            self._written.pop(key, None)
            self._outcomes.pop(key, None)
        self._tally.count(key[1] if key == DEFAULT else "/".join(key), self.of(key).items())
        if policy is None:
            return None
        if not self._may_write():
            return GATHER
        namespace, name = key
        uid, kept = self._written.get(key, ("", b""))
        try:
            if uid != policy.uid:
                found = await self._client.get(OPTIMIZATION_POLICIES, name, namespace=namespace)
                before = found.get("status") or {}
            else:
                before = msgspec.json.decode(zlib.decompress(kept))
            status = status_of(
                policy,
                self.of(key),
                standing=self._standing(policy),
                problem=self._problem(policy),
                weather=self._weather(policy),
                before=before,
            )
            if status != before:
                body = {
                    "metadata": {"name": name, "namespace": namespace, "uid": policy.uid},
                    "status": status,
                }
                await self._client.apply(OPTIMIZATION_POLICIES, body, subresource="status", force=True)
                self._warn(policy, news(before, status))
        except NotFound:
            return None
        self._written[key] = policy.uid, zlib.compress(msgspec.json.encode(status), QUICKLY)
        return None

    def _warn(self, policy: Policy, troubles: Iterable[Document]) -> None:
        """Tell of what has just gone wrong where people look for it."""
        about = ObjectReference(
            api_version=OPTIMIZATION_POLICIES.api_version,
            kind=OPTIMIZATION_POLICIES.kind,
            name=policy.name,
            namespace=policy.namespace,
            uid=policy.uid,
        )
        for trouble in troubles:
            self._events.record(
                about,
                type="Warning",
                reason=trouble["reason"],
                message=trouble["message"],
                action="Reconcile",
            )

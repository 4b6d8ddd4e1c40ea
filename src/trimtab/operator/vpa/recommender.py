"""The VerticalPodAutoscalers that name us: who they are about, and what each is told.

Who does what: a VPA's status is ours to write, whatever policies say, from what the strategy of the workload's policy
proposes, or the one of the default policy where none selects it; the VPA's own resourcePolicy bounds it. A policy
bounds, guards and applies its own recommendation, and leaves a workload to VPA's own parts wherever a VPA is in effect
there (`Catalog.applied_by`), so that no pod has two masters.

Nobody starts from nothing: until we have seen a container for a day, or have anything to say of it, what VPA's own
recommender had learned (`checkpoints`) is what we answer, except after a kill, of which it knows nothing. Policies do
not lean on it: they act on what was seen by ourselves.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping

import msgspec
import numpy as np
import structlog

from trimtab.actuation.effective_size import effective_containers
from trimtab.kube.errors import KubeError, describe
from trimtab.kube.kinds.pods import Container
from trimtab.kube.kinds.vpas import Vpa
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.client import Object
from trimtab.kube.rest.object_client import Objects
from trimtab.operator.cluster_state import Catalog, target_of
from trimtab.operator.vpa.status import is_ours, recommend
from trimtab.recommender.cohort import Learned
from trimtab.recommender.vpa_checkpoints import CheckpointKey, read_checkpoints, warm_up
from trimtab.sizing.evidence import Evidence
from trimtab.sizing.guards.oom import is_leaking, proportional_request
from trimtab.sizing.policy_rules import Rules
from trimtab.sizing.proposal import Proposal, proposal
from trimtab.sizing.safe_minimum import is_oom_prone, sized_resource
from trimtab.sizing.strategies.vpa import Vpa as VpaStrategy
from trimtab.sizing.strategies.vpa import VpaSettings

log = structlog.get_logger(__name__)

Heritage = Mapping[tuple[str, str], Mapping[str, Proposal]]
"""By a VPA's namespace and name: what was known of each container."""

WELL_KNOWN = 86400.0
"""Seconds for which a container has been seen when what VPA knew of it is of no more use."""


class DropIn:
    """What VPAs are told, as a recommender of theirs."""

    def __init__(
        self, client: Objects, catalog: Catalog, *, may_write: Callable[[], bool], dry_run: Callable[[], bool]
    ) -> None:
        self._client = client
        self._catalog = catalog
        self._may_write = may_write
        self._dry_run = dry_run
        self._inherited: Heritage = {}

    async def begin(self, now: float) -> None:
        """Find out what VPA's own recommender had learned."""
        try:
            self._inherited = inherited(await read_checkpoints(self._client), now)
        except KubeError as error:
            log.warning("checkpoints.unread", error=describe(error))

    def targets(self) -> set[WorkloadKey]:
        """The workloads that VPAs of ours are about, be they there or not."""
        return {self._catalog.top(target_of(vpa)) for vpa in self._catalog.vpas if is_ours(vpa)}

    def asks_for(self, key: WorkloadKey) -> bool:
        """Whether a VPA of ours is about this workload."""
        return any(map(is_ours, self._catalog.vpas_of(key)))

    async def tell(
        self, key: WorkloadKey, learned: Mapping[str, Learned], now: float, *, rules: Rules | None = None
    ) -> None:
        """Tell every VPA of ours about a workload what is known of its containers."""
        if not self._may_write() or (self._dry_run() and self._catalog.applied_by(key)):
            return  # what it is told would be put into effect

        workload = self._catalog.get(key)
        containers = effective_containers(workload, self._catalog.pods_of(workload)) if workload else ()
        sizes = {each.name: each for each in containers}

        def proposals(vpa: Vpa) -> dict[str, Proposal]:
            theirs = self._inherited.get((vpa.namespace, vpa.name), {})
            found: dict[str, Proposal] = {}
            for name in {*theirs, *learned}:
                if proposed := best(own := learned.get(name), theirs.get(name)):
                    found[name] = proposed
                    if own and name in sizes:
                        found[name] = above_kills(proposed, sizes[name], own.evidence, rules or Rules(), now)
            return found

        await recommend(self._client, self._catalog, key, proposals=proposals, now=now)


def above_kills(
    proposal: Proposal, container: Container, evidence: Evidence, rules: Rules, now: float
) -> Proposal:
    """Raise the memory of a container that was killed above what killed it, and hold that of one that leaks.

    VPA scales a limit along with its request, so the request rises by as much as the limit must. Its updater acts on
    requests below the lower bound, so that rises too.
    """
    sized = sized_resource(container, "memory", evidence=evidence, rules=rules, now=now)
    least, memory = float(proportional_request(sized)), proposal.memory
    if not least or not math.isfinite(memory.target):
        return proposal
    target = least if is_leaking(sized) else max(memory.target, least)
    lower = max(least, memory.lower) if is_oom_prone(sized) else memory.lower
    raised = msgspec.structs.replace(
        memory, target=target, lower=min(lower, target), upper=max(memory.upper, target)
    )
    return msgspec.structs.replace(proposal, memory=raised)


def inherited(checkpoints: Mapping[CheckpointKey, Object], now: float) -> Heritage:
    """What VPA's own recommender would recommend now."""
    rows = {key: row for row, key in enumerate(checkpoints)}
    sizer = VpaStrategy(max(len(rows), 1), VpaSettings())
    known = warm_up(sizer, rows, checkpoints)
    pods = Counter(key[:2] for key in known)
    sizer.share_pods(np.array([pods[key[:2]] for key in rows] or [1], np.intp))
    sizes = sizer.recommend(now)
    found: dict[tuple[str, str], dict[str, Proposal]] = {}
    for key in known:
        theirs = found.setdefault((key.namespace, key.vpa), {})
        theirs[key.container] = proposal(sizes, rows[key], strategy=VpaStrategy.name)
    return found


def best(own: Learned | None, before: Proposal | None) -> Proposal | None:
    """Our own proposal where it rests on enough; else that of before us."""
    if own is None or before is None:
        return own.proposal if own else before
    seen = own.evidence
    if seen.observed < WELL_KNOWN and not seen.kills:
        return before
    return msgspec.structs.replace(
        own.proposal,
        cpu=own.proposal.cpu if math.isfinite(own.proposal.cpu.target) else before.cpu,
        memory=own.proposal.memory if math.isfinite(own.proposal.memory.target) else before.memory,
    )

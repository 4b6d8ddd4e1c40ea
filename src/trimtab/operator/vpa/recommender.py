"""Recommend for the VerticalPodAutoscalers that name Trimtab as their recommender.

Trimtab writes the status of such a VPA whatever policies say, from the strategy of the workload's policy, or of the
default policy if none selects it; the VPA's own resourcePolicy bounds it. A policy bounds, guards and applies its own
recommendation, and does not change a workload while a VPA does (`ClusterState.active_vpa`), so that no pod has two
controllers.

Until Trimtab has observed a container for a day, or has an estimate for it, the VPA recommender's checkpoints are the
answer, except after an OOM kill, which they do not contain. Policies never use checkpoints: they act only on Trimtab's
own observations.
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
from trimtab.kube.kinds.vpas import VerticalPodAutoscaler
from trimtab.kube.kinds.workloads import WorkloadKey
from trimtab.kube.rest.client import Object
from trimtab.kube.rest.object_client import ObjectClient
from trimtab.operator.cluster_state import ClusterState, scale_target
from trimtab.operator.vpa.status import is_trimtab_vpa, update_vpa_statuses
from trimtab.recommender.cohort import ContainerEstimate
from trimtab.recommender.vpa_checkpoints import CheckpointKey, read_checkpoints, restore_checkpoints
from trimtab.sizing.evidence import Evidence, is_oom_prone, sized_resource
from trimtab.sizing.guards.oom import is_leaking, proportional_request
from trimtab.sizing.policy_rules import PolicyRules
from trimtab.sizing.proposal import Proposal, build_proposal
from trimtab.sizing.strategies.vpa import VpaSettings, VpaStrategy

log = structlog.get_logger(__name__)

CheckpointProposals = Mapping[tuple[str, str], Mapping[str, Proposal]]
"""The proposals from checkpoints, by a VPA's namespace and name, for each container."""

SUFFICIENT_OBSERVATION = 86400.0
"""The seconds of observation after which a container's checkpoint is no longer used."""


class VpaRecommender:
    """Writes the recommendations of VPAs that name Trimtab."""

    def __init__(
        self,
        client: ObjectClient,
        cluster_state: ClusterState,
        *,
        may_write: Callable[[], bool],
        is_frozen: Callable[[], bool],
    ) -> None:
        self._client = client
        self._cluster_state = cluster_state
        self._may_write = may_write
        self._is_frozen = is_frozen
        self._checkpoint_proposals: CheckpointProposals = {}

    async def load_checkpoints(self, now: float) -> None:
        """Load the checkpoints of the VPA's own recommender."""
        try:
            self._checkpoint_proposals = propose_from_checkpoints(await read_checkpoints(self._client), now)
        except KubeError as error:
            log.warning("vpa_checkpoints.read_failed", error=describe(error))

    def targets(self) -> set[WorkloadKey]:
        """Return the workloads, existing or not, that these VPAs target."""
        return {
            self._cluster_state.find_top_owner(scale_target(vpa))
            for vpa in self._cluster_state.vpas
            if is_trimtab_vpa(vpa)
        }

    def has_vpa(self, key: WorkloadKey) -> bool:
        """Return True if such a VPA targets this workload."""
        return any(map(is_trimtab_vpa, self._cluster_state.list_vpas(key)))

    async def update_vpas(
        self,
        key: WorkloadKey,
        estimates: Mapping[str, ContainerEstimate],
        now: float,
        *,
        rules: PolicyRules | None = None,
    ) -> None:
        """Update the recommendations of all these VPAs of a workload."""
        if not self._may_write() or (self._is_frozen() and self._cluster_state.active_vpa(key)):
            return  # the VPA's updater would apply the recommendation

        workload = self._cluster_state.get(key)
        containers = (
            effective_containers(workload, self._cluster_state.list_pods(workload)) if workload else ()
        )
        sizes = {each.name: each for each in containers}

        def proposals(vpa: VerticalPodAutoscaler) -> dict[str, Proposal]:
            theirs = self._checkpoint_proposals.get((vpa.namespace, vpa.name), {})
            found: dict[str, Proposal] = {}
            for name in {*theirs, *estimates}:
                if proposed := choose_proposal(own := estimates.get(name), theirs.get(name)):
                    found[name] = proposed
                    if own and name in sizes:
                        found[name] = raise_above_ooms(
                            proposed, sizes[name], own.evidence, rules or PolicyRules(), now
                        )
            return found

        await update_vpa_statuses(self._client, self._cluster_state, key, proposals=proposals, now=now)


def raise_above_ooms(
    proposal: Proposal, container: Container, evidence: Evidence, rules: PolicyRules, now: float
) -> Proposal:
    """Raise a container's memory above the size at which it was OOM-killed, and hold that of one that leaks.

    The VPA scales a limit along with its request, so the request rises by the same factor as the limit must. Its updater
    acts on requests below the lower bound, so that rises too.
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


def propose_from_checkpoints(checkpoints: Mapping[CheckpointKey, Object], now: float) -> CheckpointProposals:
    """Return the recommendations that the VPA's own recommender would make now."""
    rows = {key: row for row, key in enumerate(checkpoints)}
    sizer = VpaStrategy(max(len(rows), 1), VpaSettings())
    known = restore_checkpoints(sizer, rows, checkpoints)
    pods = Counter(key[:2] for key in known)
    sizer.set_containers_per_pod(np.array([pods[key[:2]] for key in rows] or [1], np.intp))
    sizes = sizer.recommend(now)
    found: dict[tuple[str, str], dict[str, Proposal]] = {}
    for key in known:
        theirs = found.setdefault((key.namespace, key.vpa), {})
        theirs[key.container] = build_proposal(sizes, rows[key], strategy=VpaStrategy.name)
    return found


def choose_proposal(own: ContainerEstimate | None, before: Proposal | None) -> Proposal | None:
    """Return Trimtab's own proposal if it rests on enough samples; otherwise the one from the checkpoint."""
    if own is None or before is None:
        return own.proposal if own else before
    seen = own.evidence
    if seen.observed_seconds < SUFFICIENT_OBSERVATION and not seen.kills:
        return before
    return msgspec.structs.replace(
        own.proposal,
        cpu=own.proposal.cpu if math.isfinite(own.proposal.cpu.target) else before.cpu,
        memory=own.proposal.memory if math.isfinite(own.proposal.memory.target) else before.memory,
    )

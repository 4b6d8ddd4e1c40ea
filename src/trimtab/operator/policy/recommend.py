"""Recommend for a workload under its policy: the same call for the operator and for a scan."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from trimtab.actuation.effective_size import PodSync
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.workloads import Workload
from trimtab.operator.policy.resolver import EffectivePolicy
from trimtab.recommender.cohort import ContainerEstimate
from trimtab.recommender.workload import WorkloadRecommendation, recommend_workload
from trimtab.sizing.constraints import Constraints
from trimtab.sizing.policy_rules import PolicyRules


def recommend_under_policy(
    workload: Workload,
    pods: Sequence[Pod],
    policy: EffectivePolicy,
    *,
    estimate: Callable[[str], ContainerEstimate | None],
    constraints: Constraints,
    source: str,
    now: float,
    sync: PodSync,
    can_resize_in_place: bool,
    explained: bool = True,
) -> WorkloadRecommendation:
    """Recommend resources by the rules of an effective policy, in a cluster with or without in-place resize."""
    return recommend_workload(
        workload,
        pods,
        rules=effective_rules(policy, can_resize_in_place=can_resize_in_place),
        estimate=estimate,
        constraints=constraints,
        source=source,
        now=now,
        sync=sync,
        explained=explained,
    )


def effective_rules(policy: EffectivePolicy, *, can_resize_in_place: bool) -> PolicyRules:
    """Return the rules of an effective policy in a cluster with or without in-place resize."""
    # Without it every change replaces pods, so the guards must treat small changes as not worth a restart.
    return policy.rules if can_resize_in_place else msgspec.structs.replace(policy.rules, restarts_pods=True)

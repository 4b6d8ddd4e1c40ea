"""Sizes of a DaemonSet by group of similar nodes, because an agent needs more on a larger node.

A DaemonSet has one template, which gets the largest size of its groups; pods that are resized in place get
the size of their own group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import isnan

from trimtab.kube.kinds.nodes import Node
from trimtab.sizing.proposal import Proposal, ResourceTarget

INSTANCE_TYPE = "node.kubernetes.io/instance-type"


def node_group(node: Node, label: str = INSTANCE_TYPE) -> str:
    """Return the group of a node: the value of the label, or else its size."""
    size = node.allocatable
    return dict(node.labels).get(label) or f"{size.cpu // 1000} cores, {size.memory >> 30} GiB"


def group_proposals(proposals: Mapping[str, Proposal], groups: Mapping[str, str]) -> dict[str, Proposal]:
    """Return the largest proposal of each group, from one per node; a node without a group is its own group."""
    members: defaultdict[str, list[Proposal]] = defaultdict(list)
    for node, proposal in proposals.items():
        members[groups.get(node, node)].append(proposal)
    return {group: merge_largest(found) for group, found in members.items()}


def merge_largest(proposals: Iterable[Proposal]) -> Proposal:
    """Return the largest targets of these proposals, by resource; a proposal without a target does not count."""
    everyone = tuple(proposals)
    return Proposal(
        cpu=_pick_largest(one.cpu for one in everyone),
        memory=_pick_largest(one.memory for one in everyone),
        strategy=everyone[0].strategy,
        facts=everyone[0].facts if len(everyone) == 1 else (),
    )


def _pick_largest(asks: Iterable[ResourceTarget]) -> ResourceTarget:
    """Return the whole target with the highest amount, because its deadband belongs to it."""
    return max(
        (ask for ask in asks if not isnan(ask.target)), key=lambda ask: ask.target, default=ResourceTarget()
    )

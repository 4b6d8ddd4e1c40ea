"""Sizes of a DaemonSet: one for each group of like nodes, for what an agent needs grows with its node.

A DaemonSet has one template, so that takes the largest of its groups; pods that are resized in place get their own
group's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import isnan

from trimtab.kube.kinds.nodes import Node
from trimtab.sizing.proposal import Proposal, ResourceTarget

INSTANCE_TYPE = "node.kubernetes.io/instance-type"


def node_group(node: Node, label: str = INSTANCE_TYPE) -> str:
    """The group of a node: what the label says, or else how large it is."""
    size = node.allocatable
    return dict(node.labels).get(label) or f"{size.cpu // 1000} cores, {size.memory >> 30} GiB"


def group_proposals(proposals: Mapping[str, Proposal], groups: Mapping[str, str]) -> dict[str, Proposal]:
    """The largest proposal of each group, from those for each node; a node without a group is a group by itself."""
    members: defaultdict[str, list[Proposal]] = defaultdict(list)
    for node, proposal in proposals.items():
        members[groups.get(node, node)].append(proposal)
    return {group: merge_largest(found) for group, found in members.items()}


def merge_largest(proposals: Iterable[Proposal]) -> Proposal:
    """The most that any of these asks for, of each resource; one that cannot say does not count."""
    everyone = tuple(proposals)
    return Proposal(
        cpu=_pick_largest(one.cpu for one in everyone),
        memory=_pick_largest(one.memory for one in everyone),
        strategy=everyone[0].strategy,
        facts=everyone[0].facts if len(everyone) == 1 else (),
    )


def _pick_largest(asks: Iterable[ResourceTarget]) -> ResourceTarget:
    """The ask with the highest target, whole: its deadband belongs to it."""
    return max(
        (ask for ask in asks if not isnan(ask.target)), key=lambda ask: ask.target, default=ResourceTarget()
    )

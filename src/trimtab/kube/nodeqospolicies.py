"""NodeQoSPolicies, and which of them holds on a node: the heaviest that selects it, and of equals the first by name.

The agent of a node asks for its own; the operator counts on how many nodes each holds. Both ask here, and so agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from trimtab.api import NodeQoSPolicy
from trimtab.api.nodeqospolicy import NodeQoSPolicySpec
from trimtab.kube.declared import Declared, declared
from trimtab.kube.records import Shape


class QosPolicy(Declared[NodeQoSPolicySpec], frozen=True, eq=False):
    """One NodeQoSPolicy. One whose spec makes no sense holds nowhere."""


def qos_policies() -> Shape[QosPolicy]:
    """Read NodeQoSPolicies as records."""
    return declared(NodeQoSPolicy, QosPolicy)


def policy_for(labels: Mapping[str, str], policies: Iterable[QosPolicy]) -> QosPolicy | None:
    """The one that holds on a node with these labels."""
    selecting = [
        (-policy.spec.weight, policy.name, policy)
        for policy in policies
        if policy.spec is not None
        and (policy.spec.node_selector is None or policy.spec.node_selector.matches(labels))
    ]
    return min(selecting, key=lambda one: one[:2])[2] if selecting else None

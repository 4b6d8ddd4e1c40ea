"""The free capacity of nodes, quotas and namespace caps, as arbitration needs it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf

from trimtab.api.quantity import Quantity
from trimtab.intents.capacity import Capacity, FreeResources
from trimtab.intents.state import TargetState
from trimtab.kube.kinds.nodes import Node
from trimtab.kube.kinds.pod_requests import pod_requests
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.quotas import ResourceQuota
from trimtab.operator.config.intents import IntentGuardrail, IntentSettings
from trimtab.sizing.constraints import remaining_quota


def available_capacity(
    *,
    nodes: Iterable[Node],
    pods: Iterable[Pod],
    quotas: Iterable[ResourceQuota],
    targets: Mapping[str, Sequence[TargetState]],
    settings: IntentSettings,
) -> Capacity:
    """Return the free capacity, given the targets of Intents by namespace."""
    by_namespace: dict[str, list[ResourceQuota]] = {}
    for quota in quotas:
        by_namespace.setdefault(quota.namespace, []).append(quota)
    left = {
        namespace: _min_capacity(
            _quota_capacity(by_namespace.get(namespace, ())),
            _cap_capacity(settings.guardrails_for(namespace), states),
        )
        for namespace, states in targets.items()
    }
    return Capacity(_node_capacity(nodes, pods), left)


def _node_capacity(nodes: Iterable[Node], pods: Iterable[Pod]) -> dict[str, FreeResources]:
    free = {
        node.name: [
            node.allocatable.cpu / 1000,
            float(node.allocatable.memory),
            # A cordoned node takes no new pods, but its pods may grow.
            0.0 if node.unschedulable else float(node.allocatable.pods),
        ]
        for node in nodes
        if node.ready
    }
    for pod in pods:
        left = free.get(pod.node)
        if left is not None and pod.phase in {"Pending", "Running", ""}:
            taken = pod_requests(pod)
            left[0] -= taken.cpu / 1000
            left[1] -= taken.memory
            left[2] -= 1
    return {name: FreeResources(cpu, memory, slots) for name, (cpu, memory, slots) in free.items()}


def _quota_capacity(quotas: Iterable[ResourceQuota]) -> FreeResources:
    left = remaining_quota(quotas)
    return FreeResources(
        cpu=inf if left.cpu_request is None else left.cpu_request / 1000,
        memory=inf if left.memory_request is None else float(left.memory_request),
    )


def _cap_capacity(guardrails: Iterable[IntentGuardrail], states: Sequence[TargetState]) -> FreeResources:
    """Return what the caps of a namespace leave after the requests of its Intents' targets."""
    asked = [(*state.requests_per_pod(), state.replicas) for state in states]
    cpu = sum(each * count for each, _, count in asked)
    memory = sum(each * count for _, each, count in asked)
    pods = sum(count for _, _, count in asked)
    found = FreeResources()
    for guardrail in guardrails:
        cap = FreeResources(
            _cap_amount(guardrail.max_total_cpu) - cpu,
            _cap_amount(guardrail.max_total_memory) - memory,
            (inf if guardrail.max_total_pods is None else guardrail.max_total_pods) - pods,
        )
        found = _min_capacity(found, cap)
    return found


def _cap_amount(quantity: Quantity | None) -> float:
    return inf if quantity is None else quantity.cores


def _min_capacity(one: FreeResources, other: FreeResources) -> FreeResources:
    return FreeResources(min(one.cpu, other.cpu), min(one.memory, other.memory), min(one.pods, other.pods))

"""How much more there is to have: what the nodes, quotas and the caps of namespaces leave, as arbitration counts it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf

from trimtab.api.quantity import Quantity
from trimtab.intents.capacity import Free, Room
from trimtab.intents.state import State
from trimtab.kube.kinds.nodes import Node
from trimtab.kube.kinds.pod_requests import pod_requests
from trimtab.kube.kinds.pods import Pod
from trimtab.kube.kinds.quotas import Quota
from trimtab.operator.config.intents import IntentGuardrail, IntentSettings
from trimtab.sizing.constraints import quota_left


def room_of(
    *,
    nodes: Iterable[Node],
    pods: Iterable[Pod],
    quotas: Iterable[Quota],
    targets: Mapping[str, Sequence[State]],
    settings: IntentSettings,
) -> Room:
    """What is left now, given the targets of intents by namespace."""
    by_namespace: dict[str, list[Quota]] = {}
    for quota in quotas:
        by_namespace.setdefault(quota.namespace, []).append(quota)
    left = {
        namespace: _least(
            _of_quota(by_namespace.get(namespace, ())),
            _of_caps(settings.guardrails_of(namespace), states),
        )
        for namespace, states in targets.items()
    }
    return Room(_of_nodes(nodes, pods), left)


def _of_nodes(nodes: Iterable[Node], pods: Iterable[Pod]) -> dict[str, Free]:
    free = {
        node.name: [
            node.allocatable.cpu / 1000,
            float(node.allocatable.memory),
            # What runs there may grow, and nothing new comes.
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
    return {name: Free(cpu, memory, slots) for name, (cpu, memory, slots) in free.items()}


def _of_quota(quotas: Iterable[Quota]) -> Free:
    left = quota_left(quotas)
    return Free(
        cpu=inf if left.cpu_request is None else left.cpu_request / 1000,
        memory=inf if left.memory_request is None else float(left.memory_request),
    )


def _of_caps(rails: Iterable[IntentGuardrail], states: Sequence[State]) -> Free:
    """What the caps of a namespace leave, of which its intents' targets have this already."""
    asked = [(*state.requested(), state.replicas) for state in states]
    cpu = sum(each * count for each, _, count in asked)
    memory = sum(each * count for _, each, count in asked)
    pods = sum(count for _, _, count in asked)
    found = Free()
    for rail in rails:
        cap = Free(
            _cap(rail.cap_cpu) - cpu,
            _cap(rail.cap_memory) - memory,
            (inf if rail.cap_pods is None else rail.cap_pods) - pods,
        )
        found = _least(found, cap)
    return found


def _cap(quantity: Quantity | None) -> float:
    return inf if quantity is None else quantity.cores


def _least(one: Free, other: Free) -> Free:
    return Free(min(one.cpu, other.cpu), min(one.memory, other.memory), min(one.pods, other.pods))

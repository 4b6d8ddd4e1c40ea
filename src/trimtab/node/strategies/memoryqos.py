"""Memory QoS: protect memory by tier, and throttle containers before their limit.

    memory.min, memory.low = request · percent        memory.high = request + percent · (limit - request)

A container without a limit uses its pod's, or else the node's memory. A parent must protect the sum of its
children, so pods, QoS classes, kubepods and its parents get the sums, or keep a higher value. Only cgroup v2
has these knobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import ClassVar

from trimtab.api.nodeqospolicy import MemoryProtection, MemoryQoSSpec
from trimtab.kube.kinds.pods import Resources
from trimtab.node.arbiter import BoundType, KnobRef, KnobRequest
from trimtab.node.cgroups.knobs import MEMORY_HIGH, MEMORY_LOW, MEMORY_MIN
from trimtab.node.model import ContainerView, NodeView, Tier
from trimtab.node.strategies.strategy import NO_OUTPUT, StrategyInput, StrategyOutput

PAGE = 4096


def compute_high(container: ContainerView, percent: int, most: int) -> int | None:
    """Return memory.high, or None for no throttling; without a limit the container may use `most`."""
    request = container.resources.memory_request or 0
    limit = container.resources.memory_limit or most
    return (
        _round_to_pages(request + (limit - request) * percent // 100) if percent and limit > request else None
    )


def compute_protection(resources: Resources, percent: int) -> int:
    return _round_to_pages((resources.memory_request or 0) * percent // 100)


def _round_to_pages(amount: int) -> int:
    return amount // PAGE * PAGE


class MemoryQos:
    """Remembers its last output, which is valid for the same view and policy."""

    name: ClassVar[str] = "memoryqos"
    settings_type: ClassVar[type[MemoryQoSSpec]] = MemoryQoSSpec

    def __init__(self) -> None:
        self._last: tuple[NodeView, MemoryQoSSpec, StrategyOutput] | None = None

    def plan(self, inputs: StrategyInput) -> StrategyOutput:
        settings, view = inputs.policy.memory_qos, inputs.view
        if not settings.enable:
            self._last = None
            return NO_OUTPUT
        if self._last is None or self._last[0] is not view or self._last[1] != settings:
            self._last = (view, settings, self._build_output(view, settings))
        return self._last[2]

    def _build_output(self, view: NodeView, settings: MemoryQoSSpec) -> StrategyOutput:
        tiers: dict[Tier, MemoryProtection] = {
            Tier.LSR: settings.lsr,
            Tier.LS: settings.ls,
            Tier.BE: settings.be,
        }
        kept: Counter[KnobRef] = Counter()
        requests: list[KnobRequest] = []
        for pod in view.pods:
            tier = tiers[pod.tier]
            for knob, percent in (
                (MEMORY_MIN, tier.min_limit_percent),
                (MEMORY_LOW, tier.low_limit_percent),
            ):
                requests += [
                    self._build_request(KnobRef(container.cgroup, knob), amount)
                    for container in pod.containers
                    if (amount := compute_protection(container.resources, percent))
                ]
                if whole := compute_protection(pod.resources, percent):
                    kept.update(
                        {KnobRef(path, knob): whole for path in (pod.cgroup, *_list_parents(pod.cgroup))}
                    )
            for container in pod.containers:
                slow = compute_high(
                    container, tier.throttling_percent, pod.pod_level_resources.memory_limit or view.memory
                )
                if slow is not None:
                    requests.append(self._build_request(KnobRef(container.cgroup, MEMORY_HIGH), slow))
        parents = (self._build_request(ref, amount, BoundType.AT_LEAST) for ref, amount in kept.items())
        return StrategyOutput((*requests, *parents))

    def _build_request(self, ref: KnobRef, amount: int, bound: BoundType = BoundType.EXACTLY) -> KnobRequest:
        return KnobRequest(
            ref=ref,
            value=amount,
            bound=bound,
            strategy=self.name,
            reason="from request and limit, as set in the policy",
        )


def _list_parents(path: str) -> Iterator[str]:
    """Yield the parents of a cgroup, without the root."""
    while path := path.rpartition("/")[0]:
        yield path

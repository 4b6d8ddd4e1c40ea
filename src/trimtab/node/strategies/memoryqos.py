"""Memory QoS: what of a tier's memory is never taken, what is taken last, and where a container is slowed down.

    memory.min, memory.low = request · percent        memory.high = request + percent · (limit - request)

A container without a limit has its pod's, or else the node's memory for one. A parent protects what its children are to keep, or the
kernel takes it from the parent: so pods, their classes, kubepods and what that lies in get the sums, or keep what is more.
Only cgroup v2 has these knobs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import ClassVar

from trimtab.api.nodeqospolicy import MemoryProtection, MemoryQoS
from trimtab.kube.kinds.pods import Resources
from trimtab.node.arbiter import Bound, Spot, Wish
from trimtab.node.cgroups.knobs import MEMORY_HIGH, MEMORY_LOW, MEMORY_MIN
from trimtab.node.model import ContainerView, NodeView, Tier
from trimtab.node.strategies.strategy import NOTHING, Plan, Scene

PAGE = 4096


def high(container: ContainerView, percent: int, most: int) -> int | None:
    """Where reclaim sets in; None for never. Without a limit it may have `most`."""
    request = container.resources.memory_request or 0
    limit = container.resources.memory_limit or most
    return _pages(request + (limit - request) * percent // 100) if percent and limit > request else None


def protected(resources: Resources, percent: int) -> int:
    return _pages((resources.memory_request or 0) * percent // 100)


def _pages(amount: int) -> int:
    return amount // PAGE * PAGE


class MemoryQos:
    """Remembers its last answer, which holds while the pods and the policy are the same."""

    name: ClassVar[str] = "memoryqos"
    settings_type: ClassVar[type[MemoryQoS]] = MemoryQoS

    def __init__(self) -> None:
        self._last: tuple[NodeView, MemoryQoS, Plan] | None = None

    def plan(self, scene: Scene) -> Plan:
        settings, view = scene.policy.memory_qos, scene.view
        if not settings.enable:
            self._last = None
            return NOTHING
        if self._last is None or self._last[0] is not view or self._last[1] != settings:
            self._last = (view, settings, self._plan(view, settings))
        return self._last[2]

    def _plan(self, view: NodeView, settings: MemoryQoS) -> Plan:
        tiers: dict[Tier, MemoryProtection] = {
            Tier.LSR: settings.lsr,
            Tier.LS: settings.ls,
            Tier.BE: settings.be,
        }
        kept: Counter[Spot] = Counter()
        wishes: list[Wish] = []
        for pod in view.pods:
            tier = tiers[pod.tier]
            for knob, percent in (
                (MEMORY_MIN, tier.min_limit_percent),
                (MEMORY_LOW, tier.low_limit_percent),
            ):
                wishes += [
                    self._wish(Spot(container.cgroup, knob), amount)
                    for container in pod.containers
                    if (amount := protected(container.resources, percent))
                ]
                if whole := protected(pod.resources, percent):
                    kept.update({Spot(path, knob): whole for path in (pod.cgroup, *_above(pod.cgroup))})
            for container in pod.containers:
                slow = high(container, tier.throttling_percent, pod.whole.memory_limit or view.memory)
                if slow is not None:
                    wishes.append(self._wish(Spot(container.cgroup, MEMORY_HIGH), slow))
        parents = (self._wish(spot, amount, Bound.AT_LEAST) for spot, amount in kept.items())
        return Plan((*wishes, *parents))

    def _wish(self, spot: Spot, amount: int, bound: Bound = Bound.EXACTLY) -> Wish:
        return Wish(
            spot=spot,
            value=amount,
            bound=bound,
            strategy=self.name,
            why="of request and limit, as the policy says",
        )


def _above(path: str) -> Iterator[str]:
    """What a cgroup lies in, without the root, which protects nobody."""
    while path := path.rpartition("/")[0]:
        yield path

"""Memory QoS: what of a tier's memory is never taken, what is taken last, and where a container is slowed down.

    memory.min, memory.low = request · percent        memory.high = request + percent · (limit - request)

A container without a limit has the node's memory for one. A parent protects what its children are to keep, or the
kernel takes it from the parent: so pods, their classes and kubepods get the sums. Only cgroup v2 has these knobs.
"""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from trimtab.api.nodeqospolicy import MemoryProtection, MemoryQoS
from trimtab.node.arbiter import Spot, Wish
from trimtab.node.cgroups.knobs import MEMORY_HIGH, MEMORY_LOW, MEMORY_MIN
from trimtab.node.picture import ContainerView, NodeView, Tier
from trimtab.node.strategies.strategy import NOTHING, Plan, Scene

PAGE = 4096


def high(container: ContainerView, percent: int, node_memory: int) -> int | None:
    """Where reclaim sets in; None for never."""
    request = container.resources.memory_request or 0
    limit = container.resources.memory_limit or node_memory
    return _pages(request + (limit - request) * percent // 100) if percent and limit > request else None


def protected(container: ContainerView, percent: int) -> int:
    return _pages((container.resources.memory_request or 0) * percent // 100)


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
        wishes = []
        for pod in view.pods:
            tier = tiers[pod.tier]
            for container in pod.containers:
                for knob, percent in (
                    (MEMORY_MIN, tier.min_limit_percent),
                    (MEMORY_LOW, tier.low_limit_percent),
                ):
                    amount = protected(container, percent)
                    for path in _way(container.cgroup, view.pods_cgroup):
                        kept[Spot(path, knob)] += amount
                slow = high(container, tier.throttling_percent, view.memory)
                if slow is not None:
                    wishes.append(self._wish(Spot(container.cgroup, MEMORY_HIGH), slow))
        return Plan((*wishes, *(self._wish(spot, amount) for spot, amount in kept.items() if amount)))

    def _wish(self, spot: Spot, amount: int) -> Wish:
        return Wish(
            spot=spot, value=amount, strategy=self.name, why="of request and limit, as the policy says"
        )


def _way(path: str, top: str) -> list[str]:
    """A cgroup and those that it lies in, up to that of all pods."""
    way = [path]
    while path != top and "/" in path:
        path = path.rpartition("/")[0]
        way.append(path)
    return way

"""Find the CPUs that pods share, and the order in which they are allocated."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import zip_longest

from trimtab.node.cgroups import QosClass
from trimtab.node.model import (
    ContainerView,
    Cpu,
    Metric,
    MetricWindows,
    NodeView,
    PodView,
    Tier,
    container_subject,
    pod_subject,
)

MIN_CPUS = 2
"""The minimum number of shared CPUs, also if pods with exclusive CPUs have to share theirs."""


@dataclass(frozen=True, slots=True)
class SharedCpus:
    """The CPUs of pods without exclusive CPUs."""

    cpus: tuple[Cpu, ...]
    exclusive_cgroups: frozenset[str] = frozenset()
    """The cgroups of containers that use none of them."""

    @property
    def ids(self) -> frozenset[int]:
        return frozenset(cpu.id for cpu in self.cpus)

    def read_usage(self, pod: PodView, windows: MetricWindows) -> float | None:
        """Return the cores of these CPUs that a pod uses; None when that is not known."""
        own = [container for container in pod.containers if container.cgroup in self.exclusive_cgroups]
        if own and len(own) == len(pod.containers):
            return 0.0
        used = windows.latest(pod_subject(pod.uid), Metric.CPU)
        if used is None:
            return None
        # Unknown usage counts as usage of the shared CPUs, which is conservative.
        elsewhere = (
            windows.latest(container_subject(pod.uid, container.name), Metric.CPU) for container in own
        )
        return max(0.0, used - sum(cores or 0.0 for cores in elsewhere))


def find_shared_cpus(
    view: NodeView, *, pinned: Callable[[str], frozenset[int]], available: frozenset[int]
) -> SharedCpus:
    """Return the shared CPUs, without isolated and exclusive ones.

    `pinned` returns the CPUs of a container's cgroup, `available` are those of all pods; empty means unknown
    or all. The kubelet's exclusive CPUs are removed first; then the CPUs of reserved pods, the smallest sets
    first, because a container beside one with exclusive CPUs has all others.
    """
    online = frozenset(cpu.id for cpu in view.cpus)
    whole = (available & online) or online
    left = frozenset(cpu.id for cpu in view.cpus if not cpu.isolated) & whole
    left = left if len(left) >= MIN_CPUS else whole
    owned = (
        (not is_given, pinned(container.cgroup), container.cgroup)
        for pod in view.pods_in_tier(Tier.LSR, Tier.LS)
        for container in pod.containers
        if (is_given := _has_exclusive_cpus(pod, container)) or pod.tier is Tier.LSR
    )
    known = sorted(
        ((asks, own, path) for asks, own, path in owned if own and not own >= whole),
        key=lambda each: (each[0], len(each[1]), sorted(each[1])),
    )
    for _, own, _ in known:
        left = left - own if len(left - own) >= MIN_CPUS else left
    return SharedCpus(
        tuple(cpu for cpu in view.cpus if cpu.id in left),
        frozenset(path for _, own, path in known if not own & left),
    )


def _has_exclusive_cpus(pod: PodView, container: ContainerView) -> bool:
    """Return whether a kubelet that gives CPUs away (its policy static) gives some to this container alone."""
    request = container.resources.cpu_request or 0
    return pod.qos is QosClass.GUARANTEED and request > 0 and request % 1000 == 0


def order_cpus(cpus: Iterable[Cpu]) -> list[int]:
    """Return all CPUs in the order of their allocation.

    Both threads of a core come together, because they disturb each other; cores alternate between NUMA nodes,
    so that memory is near; and the first cores, which serve interrupts, come last. A larger allocation always
    extends a smaller one, so that nothing has to move.
    """
    nodes: dict[int, dict[tuple[int, int], list[int]]] = defaultdict(lambda: defaultdict(list))
    for cpu in cpus:
        nodes[cpu.numa][cpu.socket, cpu.core].append(cpu.id)
    cores = [[sorted(node[key]) for key in sorted(node, reverse=True)] for _, node in sorted(nodes.items())]
    return [cpu for turn in zip_longest(*cores, fillvalue=list[int]()) for threads in turn for cpu in threads]

"""The resctrl strategy: allocate last-level cache and memory bandwidth to tiers.

Each tier has a group. Its cache is a run of ways, (1 << ⌈ways · end⌉) - (1 << ⌈ways · start⌉); its bandwidth
is rounded up to steps of ten. The root group shows what the host has: bandwidth is in percent on Intel and in
eighths of a GB/s on AMD; without it nothing is requested. `hooks` start containers in their group; every ten
seconds missed threads are moved, if the agent sees the node's threads. A pod's annotation may select the
group of another tier.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from trimtab.api.nodeqospolicy import CacheShare
from trimtab.api.nodeqospolicy import ResctrlSpec as Settings
from trimtab.node.arbiter import KnobRef, KnobRequest
from trimtab.node.arbiter.host_knobs import CACHE_SHARES
from trimtab.node.cgroups.knobs import THREADS
from trimtab.node.model import Tier, resolve_cache_tier
from trimtab.node.strategies.strategy import NO_OUTPUT, StrategyInput, StrategyOutput
from trimtab.timing import Interval

BANDWIDTH_STEP = 10
ASSIGN_SECONDS = 10.0
NO_RESCTRL = "resctrl is not mounted at the node's /sys/fs/resctrl, or its CPU does not support it"


def build_ways_mask(ways: int, start_percent: int, end_percent: int) -> int:
    """Return a run of ways as bits, at least one because the kernel rejects an empty mask."""
    start, end = -(-ways * start_percent // 100), -(-ways * end_percent // 100)
    return (1 << max(end, start + 1)) - (1 << start) if start < ways else 1 << (ways - 1)


def compute_bandwidth(whole: int, percent: int) -> int:
    return min(whole, -(-whole * percent // (100 * BANDWIDTH_STEP)) * BANDWIDTH_STEP)


def compute_shares(root: Mapping[str, int], tier: CacheShare) -> dict[str, int]:
    """Return the shares of a tier per cache."""
    return {
        key: compute_bandwidth(whole, tier.mba_percent)
        if key.startswith("MB:")
        else build_ways_mask(whole.bit_length(), tier.cat_range_start_percent, tier.cat_range_end_percent)
        for key, whole in root.items()
    }


class Resctrl:
    """Remembers when it last assigned threads."""

    name: ClassVar[str] = "resctrl"
    settings_type: ClassVar[type[Settings]] = Settings

    def __init__(self) -> None:
        self._assigning = Interval(ASSIGN_SECONDS)

    def plan(self, inputs: StrategyInput) -> StrategyOutput:
        settings = inputs.policy.resctrl
        root = inputs.read_knob(KnobRef("", CACHE_SHARES)) if settings.enable else None
        if not isinstance(root, Mapping) or not root:
            self._assigning = Interval(ASSIGN_SECONDS)
            return StrategyOutput(unsupported=(NO_RESCTRL,)) if settings.enable else NO_OUTPUT
        tiers: dict[Tier, CacheShare] = {Tier.LSR: settings.lsr, Tier.LS: settings.ls, Tier.BE: settings.be}
        requests = tuple(self._build_request(tier, share, root) for tier, share in tiers.items())
        if not self._assigning.due(inputs.now):
            return StrategyOutput(requests)
        self._assigning.restart(inputs.now)
        return StrategyOutput(
            requests, resctrl_tasks={tier.value: _list_threads(inputs, tier) for tier in tiers}
        )

    def _build_request(self, tier: Tier, share: CacheShare, root: Mapping[str, int]) -> KnobRequest:
        ways = f"{share.cat_range_start_percent} to {share.cat_range_end_percent} % of the ways"
        return KnobRequest(
            ref=KnobRef(tier.value, CACHE_SHARES),
            value=compute_shares(root, share),
            strategy=self.name,
            reason=f"{ways}, {share.mba_percent} % of the bandwidth",
        )


def _list_threads(inputs: StrategyInput, tier: Tier) -> frozenset[int]:
    allowed = inputs.policy.tier_namespaces
    pods = (
        pod
        for pod in inputs.view.pods
        if resolve_cache_tier(dict(pod.annotations), pod.tier, pod.namespace, allowed) is tier
    )
    cgroups = (container.cgroup for pod in pods for container in pod.containers)
    return frozenset(thread for path in cgroups for thread in inputs.read_knob_as(tuple, path, THREADS) or ())

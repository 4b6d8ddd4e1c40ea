"""resctrl: which part of the last-level cache and of the memory bandwidth each tier may use.

A class a tier. Its part of the cache is a run of ways, (1 << ⌈ways · end⌉) - (1 << ⌈ways · start⌉); its bandwidth comes
in steps of ten, rounded up. What the machine has is what the root class may use: bandwidth is in percent on Intel's
processors and in eighths of a GB/s on AMD's, and without a root class nothing is asked for. Containers get into their
class when they are made, by `hooks`; every ten seconds whoever was missed follows, thread by thread, as resctrl has it,
where the agent sees the node's threads. A pod whose annotation names another class than its tier's is in that one.
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

BANDWIDTH_STEP = 10
ASSIGN_SECONDS = 10.0
NO_RESCTRL = "nothing is mounted at the node's /sys/fs/resctrl, or its processor shares nothing out"


def build_ways_mask(ways: int, start_percent: int, end_percent: int) -> int:
    """A run of ways as bits; the kernel takes no empty one."""
    start, end = -(-ways * start_percent // 100), -(-ways * end_percent // 100)
    return (1 << max(end, start + 1)) - (1 << start) if start < ways else 1 << (ways - 1)


def compute_bandwidth(whole: int, percent: int) -> int:
    return min(whole, -(-whole * percent // (100 * BANDWIDTH_STEP)) * BANDWIDTH_STEP)


def compute_shares(root: Mapping[str, int], tier: CacheShare) -> dict[str, int]:
    """What a tier may use of what the machine has, cache by cache."""
    return {
        key: compute_bandwidth(whole, tier.mba_percent)
        if key.startswith("MB:")
        else build_ways_mask(whole.bit_length(), tier.cat_range_start_percent, tier.cat_range_end_percent)
        for key, whole in root.items()
    }


class Resctrl:
    """Remembers when it last looked for threads that are in no class yet."""

    name: ClassVar[str] = "resctrl"
    settings_type: ClassVar[type[Settings]] = Settings

    def __init__(self) -> None:
        self._assigned_at: float | None = None

    def plan(self, inputs: StrategyInput) -> StrategyOutput:
        settings = inputs.policy.resctrl
        root = inputs.read_knob(KnobRef("", CACHE_SHARES)) if settings.enable else None
        if not isinstance(root, Mapping) or not root:
            self._assigned_at = None
            return StrategyOutput(unsupported=(NO_RESCTRL,)) if settings.enable else NO_OUTPUT
        tiers: dict[Tier, CacheShare] = {Tier.LSR: settings.lsr, Tier.LS: settings.ls, Tier.BE: settings.be}
        wishes = tuple(self._build_request(tier, share, root) for tier, share in tiers.items())
        if self._assigned_at is not None and inputs.now - self._assigned_at < ASSIGN_SECONDS:
            return StrategyOutput(wishes)
        self._assigned_at = inputs.now
        return StrategyOutput(
            wishes, resctrl_tasks={tier.value: _list_threads(inputs, tier) for tier in tiers}
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
    pods = (pod for pod in inputs.view.pods if resolve_cache_tier(dict(pod.annotations), pod.tier) is tier)
    cgroups = (container.cgroup for pod in pods for container in pod.containers)
    return frozenset(thread for path in cgroups for thread in inputs.read_knob_as(tuple, path, THREADS) or ())

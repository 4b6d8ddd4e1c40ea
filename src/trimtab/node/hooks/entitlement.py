"""What a container is entitled to by its tier from its first instruction on.

- A best-effort one starts on the CPUs, and with no more than the quota, that its tier has at the moment: cgroup v1
  refuses a container that asks for more than its parent has.
- With resctrl, each starts in the class of its tier, or in the one that its annotation names, so that it never fills
  the cache of another.
- A latency-sensitive one may save quota up from the start (cgroup v2; v1's runtimes cannot set it).
- Each can read its tier in TRIMTAB_QOS.

What follows from requests is left to the strategies a second later: runtimes are not told requests.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from trimtab.api.nodeqospolicy import CPUBurstPolicy, NodeQoSPolicySpec
from trimtab.node.arbiter import Spot, Value
from trimtab.node.arbiter.machine import CACHE_SHARES
from trimtab.node.cgroups import UNLIMITED, QosClass, Version
from trimtab.node.cgroups.knobs import CPU_PERIOD, CPU_QUOTA, CPUSET_CPUS
from trimtab.node.cgroups.values import cpu_list
from trimtab.node.hooks.adjustments import NOTHING, Adjustment, Subject
from trimtab.node.picture import TIER_LABEL, NodeView, Tier, cache_tier, tier_of

Held = Callable[[Spot], Value | None]
SAVING = (CPUBurstPolicy.CPU_BURST_ONLY, CPUBurstPolicy.AUTO)


def tier(subject: Subject) -> Tier:
    """By its label, or by where the kubelet puts it."""
    found = next((qos for qos in QosClass if qos.value.lower() in subject.cgroup_parent.lower()), None)
    return tier_of(subject.labels.get(TIER_LABEL), found or QosClass.GUARANTEED)


class Entitlement:
    """What the node's policy and tiers are now; the agent keeps it up to date."""

    def __init__(self, held: Held, version: Version, view: NodeView) -> None:
        self.policy: NodeQoSPolicySpec | None = None
        self.view = view
        self._held = held
        self._version = version
        self._best_effort = view.best_effort_cgroup

    async def __call__(self, subject: Subject) -> Adjustment:
        if not subject.cgroup_parent and (pod := self.view.by_uid.get(subject.uid)):
            subject = replace(subject, cgroup_parent=pod.cgroup)
        if self.policy is None or not subject.cgroup_parent:
            return NOTHING
        mine = tier(subject)
        cache = cache_tier(subject.annotations, mine)
        below = subject.cgroup_parent.strip("/").startswith(f"{self._best_effort}/")
        return Adjustment(
            cpus=self._cpus() if below and not subject.cpus else None,
            quota=self._quota(subject) if below else None,
            cache_class=cache.value if self._has_class(cache) else None,
            unified=self._burst(subject) if mine is Tier.LS else {},
            env={"TRIMTAB_QOS": mine.value},
        )

    def _cpus(self) -> str | None:
        """In v2 a container without CPUs of its own has its parent's anyway."""
        held = self._held(Spot(self._best_effort, CPUSET_CPUS)) if self._version is Version.V1 else None
        return cpu_list(held) if isinstance(held, frozenset) and held else None

    def _quota(self, subject: Subject) -> int | None:
        held, period = (self._held(Spot(self._best_effort, knob)) for knob in (CPU_QUOTA, CPU_PERIOD))
        if (
            subject.quota is None
            or not isinstance(held, int)
            or held == UNLIMITED
            or not isinstance(period, int)
        ):
            return None
        most = held * subject.period // period
        return most if subject.quota > most else None

    def _has_class(self, mine: Tier) -> bool:
        assert self.policy is not None
        return self.policy.resctrl.enable and self._held(Spot(mine.value, CACHE_SHARES)) is not None

    def _burst(self, subject: Subject) -> dict[str, str]:
        assert self.policy is not None
        settings = self.policy.cpu_burst
        if self._version is Version.V1 or subject.quota is None or settings.policy not in SAVING:
            return {}
        return {"cpu.max.burst": str(min(subject.quota * settings.cpu_burst_percent // 100, subject.quota))}

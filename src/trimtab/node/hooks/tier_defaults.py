"""What a container is entitled to by its tier from its first instruction on.

- A best-effort one starts on the CPUs, and with no more than the quota, that its pod and its tier have at the moment:
  cgroup v1 refuses a container that asks for more than its parent has.
- With resctrl, each starts in the class of its tier, or in the one that its annotation names, so that it never fills
  the cache of another.
- Each can read its tier in TRIMTAB_QOS.

What follows from requests is left to the strategies a second later: runtimes are not told requests. So is the burst: what
a runtime was once told it writes again with every change, also when there is no agent any more, and a kernel takes no
quota below a burst: a container could never be resized to less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from trimtab.api.nodeqospolicy import NodeQoSPolicySpec
from trimtab.node.arbiter import KnobRef, Value
from trimtab.node.arbiter.host_knobs import CACHE_SHARES
from trimtab.node.cgroups import UNLIMITED, CgroupVersion, QosClass
from trimtab.node.cgroups.knobs import CPU_PERIOD, CPU_QUOTA, CPUSET_CPUS
from trimtab.node.cgroups.values import format_cpus
from trimtab.node.hooks.adjustments import NO_ADJUSTMENT, Adjustment, RuntimeContainer
from trimtab.node.model import TIER_LABEL, NodeView, Tier, resolve_cache_tier, resolve_tier

ReadKnob = Callable[[KnobRef], Value | None]


def parse_qos_class(subject: RuntimeContainer) -> QosClass:
    """By where the kubelet puts it: a runtime tells the whole path of that, or of a slice only the name."""
    found = (qos for qos in QosClass if qos.value.lower() in subject.cgroup_parent.lower())
    return next(found, QosClass.GUARANTEED)


def resolve_container_tier(subject: RuntimeContainer) -> Tier:
    """By its label, or by its class."""
    return resolve_tier(subject.labels.get(TIER_LABEL), parse_qos_class(subject))


class TierDefaults:
    """What the node's policy and tiers are now; the agent keeps it up to date."""

    def __init__(self, held: ReadKnob, version: CgroupVersion, view: NodeView) -> None:
        self.policy: NodeQoSPolicySpec | None = None
        self.view = view
        self._read_knob = held
        self._version = version

    async def __call__(self, subject: RuntimeContainer) -> Adjustment:
        pod = self.view.pods_by_uid.get(subject.uid)
        if pod is not None and not subject.cgroup_parent:
            subject = replace(subject, cgroup_parent=pod.cgroup)
        if self.policy is None or not subject.cgroup_parent:
            return NO_ADJUSTMENT
        # A runtime tells no priority: that a pod is critical, and so never best-effort, only the view knows.
        mine = Tier.LS if pod is not None and pod.is_critical else resolve_container_tier(subject)
        cache = resolve_cache_tier(subject.annotations, mine)
        limited = [pod.cgroup] if pod is not None and mine is Tier.BE else []
        if parse_qos_class(subject) is QosClass.BEST_EFFORT:
            limited.append(self.view.best_effort_cgroup)
        return Adjustment(
            cpus=self._limit_cpus(limited) if not subject.cpus else None,
            quota=self._limit_quota(subject, limited),
            cache_class=cache.value if self._has_cache_class(cache) else None,
            env={"TRIMTAB_QOS": mine.value},
        )

    def _limit_cpus(self, limited: list[str]) -> str | None:
        """Return the CPUs of the innermost cgroup; in v2 a container without CPUs of its own has its parent's anyway."""
        if self._version is not CgroupVersion.V1:
            return None
        each = (self._read_knob(KnobRef(path, CPUSET_CPUS)) for path in limited)
        return next((format_cpus(held) for held in each if isinstance(held, frozenset) and held), None)

    def _limit_quota(self, subject: RuntimeContainer, limited: list[str]) -> int | None:
        """Return the least quota that lies above it, where it asks for more."""
        if subject.quota is None:
            return None
        most = subject.quota
        for path in limited:
            held, period = (self._read_knob(KnobRef(path, knob)) for knob in (CPU_QUOTA, CPU_PERIOD))
            if isinstance(held, int) and held != UNLIMITED and isinstance(period, int):
                most = min(most, held * subject.period // period)
        return most if most < subject.quota else None

    def _has_cache_class(self, mine: Tier) -> bool:
        assert self.policy is not None
        return self.policy.resctrl.enable and self._read_knob(KnobRef(mine.value, CACHE_SHARES)) is not None

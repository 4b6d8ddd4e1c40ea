"""The adjustments of a container by its tier, from its start on.

- A best-effort container starts with the CPUs, and at most the quota, of its pod and tier: cgroup v1
  rejects a container with more than its parent.
- With resctrl, each starts in the group of its tier, or in that of its annotation, so that it never
  fills the cache of another.
- Each can read its tier in TRIMTAB_QOS.

Settings that depend on requests, which runtimes do not know, are left to the strategies a second later. So is
the burst: a runtime rewrites it with every update, even without an agent, and the kernel rejects a quota
below a burst, so a container could not be resized down.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from trimtab.api.nodeqospolicy import NodeQoSPolicySpec, TierNamespacesSpec
from trimtab.node.arbiter import KnobRef, Value
from trimtab.node.arbiter.host_knobs import CACHE_SHARES
from trimtab.node.cgroups import UNLIMITED, CgroupVersion, QosClass
from trimtab.node.cgroups.knobs import CPU_PERIOD, CPU_QUOTA, CPUSET_CPUS
from trimtab.node.cgroups.values import format_cpus
from trimtab.node.hooks.adjustments import NO_ADJUSTMENT, Adjustment, RuntimeContainer
from trimtab.node.model import TIER_LABEL, NodeView, Tier, resolve_cache_tier, resolve_tier

ReadKnob = Callable[[KnobRef], Value | None]


def parse_qos_class(container: RuntimeContainer) -> QosClass:
    """Return the QoS class by the cgroup parent, which is a path or only the name of a slice."""
    found = (qos for qos in QosClass if qos.value.lower() in container.cgroup_parent.lower())
    return next(found, QosClass.GUARANTEED)


def resolve_container_tier(container: RuntimeContainer, allowed: TierNamespacesSpec) -> Tier:
    """Return the tier by the label, if the namespace may choose it, or by the QoS class."""
    label = container.labels.get(TIER_LABEL)
    return resolve_tier(label, parse_qos_class(container), container.namespace, allowed)


class TierDefaults:
    """Decides adjustments by the current policy and view, which the agent keeps up to date."""

    def __init__(self, held: ReadKnob, version: CgroupVersion, view: NodeView) -> None:
        self.policy: NodeQoSPolicySpec | None = None
        self.view = view
        self._read_knob = held
        self._version = version

    async def __call__(self, container: RuntimeContainer) -> Adjustment:
        pod = self.view.pods_by_uid.get(container.uid)
        if pod is not None and not container.cgroup_parent:
            container = replace(container, cgroup_parent=pod.cgroup)
        if self.policy is None or not container.cgroup_parent:
            return NO_ADJUSTMENT
        # Runtimes do not know priorities: only the view knows critical pods, which are never best-effort.
        allowed = self.policy.tier_namespaces
        tier = Tier.LS if pod is not None and pod.is_critical else resolve_container_tier(container, allowed)
        cache = resolve_cache_tier(container.annotations, tier, container.namespace, allowed)
        limited = [pod.cgroup] if pod is not None and tier is Tier.BE else []
        if parse_qos_class(container) is QosClass.BEST_EFFORT:
            limited.append(self.view.best_effort_cgroup)
        return Adjustment(
            cpus=self._limit_cpus(limited) if not container.cpus else None,
            quota=self._limit_quota(container, limited),
            cache_class=cache.value if self._has_cache_class(cache) else None,
            env={"TRIMTAB_QOS": tier.value},
        )

    def _limit_cpus(self, limited: list[str]) -> str | None:
        """Return the CPUs of the innermost cgroup; in v2 a container without CPUs of its own has its parent's anyway."""
        if self._version is not CgroupVersion.V1:
            return None
        each = (self._read_knob(KnobRef(path, CPUSET_CPUS)) for path in limited)
        return next((format_cpus(held) for held in each if isinstance(held, frozenset) and held), None)

    def _limit_quota(self, container: RuntimeContainer, limited: list[str]) -> int | None:
        """Return the smallest quota of its parents, if it requests more."""
        if container.quota is None:
            return None
        most = container.quota
        for path in limited:
            held, period = (self._read_knob(KnobRef(path, knob)) for knob in (CPU_QUOTA, CPU_PERIOD))
            if isinstance(held, int) and held != UNLIMITED and isinstance(period, int):
                most = min(most, held * container.period // period)
        return most if most < container.quota else None

    def _has_cache_class(self, tier: Tier) -> bool:
        assert self.policy is not None
        return self.policy.resctrl.enable and self._read_knob(KnobRef(tier.value, CACHE_SHARES)) is not None

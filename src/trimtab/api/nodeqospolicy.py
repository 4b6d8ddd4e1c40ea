"""NodeQoSPolicy: settings with which the node agent keeps latency-sensitive pods fast while best-effort pods use the
rest.

Each strategy has its own block and is off by default; the defaults are those of Koordinator's agent. Pods belong to
three tiers: reserved (`lsr`), latency-sensitive (`ls`) and best-effort (`be`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field

from trimtab.api.fields import Bool, Count, Int, NamespaceName, Percent, Text, UniqueItems
from trimtab.api.kind import AGE_COLUMN, READY_COLUMN, Kind, KindNames, PrinterColumn
from trimtab.api.meta import Condition, LabelSelector
from trimtab.api.model import ApiModel, StatusModel, ValidationRule

CACHE_CLASS: Final = "trimtab.io/cache-class"
"""The class of last-level cache and memory bandwidth that a pod may use."""
POWER_PROFILE: Final = "trimtab.io/power-profile"
"""The power profile of its cores; the pod requests it from the device plugin as an extended resource, which this
repeats."""
CACHE_CLASSES: Final[Mapping[str, str]] = {"guaranteed": "LSR", "burstable": "LS", "besteffort": "BE"}
"""The tier in the node's policy that each cache class stands for."""


Positive = Annotated[Int, Field(ge=1)]


class CPUSuppressPolicy(StrEnum):
    """The setting that limits the CPU of best-effort pods."""

    CPUSET = "cpuset"
    CFS_QUOTA = "cfsQuota"


class CPUSuppressSpec(ApiModel):
    """Leave best-effort pods only the CPU that the others do not need."""

    rules = (
        ValidationRule(
            field="minPercent",
            message="must not be more than thresholdPercent, or best-effort pods fill the node beyond it",
            detail="{min_percent} > {threshold_percent}",
            predicate=lambda self: self.min_percent <= self.threshold_percent,
            cel="self.minPercent <= self.thresholdPercent",
        ),
    )

    enable: Bool = False
    """Turns the strategy on."""

    threshold_percent: Percent = 65
    """The highest utilization of the CPUs that pods share; best-effort pods get the unused part below it. CPUs that
    one container has exclusively, or that the kernel isolates, do not count."""

    min_percent: Percent = 0
    """The share of these CPUs that best-effort pods always keep."""

    policy: CPUSuppressPolicy = CPUSuppressPolicy.CPUSET
    """The setting to use: cpuset (fewer CPUs) or cfsQuota (less time on them)."""


class CPUBurstPolicy(StrEnum):
    """The kinds of burst that are allowed."""

    NONE = "none"
    CPU_BURST_ONLY = "cpuBurstOnly"
    CFS_QUOTA_BURST_ONLY = "cfsQuotaBurstOnly"
    AUTO = "auto"


class CPUBurstSpec(ApiModel):
    """Let pods exceed their CPU limit for a moment instead of throttling them."""

    policy: CPUBurstPolicy = CPUBurstPolicy.NONE
    """The kind of burst: none is off; cpuBurstOnly saves unused quota up for peaks; cfsQuotaBurstOnly raises the quota while a pod is
    throttled; auto does both."""

    cpu_burst_percent: Annotated[Int, Field(ge=0, le=10000)] = 1000
    """The unused quota that may be saved up, in percent of the limit; the effective burst never exceeds the limit."""

    cfs_quota_burst_percent: Annotated[Int, Field(ge=100, le=10000)] = 300
    """The highest quota while it is raised, in percent of the limit."""

    cfs_quota_burst_period_seconds: Annotated[Int, Field(ge=-1)] = -1
    """The longest time for which a quota is raised at once; -1 means no end."""

    share_pool_threshold_percent: Percent = 50
    """The utilization of the node's shared CPUs above which quotas are lowered again."""


class CPUEvictPolicy(StrEnum):
    """The reference for the satisfaction of best-effort pods."""

    EVICT_BY_REAL_LIMIT = "evictByRealLimit"
    EVICT_BY_ALLOCATABLE = "evictByAllocatable"


class CPUEvictSpec(ApiModel):
    """Evict best-effort pods that are starved of CPU, so that they can run elsewhere."""

    rules = (
        ValidationRule(
            field="satisfactionLowerPercent",
            message="must be less than satisfactionUpperPercent",
            detail="{satisfaction_lower_percent} >= {satisfaction_upper_percent}",
            predicate=lambda self: self.satisfaction_lower_percent < self.satisfaction_upper_percent,
            cel="self.satisfactionLowerPercent < self.satisfactionUpperPercent",
        ),
    )

    enable: Bool = False
    """Turns the strategy on."""

    satisfaction_lower_percent: Percent = 60
    """Evict if best-effort pods get at most this share of their requests, now and on average over coolDownSeconds (20
    to 60 s of it)."""

    satisfaction_upper_percent: Percent = 80
    """Stop evicting when they get this share."""

    usage_threshold_percent: Percent = 90
    """Evict only while they use at least this share of what they get, now and on average over the same time."""

    policy: CPUEvictPolicy = CPUEvictPolicy.EVICT_BY_REAL_LIMIT
    """The reference for satisfaction: evictByRealLimit (their quota and CPUs) or evictByAllocatable (what the other
    pods' requests leave; only pods that use at least a tenth of their own request count then)."""

    cool_down_seconds: Positive = 20
    """The seconds to wait between two evictions."""


class MemoryEvictSpec(ApiModel):
    """Evict best-effort pods before the node runs out of memory, if that brings it below the threshold."""

    rules = (
        ValidationRule(
            field="lowerPercent",
            message="must be less than thresholdPercent",
            detail="{lower_percent} >= {threshold_percent}",
            predicate=lambda self: self.lower_percent is None or self.lower_percent < self.threshold_percent,
            cel="!has(self.lowerPercent) || self.lowerPercent < self.thresholdPercent",
        ),
    )

    enable: Bool = False
    """Turns the strategy on."""

    threshold_percent: Annotated[Percent, Field(ge=2)] = 70
    """Evict when this share of the node's memory is used."""

    lower_percent: Percent | None = None
    """Evict until at most this share is used; two percent less than thresholdPercent when left out."""

    cool_down_seconds: Positive = 4
    """The seconds to wait between two evictions."""

    @property
    def release_to_percent(self) -> int:
        return self.threshold_percent - 2 if self.lower_percent is None else self.lower_percent


class MemoryProtection(ApiModel):
    """The memory protection and throttling of one tier."""

    min_limit_percent: Percent = 0
    """The share of the request that is never reclaimed (memory.min)."""

    low_limit_percent: Percent = 0
    """The share of the request that is reclaimed last (memory.low)."""

    throttling_percent: Percent = 0
    """The position between request and limit at which reclaim starts (memory.high); 0 turns it off."""


class MemoryQoSSpec(ApiModel):
    """Protect the memory of the tiers from each other."""

    enable: Bool = False
    """Turns the strategy on."""

    lsr: MemoryProtection = MemoryProtection()
    """The settings for reserved pods."""

    ls: MemoryProtection = MemoryProtection()
    """The settings for latency-sensitive pods."""

    be: MemoryProtection = MemoryProtection()
    """The settings for best-effort pods."""


class CacheShare(ApiModel):
    """The share of the last-level cache and of the memory bandwidth that a tier may use."""

    rules = (
        ValidationRule(
            field="catRangeStartPercent",
            message="must be less than catRangeEndPercent",
            detail="{cat_range_start_percent} >= {cat_range_end_percent}",
            predicate=lambda self: self.cat_range_start_percent < self.cat_range_end_percent,
            cel="self.catRangeStartPercent < self.catRangeEndPercent",
        ),
    )

    cat_range_start_percent: Percent = 0
    """The start of its range of the cache."""

    cat_range_end_percent: Percent = 100
    """The end of its range of the cache."""

    mba_percent: Annotated[Percent, Field(ge=1)] = 100
    """The share of the memory bandwidth that it may use."""


class BestEffortCacheShare(CacheShare):
    """The share of the best-effort tier; by default it has a smaller range of the cache."""

    cat_range_end_percent: Percent = 30
    """The end of its range of the cache."""


class ResctrlSpec(ApiModel):
    """Divide the last-level cache and the memory bandwidth between the tiers."""

    enable: Bool = False
    """Turns the strategy on; it needs a processor with resctrl."""

    lsr: CacheShare = CacheShare()
    """The share of reserved pods."""

    ls: CacheShare = CacheShare()
    """The share of latency-sensitive pods."""

    be: BestEffortCacheShare = BestEffortCacheShare()
    """The share of best-effort pods."""


class BlockType(StrEnum):
    """The meaning of the name of a block device."""

    DEVICE = "device"
    VOLUME_GROUP = "volumegroup"
    POD_VOLUME = "podvolume"


class BlockDeviceSpec(ApiModel):
    """The I/O limits of one tier on one block device; 0 means no limit."""

    name: Text
    """The name of the device, such as /dev/sdb, of the volume group, or of the pod's volume."""

    type: BlockType = BlockType.DEVICE
    """The meaning of the name: device, volumegroup or podvolume."""

    read_iops: Count = Field(default=0, alias="readIOPS")
    """The limit of reads per second."""

    write_iops: Count = Field(default=0, alias="writeIOPS")
    """The limit of writes per second."""

    read_bps: Count = Field(default=0, alias="readBPS")
    """The limit of bytes read per second."""

    write_bps: Count = Field(default=0, alias="writeBPS")
    """The limit of bytes written per second."""

    io_weight_percent: Annotated[Percent, Field(ge=1)] = 100
    """The weight relative to the other tiers, by blk-iocost."""


BlockDevices = Annotated[tuple[BlockDeviceSpec, ...], Field(max_length=32), UniqueItems(("name",))]


class BlkIOSpec(ApiModel):
    """Limit the disk I/O of the tiers, so that one cannot starve another."""

    enable: Bool = False
    """Turns the strategy on."""

    lsr: BlockDevices = ()
    """The limits of reserved pods, one entry per device."""

    ls: BlockDevices = ()
    """The limits of latency-sensitive pods, one entry per device."""

    be: BlockDevices = ()
    """The limits of best-effort pods, one entry per device."""


class SystemSpec(ApiModel):
    """Make the kernel reclaim memory early enough."""

    enable: Bool = False
    """Turns the strategy on."""

    min_free_kbytes_factor: Annotated[Int, Field(ge=1, le=1000)] = 100
    """The value of vm.min_free_kbytes, in ten-thousandths of the node's memory."""

    watermark_scale_factor: Annotated[Int, Field(ge=1, le=400)] = 150
    """The value of vm.watermark_scale_factor, in ten-thousandths of the node's memory."""


Namespaces = Annotated[tuple[NamespaceName, ...], Field(max_length=256), UniqueItems()]


class TierNamespacesSpec(ApiModel):
    """Restrict the tiers that pods may choose by the label `trimtab.io/qos` and the annotation `trimtab.io/cache-class`.

    Whoever can create pods can set both, and a better tier takes CPU and cache from other namespaces.
    """

    lsr: Namespaces | None = None
    """The namespaces whose pods may choose the tier LSR or the cache class `guaranteed`; all when left out. Pods elsewhere
    are treated by their QoS class."""

    ls: Namespaces | None = None
    """The namespaces whose BestEffort pods may choose the tier LS, or a cache class above their tier; all when left out."""

    def allows(self, tier: str, namespace: str) -> bool:
        """Return True if pods of a namespace may choose a tier, LSR or LS, above that of their QoS class."""
        allowed = self.lsr if tier == CACHE_CLASSES["guaranteed"] else self.ls
        return allowed is None or namespace in allowed


class NodeQoSPolicySpec(ApiModel):
    """The desired QoS settings."""

    node_selector: LabelSelector | None = None
    """The nodes that the policy selects; every node when left out."""

    weight: Annotated[Int, Field(ge=1, le=1000)] = 100
    """The weight that decides if several policies select a node: the heaviest applies, among equals the first by
    name."""

    tier_namespaces: TierNamespacesSpec = TierNamespacesSpec()
    """Restrict which namespaces may choose a tier; a label or annotation elsewhere has no effect."""

    cpu_suppress: CPUSuppressSpec = CPUSuppressSpec()
    """Leave best-effort pods only the CPU that the others do not need."""

    cpu_burst: CPUBurstSpec = CPUBurstSpec()
    """Let pods exceed their CPU limit for a moment instead of throttling them."""

    cpu_evict: CPUEvictSpec = CPUEvictSpec()
    """Evict best-effort pods that are starved of CPU."""

    memory_evict: MemoryEvictSpec = MemoryEvictSpec()
    """Evict best-effort pods before the node runs out of memory."""

    memory_qos: MemoryQoSSpec = Field(default=MemoryQoSSpec(), alias="memoryQoS")
    """Protect the memory of the tiers from each other."""

    resctrl: ResctrlSpec = ResctrlSpec()
    """Divide the last-level cache and the memory bandwidth between the tiers."""

    blkio: BlkIOSpec = BlkIOSpec()
    """Limit the disk I/O of the tiers, so that one cannot starve another."""

    system: SystemSpec = SystemSpec()
    """Make the kernel reclaim memory early enough."""


class NodeQoSPolicyStatus(StatusModel):
    """The observed state."""

    observed_generation: Count | None = None
    """The generation of the spec that this status is about."""

    conditions: Annotated[tuple[Condition, ...], Field(max_length=16), UniqueItems(("type",))] = ()
    """Ready and others, each with its reason."""

    nodes: Count | None = None
    """The number of nodes where the policy applies: those that it selects, without those where one with a higher weight
    applies."""


class NodeQoSPolicy(Kind):
    """Settings with which the node agent keeps latency-sensitive pods fast while best-effort pods use the rest."""

    names = KindNames(
        plural="nodeqospolicies",
        short=("nqp",),
        namespaced=False,
        columns=(
            PrinterColumn("Weight", ".spec.weight", "integer"),
            PrinterColumn("Nodes", ".status.nodes", "integer"),
            PrinterColumn("Suppress", ".spec.cpuSuppress.enable", "boolean", priority=1),
            PrinterColumn("Burst", ".spec.cpuBurst.policy", priority=1),
            READY_COLUMN,
            AGE_COLUMN,
        ),
    )

    kind: Literal["NodeQoSPolicy"] = "NodeQoSPolicy"
    spec: NodeQoSPolicySpec = NodeQoSPolicySpec()
    status: NodeQoSPolicyStatus = NodeQoSPolicyStatus()

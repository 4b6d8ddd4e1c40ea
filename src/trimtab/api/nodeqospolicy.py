"""NodeQoSPolicy: how the agent on a node keeps latency-sensitive pods fast while best-effort pods fill the rest.

One block a strategy, each off by default, with the defaults that Koordinator's agent has proven. Pods come in
three tiers: reserved (`lsr`), latency-sensitive (`ls`) and best-effort (`be`).
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from trimtab.api.fields import Bool, Count, Int, Percent, Text, UniqueItems
from trimtab.api.kind import AGE_COLUMN, READY_COLUMN, Kind, KindNames, PrinterColumn
from trimtab.api.meta import Condition, LabelSelector
from trimtab.api.model import ApiModel, StatusModel, ValidationRule

Positive = Annotated[Int, Field(ge=1)]


class CPUSuppressPolicy(StrEnum):
    """By which knob best-effort pods are squeezed."""

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
    """Whether the strategy runs."""

    threshold_percent: Percent = 65
    """How full the CPUs may get that pods share; best-effort pods get what is below and unused. CPUs that one container has
    for itself, or that the kernel isolates, do not count."""

    min_percent: Percent = 0
    """What best-effort pods keep in any case, of the CPUs that pods share."""

    policy: CPUSuppressPolicy = CPUSuppressPolicy.CPUSET
    """By which knob: cpuset (fewer CPUs) or cfsQuota (less time on them)."""


class CPUBurstPolicy(StrEnum):
    """Which kinds of burst are allowed."""

    NONE = "none"
    CPU_BURST_ONLY = "cpuBurstOnly"
    CFS_QUOTA_BURST_ONLY = "cfsQuotaBurstOnly"
    AUTO = "auto"


class CPUBurstSpec(ApiModel):
    """Let pods exceed their CPU limit for a moment instead of throttling them."""

    policy: CPUBurstPolicy = CPUBurstPolicy.NONE
    """none is off; cpuBurstOnly saves unused quota up for peaks; cfsQuotaBurstOnly raises the quota while a pod is
    throttled; auto does both."""

    cpu_burst_percent: Annotated[Int, Field(ge=0, le=10000)] = 1000
    """How much unused quota may be saved up, of the limit; no more than the limit is."""

    cfs_quota_burst_percent: Annotated[Int, Field(ge=100, le=10000)] = 300
    """How far the quota may be raised, of the limit."""

    cfs_quota_burst_period_seconds: Annotated[Int, Field(ge=-1)] = -1
    """How long a raised quota may last at a time; -1 is without end."""

    share_pool_threshold_percent: Percent = 50
    """How busy the node's shared CPUs may be before quotas are lowered again."""


class CPUEvictPolicy(StrEnum):
    """What the satisfaction of best-effort pods is measured against."""

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
    """Whether the strategy runs."""

    satisfaction_lower_percent: Percent = 60
    """Evict when best-effort pods get no more than this of what they request, now and on average over coolDownSeconds (20 to
    60 s of it)."""

    satisfaction_upper_percent: Percent = 80
    """Stop evicting when they get this much."""

    usage_threshold_percent: Percent = 90
    """Evict only while they use at least this much of what they get, now and on average over the same time."""

    policy: CPUEvictPolicy = CPUEvictPolicy.EVICT_BY_REAL_LIMIT
    """What satisfaction is measured against: evictByRealLimit (their quota and CPUs) or evictByAllocatable (what the other
    pods' requests leave; only pods that use at least a tenth of their own request count then)."""

    cool_down_seconds: Positive = 20
    """How long to wait between two evictions."""


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
    """Whether the strategy runs."""

    threshold_percent: Annotated[Percent, Field(ge=2)] = 70
    """Evict when this much of the node's memory is used."""

    lower_percent: Percent | None = None
    """Evict until no more than this is used; two less than thresholdPercent when left out."""

    cool_down_seconds: Positive = 4
    """How long to wait between two evictions."""

    @property
    def release_to_percent(self) -> int:
        return self.threshold_percent - 2 if self.lower_percent is None else self.lower_percent


class MemoryProtection(ApiModel):
    """How the memory of one tier is protected and slowed down."""

    min_limit_percent: Percent = 0
    """How much of its request is never reclaimed (memory.min)."""

    low_limit_percent: Percent = 0
    """How much of its request is reclaimed last (memory.low)."""

    throttling_percent: Percent = 0
    """Where between request and limit reclaim sets in (memory.high); 0 is never."""


class MemoryQoSSpec(ApiModel):
    """Protect the memory of the tiers from each other."""

    enable: Bool = False
    """Whether the strategy runs."""

    lsr: MemoryProtection = MemoryProtection()
    """For reserved pods."""

    ls: MemoryProtection = MemoryProtection()
    """For latency-sensitive pods."""

    be: MemoryProtection = MemoryProtection()
    """For best-effort pods."""


class CacheShare(ApiModel):
    """Which part of the last-level cache and of the memory bandwidth a tier may use."""

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
    """Where its part of the cache begins."""

    cat_range_end_percent: Percent = 100
    """Where its part of the cache ends."""

    mba_percent: Annotated[Percent, Field(ge=1)] = 100
    """How much of the memory bandwidth it may use."""


class BestEffortCacheShare(CacheShare):
    """As for the other tiers, with a smaller part of the cache."""

    cat_range_end_percent: Percent = 30
    """Where its part of the cache ends."""


class ResctrlSpec(ApiModel):
    """Share the last-level cache and the memory bandwidth out between the tiers."""

    enable: Bool = False
    """Whether the strategy runs; it needs a processor with resctrl."""

    lsr: CacheShare = CacheShare()
    """For reserved pods."""

    ls: CacheShare = CacheShare()
    """For latency-sensitive pods."""

    be: BestEffortCacheShare = BestEffortCacheShare()
    """For best-effort pods."""


class BlockType(StrEnum):
    """What the name of a block device means."""

    DEVICE = "device"
    VOLUME_GROUP = "volumegroup"
    POD_VOLUME = "podvolume"


class BlockDeviceSpec(ApiModel):
    """How much one tier may do on one block device; 0 is no throttle."""

    name: Text
    """The device, such as /dev/sdb, or the volume group, or the pod's volume."""

    type: BlockType = BlockType.DEVICE
    """What the name means: device, volumegroup or podvolume."""

    read_iops: Count = Field(default=0, alias="readIOPS")
    """Reads a second."""

    write_iops: Count = Field(default=0, alias="writeIOPS")
    """Writes a second."""

    read_bps: Count = Field(default=0, alias="readBPS")
    """Bytes read a second."""

    write_bps: Count = Field(default=0, alias="writeBPS")
    """Bytes written a second."""

    io_weight_percent: Annotated[Percent, Field(ge=1)] = 100
    """Its weight against the other tiers, by blk-iocost."""


BlockDevices = Annotated[tuple[BlockDeviceSpec, ...], Field(max_length=32), UniqueItems(("name",))]


class BlkIOSpec(ApiModel):
    """Keep the tiers from taking each other's disks."""

    enable: Bool = False
    """Whether the strategy runs."""

    lsr: BlockDevices = ()
    """For reserved pods, one entry a device."""

    ls: BlockDevices = ()
    """For latency-sensitive pods, one entry a device."""

    be: BlockDevices = ()
    """For best-effort pods, one entry a device."""


class SystemSpec(ApiModel):
    """Make the kernel reclaim memory early enough."""

    enable: Bool = False
    """Whether the strategy runs."""

    min_free_kbytes_factor: Annotated[Int, Field(ge=1, le=1000)] = 100
    """vm.min_free_kbytes, in ten-thousandths of the node's memory."""

    watermark_scale_factor: Annotated[Int, Field(ge=1, le=400)] = 150
    """vm.watermark_scale_factor, in ten-thousandths of the node's memory."""


class NodeQoSPolicySpec(ApiModel):
    """What is wanted."""

    node_selector: LabelSelector | None = None
    """Which nodes; every node when left out."""

    weight: Annotated[Int, Field(ge=1, le=1000)] = 100
    """Which policy wins where several select a node: the heaviest, and of equals the first by name."""

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
    """Share the last-level cache and the memory bandwidth out between the tiers."""

    blkio: BlkIOSpec = BlkIOSpec()
    """Keep the tiers from taking each other's disks."""

    system: SystemSpec = SystemSpec()
    """Make the kernel reclaim memory early enough."""


class NodeQoSPolicyStatus(StatusModel):
    """What was observed."""

    observed_generation: Count | None = None
    """The generation of the spec that this status is about."""

    conditions: Annotated[tuple[Condition, ...], Field(max_length=16), UniqueItems(("type",))] = ()
    """Ready and others, each with its reason."""

    nodes: Count | None = None
    """On how many nodes it holds: those that it selects, without those where a heavier policy does."""


class NodeQoSPolicy(Kind):
    """How the agent on a node keeps latency-sensitive pods fast while best-effort pods fill the rest."""

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

"""OptimizationPolicy: which workloads to right-size, from what evidence, within which bounds, and how boldly.

One policy covers many workloads, by namespace, label and type; where two overlap the heavier one wins. All
defaults are the careful ones: an empty policy recommends and touches nothing.
"""

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field

from trimtab.api.duration import Duration
from trimtab.api.fields import (
    MOST_CONTAINERS,
    Bool,
    Count,
    Int,
    KindName,
    NamespaceName,
    Number,
    PluginName,
    Shaped,
    Text,
    Time,
    Unique,
    Within,
)
from trimtab.api.kind import AGE, READY, Column, Kind, Names
from trimtab.api.meta import Condition, Labels, LabelSelector
from trimtab.api.model import Model, Observed, Rule
from trimtab.api.quantity import Quantity

MOST_LISTED = 500
"""Workloads in a status."""


class Mode(StrEnum):
    """How far a policy goes."""

    AUTO = "Auto"
    RECOMMEND = "Recommend"
    DISABLED = "Disabled"


class Namespaces(Model):
    """Namespaces by name; a namespace that is denied stays out even when it is allowed as well."""

    allow: Annotated[tuple[NamespaceName, ...], Field(max_length=256), Unique()] = ()
    """Only these namespaces; every namespace when left out."""

    deny: Annotated[tuple[NamespaceName, ...], Field(max_length=256), Unique()] = ()
    """Never these namespaces."""

    def admits(self, namespace: str) -> bool:
        return namespace not in self.deny and (not self.allow or namespace in self.allow)


class WorkloadTypes(Model):
    """Workloads by kind."""

    rules = (
        Rule(
            field="exclude",
            message="names a kind that include names too; keep it in one of the two",
            holds=lambda self: not set(self.include) & set(self.exclude),
            cel="!has(self.include) || !has(self.exclude) || !self.exclude.exists(kind, kind in self.include)",
        ),
    )

    include: Annotated[tuple[KindName, ...], Field(max_length=32), Unique()] = ()
    """Only these kinds, such as Deployment, StatefulSet, DaemonSet, ReplicaSet, Job, CronJob, or any kind with a
    scale subresource (Rollout.argoproj.io); every kind when left out."""

    exclude: Annotated[tuple[KindName, ...], Field(max_length=32), Unique()] = ()
    """Never these kinds."""

    def admits(self, kind: str) -> bool:
        return kind not in self.exclude and (not self.include or kind in self.include)


class Selector(Model):
    """Which workloads a policy is about; all parts must agree, and an empty selector means every workload."""

    namespace_selector: LabelSelector | None = None
    """Only workloads in namespaces with these labels."""

    workload_selector: LabelSelector | None = None
    """Only workloads with these labels."""

    namespaces: Namespaces = Namespaces()
    """Namespaces to allow or deny by name; deny wins."""

    workload_types: WorkloadTypes = WorkloadTypes()
    """Kinds of workloads to include or exclude."""

    def selects(self, *, kind: str, namespace: str, labels: Labels, namespace_labels: Labels) -> bool:
        return (
            self.namespaces.admits(namespace)
            and self.workload_types.admits(kind)
            and (self.namespace_selector is None or self.namespace_selector.matches(namespace_labels))
            and (self.workload_selector is None or self.workload_selector.matches(labels))
        )


class Percentile(StrEnum):
    """Which part of the observed usage a request must cover."""

    P50 = "P50"
    P90 = "P90"
    P95 = "P95"
    P99 = "P99"


class MetricsConfig(Model):
    """Where usage is read, and how much of it a request is to cover."""

    provider: PluginName | None = None
    """Where usage comes from: prometheus, metrics-server, or the name of a plugin. The operator's own default
    when left out."""

    rolling_window: Annotated[Duration, Within("1m", "8760h")] = Duration.parse("24h")
    """How far back usage is looked at, such as 24h; days are written as hours."""

    percentile: Percentile = Percentile.P90
    """The percentile of usage that a request covers before the safety factor: P50, P90, P95 or P99."""

    safety_factor: Annotated[Number, Field(ge=1, le=10)] = 1.2
    """What the percentile is multiplied by; 1.2 leaves a fifth to spare."""

    minimum_history: Annotated[Duration, Within("1m", "8760h")] = Duration.parse("24h")
    """How long a container must have been observed before it is made smaller, such as 24h, so that a quiet night
    is not taken for the whole; one that needs more gets it sooner."""


class Bounds(Model):
    """The least and the most that is ever recommended for a container."""

    rules = (
        Rule(
            field="max",
            message="must be more than 0",
            holds=lambda self: self.max is None or self.max.amount > 0,
            cel="!has(self.max) || quantity(string(self.max)).isGreaterThan(quantity('0'))",
        ),
        Rule(
            field="min",
            message="must not exceed max",
            detail="{min} > {max}",
            holds=lambda self: self.max is None or self.min <= self.max,
            cel="!has(self.max) || quantity(string(self.min)).compareTo(quantity(string(self.max))) <= 0",
        ),
    )

    min: Quantity
    """Never recommend less than this."""

    max: Quantity | None = None
    """Never recommend more than this; no upper bound when left out."""


class CPUBounds(Bounds):
    """The least and the most CPU that is ever recommended for a container."""

    min: Quantity = Quantity.parse("10m")
    """Never recommend less than this."""


class MemoryBounds(Bounds):
    """The least and the most memory that is ever recommended for a container."""

    min: Quantity = Quantity.parse("32Mi")
    """Never recommend less than this."""


class ResourceBounds(Model):
    """Bounds that hold for every container, whatever was observed."""

    cpu: CPUBounds = CPUBounds()
    """Bounds for CPU, such as min 100m and max 4."""

    memory: MemoryBounds = MemoryBounds()
    """Bounds for memory, such as min 128Mi and max 8Gi."""


class BesideHpa(StrEnum):
    """What becomes of a resource whose utilisation a HorizontalPodAutoscaler holds to a target."""

    RESCALE = "Rescale"
    HOLD = "Hold"


class TemplateUpdate(StrEnum):
    """When the pod template of a workload follows its size."""

    NEVER = "Never"
    AS_NEEDED = "AsNeeded"
    ALWAYS = "Always"


class Canary(Model):
    """How a change is tried before all pods get it, and watched when they have it."""

    percent: Annotated[Int, Field(ge=1, le=100)] = 10
    """The share of the pods that get a change first, at least one; 100 gives it to all at once."""

    observation: Annotated[Duration, Within("1s", "24h")] = Duration.parse("10m")
    """How long restarts, OOM kills, throttling and readiness are compared with before, first for the canaries
    and then for all pods."""

    patience: Annotated[Duration, Within("1s", "24h")] = Duration.parse("30m")
    """How much longer to wait for evidence that is missing; without any by then, the change is taken back."""


class Weekday(StrEnum):
    """A day of the week."""

    MON = "Mon"
    TUE = "Tue"
    WED = "Wed"
    THU = "Thu"
    FRI = "Fri"
    SAT = "Sat"
    SUN = "Sun"


_ClockTime = Annotated[str, Shaped("^([01][0-9]|2[0-3]):[0-5][0-9]$", "a time of day, such as 22:30", 5)]


class MaintenanceWindow(Model):
    """A time of the week in which changes may be made."""

    days: Annotated[tuple[Weekday, ...], Field(max_length=7), Unique()] = ()
    """The days on which it starts: Mon, Tue, Wed, Thu, Fri, Sat, Sun; every day when left out."""

    start: _ClockTime = "00:00"
    """When it starts, such as 22:00."""

    end: _ClockTime = "00:00"
    """When it ends, such as 05:30; at or before start, it ends on the next day."""

    time_zone: Annotated[
        str, Shaped("^[A-Za-z][-A-Za-z0-9_+/]*$", "a time zone, such as UTC or Europe/Berlin", 64)
    ] = "UTC"
    """The time zone of start and end, such as Europe/Berlin. In one that is not known, the window never opens."""


class StartupBoost(Model):
    """More CPU for a pod until it is ready."""

    factor: Annotated[Number, Field(ge=1, le=10)] = 2.0
    """What CPU request and limit are multiplied by while a pod starts."""

    duration: Annotated[Duration, Within("1s", "1h")] = Duration.parse("5m")
    """The longest that a pod keeps it, ready or not."""


class UpdateStrategy(Model):
    """How a recommendation may be put into effect in mode Auto."""

    rules = (
        Rule(
            field="template",
            message="may be Always only where allowRecreate is true, since a changed template restarts pods",
            holds=lambda self: self.template is not TemplateUpdate.ALWAYS or self.allow_recreate,
            cel="self.template != 'Always' || self.allowRecreate",
        ),
    )

    allow_in_place_resize: Bool = True
    """Resize running pods without a restart where the cluster can."""

    allow_recreate: Bool = False
    """Where a running pod cannot be resized, or its node has no room for it, replace it; its PodDisruptionBudget is
    respected. When false such a change is skipped or taken back, and the status says so."""

    update_requests_only: Bool = True
    """Change requests and leave limits as they are. When false, limits follow limitPolicy."""

    keep_qos_class: Bool = True
    """Keep the QoS class of every pod: requests of a Guaranteed pod stay equal to its limits, and a BestEffort pod
    gets none. When false the class may change, for which pods have to be replaced."""

    beside_hpa: BesideHpa = BesideHpa.RESCALE
    """What becomes of a resource whose utilisation a HorizontalPodAutoscaler holds to a target. Rescale makes a
    request smaller only as far as the utilisation stays at or below the target; Hold leaves it alone."""

    template: TemplateUpdate = TemplateUpdate.AS_NEEDED
    """Whether the pod template follows. Never leaves it alone; AsNeeded changes it where that restarts nothing, as
    with a CronJob, or where allowRecreate lets pods be replaced and there is no other way; Always changes it, and
    so starts a rollout."""

    take_ownership: Bool = False
    """Take over the resources in a pod template from another field manager, such as a GitOps tool. When false,
    the change is skipped and the status names the owner."""

    canary: Canary = Canary()
    """How a change is tried, watched, and taken back when it hurts."""

    min_interval: Annotated[Duration, Within("0s", "8760h")] = Duration.parse("1h")
    """The least time between two changes of a workload; more memory after an OOM kill does not wait."""

    windows: Annotated[tuple[MaintenanceWindow, ...], Field(max_length=16)] = ()
    """When changes may be made; at any time when left out. Taking back what hurts does not wait for a window."""

    startup_boost: StartupBoost | None = None
    """More CPU for each pod until it is ready; none when left out."""


class Steps(Model):
    """How far one change may go, as a share of the request."""

    increase: Annotated[Number, Field(ge=0.01, le=100)] = 2.0
    """The most that is added in one change; 2 allows three times the request. More is given after an OOM."""

    decrease: Annotated[Number, Field(ge=0, le=0.9)] = 0.5
    """The most that is taken away in one change; 0.5 allows half the request, 0 never makes it smaller."""


class MemorySteps(Steps):
    """How far one change of memory may go, as a share of the request; too little of it kills."""

    decrease: Annotated[Number, Field(ge=0, le=0.9)] = 0.3
    """The most that is taken away in one change; 0.3 leaves 70 % of the request, 0 never makes it smaller."""


class Changes(Model):
    """Which changes are worth making, and how far one may go."""

    minimum: Annotated[Number, Field(ge=0, le=1)] = 0.1
    """A change of less than this share of the request is left undone; 0.1 ignores changes below a tenth."""

    stabilization: Annotated[Duration, Within("0s", "24h")] = Duration.parse("24h")
    """A request is made smaller only to the highest that was proposed in so long a time, up to 24h, so that what is
    given back at night is not missing in the morning; 0s makes it smaller at once. More is given at once. The strategy
    trimtab sizes CPU for all of that time instead."""

    cpu: Steps = Steps()
    """How far one change of CPU may go."""

    memory: MemorySteps = MemorySteps()
    """How far one change of memory may go."""


class LimitMode(StrEnum):
    """What becomes of a limit when its request changes."""

    KEEP = "Keep"
    KEEP_RATIO = "KeepRatio"
    MULTIPLIER = "Multiplier"
    HEADROOM = "Headroom"
    REMOVE = "Remove"


class LimitRule(Model):
    """What becomes of the limit of one resource; only Multiplier and Headroom give one to a container without."""

    rules = (
        Rule(
            field="multiplier",
            message="must be given when mode is Multiplier, and only then",
            holds=lambda self: (self.mode is LimitMode.MULTIPLIER) == (self.multiplier is not None),
            cel="(self.mode == 'Multiplier') == has(self.multiplier)",
        ),
        Rule(
            field="headroom",
            message="must be given when mode is Headroom, and only then",
            holds=lambda self: (self.mode is LimitMode.HEADROOM) == (self.headroom is not None),
            cel="(self.mode == 'Headroom') == has(self.headroom)",
        ),
    )

    mode: LimitMode = LimitMode.KEEP_RATIO
    """Keep leaves the limit alone, and the request stays below it; KeepRatio keeps limit to request as it was;
    Multiplier sets request times multiplier; Headroom sets request plus headroom; Remove takes the limit away."""

    multiplier: Annotated[Number, Field(ge=1, le=100)] | None = None
    """The limit as a multiple of the request, such as 1.5; with mode Multiplier."""

    headroom: Quantity | None = None
    """How much the limit is above the request, such as 256Mi; with mode Headroom."""


class LimitPolicy(Model):
    """What becomes of limits, for CPU and memory apart: throttled CPU is slow, a lack of memory is fatal."""

    cpu: LimitRule = LimitRule()
    """What becomes of CPU limits."""

    memory: LimitRule = LimitRule()
    """What becomes of memory limits."""


_KEEP_RULE = LimitRule(mode=LimitMode.KEEP)
_KEEP = LimitPolicy(cpu=_KEEP_RULE, memory=_KEEP_RULE)


class StrategyChoice(Model):
    """How sizes are derived from usage."""

    name: PluginName = "trimtab"
    """The strategy: trimtab, or the name of a plugin."""

    settings: dict[str, Any] = Field(default_factory=dict)
    """Settings of the strategy; what there is depends on it."""


class OptimizationPolicySpec(Model):
    """What is wanted."""

    rules = (
        Rule(
            field="limitPolicy",
            message="limits stay as they are while updateStrategy.updateRequestsOnly is true; set that to false, "
            "or both modes to Keep",
            holds=lambda self: (
                not self.update_strategy.update_requests_only or self.limit_policy in (None, _KEEP)
            ),
            cel="!self.updateStrategy.updateRequestsOnly || !has(self.limitPolicy) "
            "|| (self.limitPolicy.cpu.mode == 'Keep' && self.limitPolicy.memory.mode == 'Keep')",
        ),
    )

    mode: Mode = Mode.RECOMMEND
    """Auto applies recommendations, Recommend only writes them down, Disabled does nothing and keeps the
    history."""

    weight: Annotated[Int, Field(ge=1, le=1000)] = 100
    """Which policy wins where several select a workload: the heaviest, and of equals the first by name."""

    selector: Selector = Selector()
    """Which workloads the policy is about; every workload when empty."""

    metrics_config: MetricsConfig = MetricsConfig()
    """Where usage is read, and how much of it a request is to cover."""

    strategy: StrategyChoice = StrategyChoice()
    """How sizes are derived from usage."""

    resource_bounds: ResourceBounds = ResourceBounds()
    """The least and the most that is ever recommended for a container."""

    update_strategy: UpdateStrategy = UpdateStrategy()
    """How a recommendation may be put into effect in mode Auto."""

    changes: Changes = Changes()
    """Which changes are worth making, and how far one may go."""

    limit_policy: LimitPolicy | None = None
    """What becomes of limits when updateStrategy.updateRequestsOnly is false; their ratio to requests is kept
    when left out."""

    reconciliation_interval: Annotated[Duration, Within("10s", "24h")] = Duration.parse("5m")
    """How often each workload is looked at again, such as 5m."""

    def limit_rule(self, resource: Literal["cpu", "memory"]) -> LimitRule:
        """What becomes of the limit of a resource, all settings considered."""
        if self.update_strategy.update_requests_only:
            return _KEEP_RULE
        rule: LimitRule = getattr(self.limit_policy or LimitPolicy(), resource)
        return rule


class ContainerRecommendation(Observed):
    """What one container should ask for."""

    container: Text
    """The name of the container."""

    cpu: Quantity | None = None
    """The CPU request."""

    memory: Quantity | None = None
    """The memory request."""

    explanation: Annotated[str, Field(max_length=4096)] | None = None
    """How these numbers came about."""


class WorkloadState(StrEnum):
    """How far a workload has come."""

    PENDING = "Pending"
    RECOMMENDED = "Recommended"
    APPLYING = "Applying"
    APPLIED = "Applied"
    SKIPPED = "Skipped"
    REVERTED = "Reverted"
    FAILED = "Failed"


class WorkloadStatus(Observed):
    """What was found and done for one workload."""

    kind: KindName
    """The kind of the workload."""

    namespace: Text
    """The namespace of the workload."""

    name: Text
    """The name of the workload."""

    status: WorkloadState
    """Pending, Recommended, Applying, Applied, Skipped, Reverted or Failed."""

    reason: Annotated[str, Field(max_length=4096)] | None = None
    """Why it was skipped, reverted, or failed, and what to do about it."""

    last_recommendation: Time | None = None
    """When the recommendation was last made."""

    last_applied: Time | None = None
    """When a recommendation was last put into effect."""

    recommendations: Annotated[
        tuple[ContainerRecommendation, ...], Field(max_length=MOST_CONTAINERS), Unique(("container",))
    ] = ()
    """The recommendation for each container, or for the first of very many."""


class WorkloadCounts(Observed):
    """How many workloads, also those that are too many to be listed."""

    monitored: Count = 0
    """Workloads that the policy selects and no heavier policy takes."""

    updated: Count = 0
    """Workloads that run with their recommendation."""

    skipped: Count = 0
    """Workloads that were left alone for a reason."""


class OptimizationPolicyStatus(Observed):
    """What was observed."""

    observed_generation: Count | None = None
    """The generation of the spec that this status is about."""

    conditions: Annotated[tuple[Condition, ...], Field(max_length=16), Unique(("type",))] = ()
    """Ready, MetricsAvailable and others, each with its reason."""

    counts: WorkloadCounts | None = None
    """How many workloads are monitored, updated and skipped."""

    workloads: Annotated[
        tuple[WorkloadStatus, ...], Field(max_length=MOST_LISTED), Unique(("kind", "namespace", "name"))
    ] = ()
    """The workloads, those that need attention first; counts tells how many there are in all."""


class OptimizationPolicy(Kind):
    """Which workloads to right-size, from what evidence, within which bounds, and how boldly."""

    names = Names(
        plural="optimizationpolicies",
        short=("op",),
        namespaced=True,
        columns=(
            Column("Mode", ".spec.mode"),
            Column("Weight", ".spec.weight", "integer"),
            Column("Strategy", ".spec.strategy.name", priority=1),
            Column("Workloads", ".status.counts.monitored", "integer"),
            Column("Updated", ".status.counts.updated", "integer"),
            Column("Skipped", ".status.counts.skipped", "integer", priority=1),
            READY,
            AGE,
        ),
    )

    kind: Literal["OptimizationPolicy"] = "OptimizationPolicy"
    spec: OptimizationPolicySpec = OptimizationPolicySpec()
    status: OptimizationPolicyStatus = OptimizationPolicyStatus()

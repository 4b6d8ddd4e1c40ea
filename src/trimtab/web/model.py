"""What the pages show, as small frozen records that no source and no page knows more of than is written here.

Whoever fills them (`board`) says each amount in cores, bytes, seconds since 1970 and money a month; how it is spelled for
people is `words`. They are also the snapshot file, so a field that is taken away is a new version of it.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from trimtab.kube.kinds.workloads import WorkloadKey

CurveValues = tuple[float | None, ...]
"""Along the times of a plot; None where nothing is known."""


class ViewRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """All that is shown."""


class CurveRole(StrEnum):
    """What a curve tells, which is how it is drawn."""

    USED = "used"
    REQUESTED = "requested"
    ALLOCATABLE = "allocatable"
    LIMIT = "limit"
    RECOMMENDED = "recommended"
    TARGET = "target"
    ESTIMATE = "estimate"
    LOW = "low"
    HIGH = "high"
    DATA = "data"


class Curve(ViewRecord, frozen=True, kw_only=True):
    role: CurveRole
    name: str
    values: CurveValues


class Plot(ViewRecord, frozen=True, kw_only=True):
    """Curves over the same times; or over the same amounts, where `along` names what they are."""

    unit: str
    """cores, bytes, or whatever an objective is measured in."""
    times: tuple[float, ...] = ()
    curves: tuple[Curve, ...] = ()
    along: str = ""
    """What `times` are where they are no times."""


class ResourceSize(ViewRecord, frozen=True, kw_only=True):
    """Requests and limits, of one pod or of one container; None where there is none."""

    cpu: float | None = None
    cpu_limit: float | None = None
    memory: float | None = None
    memory_limit: float | None = None


class WorkloadAction(StrEnum):
    """What a viewer can do to a workload."""

    APPLY = "apply"
    HOLD = "hold"
    RELEASE = "release"
    REVERT = "revert"


class HistoryEntry(ViewRecord, frozen=True, kw_only=True):
    """What was recommended or done, by whom and why."""

    id: int
    at: float
    kind: str
    namespace: str
    name: str
    container: str = ""
    what: str
    before: str = ""
    after: str = ""
    who: str
    why: str
    undo: bool = False
    """Whether it is a change that can be put back as it was."""
    times: int = 1
    """How often it happened, the last time at `at`: OOM kills at one size are one entry."""
    since: float = 0.0
    """When it first happened, where it happened more often than once."""

    @property
    def key(self) -> WorkloadKey:
        return WorkloadKey(self.kind, self.namespace, self.name)


class WorkloadRow(ViewRecord, frozen=True, kw_only=True):
    """A workload in a line; sizes are of one pod, money is of all."""

    kind: str
    namespace: str
    name: str
    policy: str = ""
    """Empty where none selects it."""
    mode: str = ""
    state: str
    """As the status of its policy has it: Applied, Applying, Recommended, …; Unmanaged where no policy selects it."""
    reason: str = ""
    pods: int = 0
    has: ResourceSize = ResourceSize()
    should: ResourceSize | None = None
    """What it should end up with."""
    step: ResourceSize | None = None
    """The next step towards it, where it takes several."""
    used_cpu: float | None = None
    used_memory: float | None = None
    cost: float = 0.0
    saving: float = 0.0
    """Negative where it should have more."""
    risks: tuple[str, ...] = ()
    changed: float | None = None
    """When it was last changed by us."""
    pinned: str = ""
    """By whom it is held at its size."""

    @property
    def key(self) -> WorkloadKey:
        return WorkloadKey(self.kind, self.namespace, self.name)


class FactorView(ViewRecord, frozen=True, kw_only=True):
    """A step on the way to a number, and where it comes from."""

    name: str
    detail: str
    source: str


class BacktestResult(ViewRecord, frozen=True, kw_only=True):
    """How a strategy would have done with a container on its own past."""

    strategy: str
    cpu_slack: float | None = None
    """Of what it would have requested, the share that was not used."""
    cpu_under: float | None = None
    """The share of time in which more was used than it would have requested."""
    memory_slack: float | None = None
    kills_a_day: float | None = None
    cost: float = 0.0


class ContainerDetail(ViewRecord, frozen=True, kw_only=True):
    """One container of a workload, in full."""

    name: str
    has: ResourceSize
    should: ResourceSize | None = None
    """What it should end up with."""
    step: ResourceSize | None = None
    """The next step towards it, where it takes several."""
    held: str = ""
    cpu: Plot
    memory: Plot
    explanation: tuple[FactorView, ...] = ()
    backtest: tuple[BacktestResult, ...] = ()
    """Empty where its past is too short to say."""


class WorkloadDetail(ViewRecord, frozen=True, kw_only=True):
    """A workload in full."""

    row: WorkloadRow
    containers: tuple[ContainerDetail, ...] = ()
    events: tuple[HistoryEntry, ...] = ()
    acts: dict[WorkloadAction, str] = {}
    """What can be done to it, and why not where it cannot; what makes no sense now is not in it."""
    trouble: str = ""
    """What keeps all of it from being shown."""


class ObjectiveView(ViewRecord, frozen=True, kw_only=True):
    name: str
    unit: str = ""
    target: float
    now: float | None = None
    met: bool | None = None
    """None: unknown, which is not met."""
    plot: Plot | None = None


class EffectView(ViewRecord, frozen=True, kw_only=True):
    """What a deed does to an objective, as far as it was learned, and the data behind it."""

    name: str
    plot: Plot
    points: int = 0


class IntentView(ViewRecord, frozen=True, kw_only=True):
    namespace: str
    name: str
    workload: str = ""
    priority: float = 0.0
    state: str = ""
    objectives: tuple[ObjectiveView, ...] = ()
    plan: tuple[FactorView, ...] = ()
    """What was last planned, step by step, with why."""
    effects: tuple[EffectView, ...] = ()
    planned: float | None = None


class TierSummary(ViewRecord, frozen=True, kw_only=True):
    """Pods of one quality of service on a node."""

    name: str
    pods: int = 0
    cpu_requested: float = 0.0
    memory_requested: float = 0.0


class KnobSummary(ViewRecord, frozen=True, kw_only=True):
    """A setting of the kernel's that the node's agent has turned, and why."""

    name: str
    value: str
    why: str = ""


class NodeSummary(ViewRecord, frozen=True, kw_only=True):
    name: str
    ready: bool = True
    schedulable: bool = True
    cpu: float = 0.0
    """Allocatable."""
    memory: float = 0.0
    cpu_requested: float = 0.0
    memory_requested: float = 0.0
    cpu_used: float | None = None
    """What its pods use now; None where no pod has a current sample."""
    memory_used: float | None = None
    """What its pods use now; None where no pod has a current sample."""
    cpu_covered: float | None = None
    """The requests of the pods whose usage is known; None: of all."""
    memory_covered: float | None = None
    """The requests of the pods whose usage is known; None: of all."""
    last_sample: float | None = None
    """When one of its pods was last sampled, where that is too long ago to be shown as current."""
    pods: int = 0
    pressure: dict[str, float] = {}
    """The share of time in which something waited for cpu, memory or io: none known where it is empty."""
    tiers: tuple[TierSummary, ...] = ()
    knobs: tuple[KnobSummary, ...] = ()
    policy: str = ""
    """The NodeQoSPolicy that its agent acts by; empty where none does."""
    reported: float | None = None
    """When its agent last told of it; None where there is none."""


class CostSummary(ViewRecord, frozen=True, kw_only=True):
    """By the month."""

    currency: str = "$"
    requested: float = 0.0
    at_first: float = 0.0
    """What was requested when we began to look."""
    used: float | None = None
    """What the usage would cost if just that was requested; None where it is not known."""
    covered: float | None = None
    """What of `requested` is for pods whose usage is known; None: all."""
    to_save: float = 0.0
    """What following all recommendations would save still."""


class Overview(ViewRecord, frozen=True, kw_only=True):
    """The cluster at a glance."""

    at: float
    cpu: Plot
    memory: Plot
    money: CostSummary = CostSummary()
    states: dict[str, int] = {}
    risks: dict[str, int] = {}
    """Workloads in danger, by which: one that is in two counts in both."""
    nodes: int = 0
    nodes_needed: int | None = None
    """How many of the largest node would hold all that is requested."""
    nodes_at_first: int | None = None
    last_sample: float | None = None
    """When usage was last sampled, where that is too long ago to be shown as current."""
    today: dict[str, int] = {}
    """What was done in the last day: applied, reverted, …"""
    latest: tuple[HistoryEntry, ...] = ()
    trouble: str = ""
    """What keeps all of it from being up to date."""
    note: str = ""
    """Where a demo stands,"""
    done: float | None = None
    """and how much of it is over; None where it is not on its way."""

"""The records that the pages show, as small frozen structs between backends and templates.

Backends fill in cores, bytes, Unix timestamps and monthly money; `views.formatting` formats them for people. The records
are also the format of the snapshot file, so removing a field requires a new version of that file.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from trimtab.errors import TrimtabError
from trimtab.kube.kinds.workloads import WorkloadKey

PodName = tuple[str, str]
"""The namespace and name of a pod."""
CurveValues = tuple[float | None, ...]
"""The values of a curve at the times of a plot; None stands for missing data."""


class ViewRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The base of all records that the pages show."""


class ActionError(TrimtabError):
    """The reason why an action was not run."""


class PodUsageSample(NamedTuple):
    """The usage of all containers of a pod at its last sample."""

    cpu: float
    """The CPU usage in cores."""
    memory: float
    """The memory usage in bytes."""
    sampled_at: float
    """The Unix time of the newest sample."""


class CurveRole(StrEnum):
    """The meaning of a curve, which decides how it is drawn."""

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
    """Curves over the same times, or over the same amounts if `along` names them."""

    unit: str
    """The unit: cores, bytes, or the unit of an objective."""
    times: tuple[float, ...] = ()
    curves: tuple[Curve, ...] = ()
    along: str = ""
    """The label of the x axis if `times` are amounts; empty if they are times."""


class ResourceSize(ViewRecord, frozen=True, kw_only=True):
    """The requests and limits of one pod or container; None if unset."""

    cpu: float | None = None
    cpu_limit: float | None = None
    memory: float | None = None
    memory_limit: float | None = None


class WorkloadAction(StrEnum):
    """An action of a viewer on a workload."""

    APPLY = "apply"
    HOLD = "hold"
    RELEASE = "release"
    REVERT = "revert"


class HistoryEntry(ViewRecord, frozen=True, kw_only=True):
    """A recommendation or change, with its author and reason."""

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
    """True for a change that can be undone."""
    times: int = 1
    """The number of occurrences, the last one at `at`: short lists show the OOM kills of a container as one."""
    since: float = 0.0
    """The time of the first occurrence if there were several."""

    @property
    def key(self) -> WorkloadKey:
        return WorkloadKey(self.kind, self.namespace, self.name)


class WorkloadRow(ViewRecord, frozen=True, kw_only=True):
    """A row of the workload table; sizes are per pod, money is for all pods."""

    kind: str
    namespace: str
    name: str
    policy: str = ""
    """The policy that selects the workload; empty if none does."""
    mode: str = ""
    intent: str = ""
    """The Intent that controls the workload; empty if there is none."""
    state: str
    """The state as in the policy's status: Applied, Applying, Recommended, …; Unmanaged without a policy or an Intent."""
    reason: str = ""
    pods: int = 0
    has: ResourceSize = ResourceSize()
    should: ResourceSize | None = None
    """The final recommended size."""
    step: ResourceSize | None = None
    """The next step towards the recommendation if it takes several."""
    used_cpu: float | None = None
    used_memory: float | None = None
    cost: float = 0.0
    saving: float = 0.0
    """The monthly saving; negative if the workload should get more."""
    risks: tuple[str, ...] = ()
    changed: float | None = None
    """The time of Trimtab's last change."""
    labels: tuple[tuple[str, str], ...] = ()
    """The labels, and the annotations by which costs may be grouped."""
    pinned: str = ""
    """The description of the hold on the workload; empty if there is none."""

    @property
    def key(self) -> WorkloadKey:
        return WorkloadKey(self.kind, self.namespace, self.name)


class FactorView(ViewRecord, frozen=True, kw_only=True):
    """A factor behind a number, and its source."""

    name: str
    detail: str
    source: str


class BacktestResult(ViewRecord, frozen=True, kw_only=True):
    """The backtest of a strategy on a container's own history."""

    strategy: str
    cpu_slack: float | None = None
    """The unused share of the requests."""
    cpu_under: float | None = None
    """The share of time in which usage exceeded the requests."""
    memory_slack: float | None = None
    kills_a_day: float | None = None
    cost: float = 0.0


class ContainerDetail(ViewRecord, frozen=True, kw_only=True):
    """The full details of one container."""

    name: str
    has: ResourceSize
    should: ResourceSize | None = None
    """The final recommended size."""
    step: ResourceSize | None = None
    """The next step towards the recommendation if it takes several."""
    held: str = ""
    cpu: Plot
    memory: Plot
    explanation: tuple[FactorView, ...] = ()
    backtest: tuple[BacktestResult, ...] = ()
    """The backtests of the strategies; empty if the history is too short."""


class WorkloadDetail(ViewRecord, frozen=True, kw_only=True):
    """The full details of a workload."""

    row: WorkloadRow
    containers: tuple[ContainerDetail, ...] = ()
    events: tuple[HistoryEntry, ...] = ()
    acts: dict[WorkloadAction, str] = {}
    """The actions that make sense now, each with the reason why it is blocked, or an empty text."""
    problem: str = msgspec.field(name="trouble", default="")
    """The problem that leaves these details incomplete; empty if there is none."""
    loading: bool = False
    """True if the past of the containers is still to be read."""


class ObjectiveView(ViewRecord, frozen=True, kw_only=True):
    name: str
    unit: str = ""
    description: str = ""
    """The meaning of the KPI, by its KPIProfile."""
    target: float
    now: float | None = None
    met: bool | None = None
    """The state of the objective; None is unknown, which does not count as met."""
    plot: Plot | None = None


class EffectView(ViewRecord, frozen=True, kw_only=True):
    """The learned effect of an action on an objective, with the data behind it."""

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
    """The actions of the last plan, with their reasons."""
    effects: tuple[EffectView, ...] = ()
    planned: float | None = None


class TierSummary(ViewRecord, frozen=True, kw_only=True):
    """The pods of one QoS class on a node."""

    name: str
    pods: int = 0
    cpu_requested: float = 0.0
    memory_requested: float = 0.0


class KnobSummary(ViewRecord, frozen=True, kw_only=True):
    """A kernel setting that the node agent changed, and the reason."""

    name: str
    value: str
    why: str = ""


class NodeSummary(ViewRecord, frozen=True, kw_only=True):
    name: str
    ready: bool = True
    schedulable: bool = True
    cpu: float = 0.0
    """The allocatable CPU in cores."""
    memory: float = 0.0
    cpu_requested: float = 0.0
    memory_requested: float = 0.0
    cpu_used: float | None = None
    """The current usage of the node's pods; None if no pod has a current sample."""
    memory_used: float | None = None
    """The current usage of the node's pods; None if no pod has a current sample."""
    cpu_covered: float | None = None
    """The requests of the pods with known usage; None means all pods."""
    memory_covered: float | None = None
    """The requests of the pods with known usage; None means all pods."""
    last_sample: float | None = None
    """The time of the last sample of the node's pods if it is too old to count as current."""
    cost: float | None = None
    """The monthly cost of the node; None if it is unknown."""
    pods: int = 0
    pressure: dict[str, float] = {}
    """The share of time in which tasks waited for cpu, memory or io; empty if unknown."""
    tiers: tuple[TierSummary, ...] = ()
    knobs: tuple[KnobSummary, ...] = ()
    policy: str = ""
    """The NodeQoSPolicy that the agent enforces; empty if there is none."""
    reported: float | None = None
    """The time of the agent's last report; None without an agent."""


class CostSummary(ViewRecord, frozen=True, kw_only=True):
    """The monthly costs of the cluster."""

    currency: str = "$"
    requested: float = 0.0
    at_first: float = 0.0
    """The monthly cost of requests when the dashboard first saw the cluster."""
    used: float | None = None
    """The monthly cost if requests equalled usage; None if usage is unknown."""
    covered: float | None = None
    """The part of `requested` for pods with known usage; None means all."""
    to_save: float = 0.0
    """The monthly saving if all recommendations were applied."""
    saved: float | None = None
    """The monthly cost that applied changes took away; None in a snapshot of an earlier version."""
    saved_in_total: float = 0.0
    """The money that they saved so far."""
    saved_since: float | None = None
    """The time since which that is summed up; None if it is not yet."""
    nodes: float | None = None
    """The monthly cost of the nodes, which is what the bill shows; None if it is unknown."""
    nodes_at_first: float | None = None
    """The monthly cost of the nodes when the dashboard first knew it; None if it is unknown."""


class Overview(ViewRecord, frozen=True, kw_only=True):
    """The overview of the cluster."""

    at: float
    cpu: Plot
    memory: Plot
    cost: Plot | None = None
    """The monthly cost of the nodes and of all requests over time; None in a snapshot of an earlier version."""
    savings: Plot | None = None
    """The money that changes saved so far, over time; None in a snapshot of an earlier version."""
    money: CostSummary = CostSummary()
    states: dict[str, int] = {}
    risks: dict[str, int] = {}
    """The number of workloads per risk; one with two risks counts in both."""
    nodes: int = 0
    nodes_needed: int | None = None
    """The number of nodes of the largest size that would hold all requests."""
    nodes_at_first: int | None = None
    last_sample: float | None = None
    """The time of the last usage sample if it is too old to count as current."""
    today: dict[str, int] = {}
    """The number of changes in the last day, by kind: applied, reverted, …"""
    latest: tuple[HistoryEntry, ...] = ()
    problem: str = msgspec.field(name="trouble", default="")
    """The problem that keeps the overview from being up to date; empty if there is none."""
    note: str = ""
    """The progress message of a demo."""
    done: float | None = None
    """The completed share of a demo; None if it is not running."""

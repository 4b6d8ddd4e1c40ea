"""The read model of a leader session: frozen views that its controllers publish for the dashboard.

A reader takes no lock of the operator and reaches into none of its parts. Views are replaced, never changed, so a reader
that awaits between two views still sees each of them complete. A view of each workload is published whenever it is
reconciled. Nothing is written through them but holds, which are annotations of workloads (`actuation.hold`), where the
reconciler finds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from trimtab.actuation.effective_size import EffectiveContainers
from trimtab.api.optimizationpolicy import OptimizationPolicySpec
from trimtab.intents.effects.model import EffectModels
from trimtab.intents.objective import Goal
from trimtab.kube.kinds.custom import IntentKey, IntentRecord
from trimtab.kube.kinds.nodes import Node
from trimtab.kube.kinds.pods import Container, Pod
from trimtab.kube.kinds.workloads import Workload, WorkloadKey
from trimtab.kube.rest.object_client import ObjectClient
from trimtab.operator.cluster_state import ClusterState
from trimtab.operator.paid_pods import mean_requests
from trimtab.operator.policy.resolver import EffectivePolicy, PolicyResolver
from trimtab.operator.policy.status import WorkloadOutcome
from trimtab.operator.policy.status_writer import PolicyStatusWriter
from trimtab.sizing.evidence import Evidence
from trimtab.sizing.policy_rules import PolicyRules
from trimtab.store import Store
from trimtab.usage.pod_ownership import PodOwnerIndex
from trimtab.usage.source import Source
from trimtab.usage.usage import Usage

Key = TypeVar("Key")
View = TypeVar("View")


class ViewStore(Generic[Key, View]):
    """The last published view of each object."""

    def __init__(self) -> None:
        self._views: dict[Key, View] = {}
        self._is_shared = False

    def publish(self, key: Key, view: View) -> None:
        self._writable()[key] = view

    def remove(self, key: Key) -> None:
        if key in self._views:
            del self._writable()[key]

    def replace_all(self, views: Mapping[Key, View]) -> None:
        self._views, self._is_shared = dict(views), False

    def read(self) -> Mapping[Key, View]:
        """Return all views as of now; later publications do not change what is returned."""
        self._is_shared = True
        return MappingProxyType(self._views)

    def get(self, key: Key) -> View | None:
        return self._views.get(key)

    def __contains__(self, key: Key) -> bool:
        return key in self._views

    def _writable(self) -> dict[Key, View]:
        # Copy only if a reader holds the views: a start publishes thousands of them in a row.
        if self._is_shared:
            self._views, self._is_shared = dict(self._views), False
        return self._views


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyView:
    """The policy that applies to a workload."""

    name: str
    spec: OptimizationPolicySpec
    rules: PolicyRules
    source: str
    """The key of the policy's usage source in `OperatorViews.sources`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadView:
    """A workload as of its last reconcile."""

    workload: Workload
    pods: tuple[str, ...] = ()
    """The names of its pods, without those that are being deleted."""
    containers: tuple[Container, ...] = ()
    """The containers with the sizes that they have in effect."""
    requested: tuple[Container, ...] = ()
    """The containers with the mean of what the pods request; read it by `paid_containers`."""
    policy: PolicyView | None = None
    """The policy that applies; None if no policy selects the workload."""
    intent: str = ""
    """The Intent that controls its replicas and sizes; empty if there is none."""
    outcome: WorkloadOutcome | None = None
    """The result of the last reconcile; None before the first one, and without a policy."""
    evidence: Mapping[str, Evidence] = field(default_factory=dict)
    """The evidence about each container for which usage was ingested."""

    @property
    def paid_containers(self) -> list[Container]:
        """The containers with what their pods request, without init containers."""
        return [each for each in self.requested or self.containers if each.role != "init"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedIntent:
    """An Intent, with the effects that were learned for it by the last cycle."""

    record: IntentRecord
    goal: Goal | None = None
    """The goal that the learned effects belong to; None before the first cycle, and for an invalid spec."""
    effects: EffectModels = field(default_factory=EffectModels)


class IntentViews:
    """The views of all Intents: the newest objects, and the effects that the controller published in its last cycle."""

    def __init__(self, records: Iterable[IntentRecord] = ()) -> None:
        """Create the views; `records` are the current Intents, such as an informer's cache."""
        self._records = records
        self.published: ViewStore[IntentKey, PublishedIntent] = ViewStore()

    def read(self) -> list[PublishedIntent]:
        """Return the views in the order of their names.

        The objects come from the informer and not from the last cycle: a status is written at the end of a cycle, and
        would be shown one cycle late.
        """
        learned = self.published.read()
        return [
            PublishedIntent(record=record, goal=last.goal, effects=last.effects)
            if (last := learned.get(record.key))
            else PublishedIntent(record=record)
            for record in sorted(self._records, key=lambda record: record.key)
        ]


class UsageReader(Protocol):
    """A source of usage."""

    name: str
    source: Source[Any]
    last_error: str
    """The reason why the last cycle could not read the source; empty if it could."""

    @property
    def current(self) -> float:
        """The seconds for which a sample counts as current."""
        ...

    async def read_present(self, now: float) -> Usage:
        """Read the latest usage of every container in the cluster."""
        ...


class SavingsSummary(NamedTuple):
    """The savings that changes realised in the whole cluster."""

    per_month: float = 0.0
    """The savings of a month, with the pods that run now."""
    total: float = 0.0
    """The money saved so far."""
    since: float | None = None
    """The time since which it is summed up; None before the first update."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorViews:
    """Everything of one leader session that the dashboard reads; the next session has a new one."""

    cluster_name: str
    """The cluster's name in the store."""
    store: Store
    objects: ObjectClient
    """The client that writes holds."""
    workloads: ViewStore[WorkloadKey, WorkloadView]
    intents: IntentViews
    nodes: Iterable[Node]
    node_cost: Callable[[Node], float]
    """Returns the monthly cost of a node."""
    savings: Callable[[], SavingsSummary]
    """Returns what changes saved in the whole cluster."""
    pods: Iterable[Pod]
    sources: Mapping[str, UsageReader]
    """The usage sources by the names that policies use; the default one has an empty name."""
    step: float
    """The seconds between two current samples."""
    stop_reason: Callable[[], str]
    """Returns the description of the emergency stop in effect; empty if there is none."""
    build_owner_index: Callable[[], PodOwnerIndex]
    """Returns an index from pods, including deleted ones, to the workloads that own them."""

    def source_for(self, workload: WorkloadView) -> Source[Any]:
        """Return the usage source that the policy of a workload names; the default one without a policy."""
        return self.sources[workload.policy.source if workload.policy else ""].source


class WorkloadViewPublisher:
    """Publishes the views of workloads: the reconciler's after each reconcile, and those of all others each cycle."""

    def __init__(
        self,
        cluster_state: ClusterState,
        policy_resolver: PolicyResolver,
        status_writer: PolicyStatusWriter,
        *,
        controlling_intent_name: Callable[[WorkloadKey], str],
    ) -> None:
        self._cluster_state = cluster_state
        self._policy_resolver = policy_resolver
        self._status_writer = status_writer
        self._controlling_intent_name = controlling_intent_name
        self._evidence: dict[WorkloadKey, Mapping[str, Evidence]] = {}
        self.effective = EffectiveContainers()
        """The containers with the sizes in effect, for the reconciler as well."""
        self.views: ViewStore[WorkloadKey, WorkloadView] = ViewStore()

    def set_evidence(self, key: WorkloadKey, evidence: Mapping[str, Evidence]) -> None:
        """Set the evidence of a workload for its next views."""
        self._evidence[key] = evidence

    def publish(self, key: WorkloadKey, policy: EffectivePolicy | None = None) -> None:
        """Publish the current state of a workload, or remove its view if it no longer exists.

        `policy` is the policy of the workload if the caller has just resolved it.
        """
        workload = self._cluster_state.get(key)
        # A VPA may name a ReplicaSet of a Deployment: it is reconciled, but the Deployment is what users see.
        if workload is None or (workload.owner and self._cluster_state.find_top_owner(key) != key):
            self._remove(key)
            return
        pods = self._cluster_state.list_pods(workload)
        policy = policy or self._policy_resolver.resolve(workload)
        intent = self._controlling_intent_name(key)
        present = [pod for pod in pods if not pod.deleting]
        sync = self._policy_resolver.pod_sync(workload, policy, pods, intent=intent)
        containers = self.effective.find(workload, pods, sync)
        self.views.publish(
            key,
            WorkloadView(
                workload=workload,
                pods=tuple(pod.name for pod in present),
                containers=containers,
                requested=mean_requests(containers, present),
                policy=PolicyView(
                    name=policy.name,
                    spec=policy.spec,
                    rules=policy.rules,
                    source=policy.strategy_spec.source,
                )
                if policy
                else None,
                intent=intent,
                outcome=self._status_writer.get_outcome(key),
                evidence=self._evidence.get(key, {}) if policy else {},
            ),
        )

    def _remove(self, key: WorkloadKey) -> None:
        self.views.remove(key)
        self._evidence.pop(key, None)
        self.effective.forget(key)

    def sync(self, workloads: Iterable[Workload]) -> None:
        """Publish workloads that have no view yet, and remove the views of all that are not among these.

        A workload that another one adopts is never reconciled again, so nobody else removes its view.
        """
        keys = {workload.key for workload in workloads}
        for key in self.views.read().keys() - keys:
            self._remove(key)
        for key in keys:
            if key not in self.views:
                self.publish(key)

"""The node informer: keeps the view of the node current, and knows the policy that applies.

Pods come from the kubelet, every few seconds and whenever a cgroup appears or disappears, and from a watch of
the API server for this node. Losing either only delays data, because the cgroups are always read.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Never

import structlog

from trimtab.api.nodeqospolicy import TierNamespacesSpec
from trimtab.kube.cache.informer import Scope
from trimtab.kube.cache.informer_set import InformerSet
from trimtab.kube.cache.store import Cache
from trimtab.kube.errors import DECODE_ERRORS, ConfigError, Forbidden, KubeError, Unauthorized, describe
from trimtab.kube.kinds.custom import QosPolicy, qos_policy_projection, select_qos_policy
from trimtab.kube.kinds.emergency_stop import EmergencyStop, EmergencyStopWatch
from trimtab.kube.kinds.nodes import Node, node_projection
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import NODE_QOS_POLICIES, NODES, PODS
from trimtab.node.cgroups import CgroupLayout, Hierarchy, QosClass
from trimtab.node.cgroups.layout import PodCgroup
from trimtab.node.informer.inotify import InotifyWatch
from trimtab.node.informer.merge import build_pod_views, merge_known_pods
from trimtab.node.informer.pods import KnownPod, PodProjector
from trimtab.node.informer.topology import read_memory_total, read_online_cpus, read_topology
from trimtab.node.model import Cpu, NodeView
from trimtab.timing import Interval, LogOnce, is_recent

log = structlog.get_logger(__name__)

MAX_KUBELET_BYTES = 64 << 20
"""The maximum size of the list of the pods of a node, of which a kubelet has at most a few hundred."""

RESYNC_SECONDS = 10.0
"""The seconds after which the kubelet is polled and the cgroups are listed in any case."""
KUBELET_FRESH_SECONDS = 35.0
"""The seconds for which a response of the kubelet is valid."""
DEBOUNCE_SECONDS = 0.1
"""The seconds in which changes are collected into one request."""


class NodeInformer:
    """The state of this node; `view` is cheap while nothing changes."""

    def __init__(
        self,
        node: str,
        *,
        hierarchy: Hierarchy,
        parent: str = "",
        proc: Path = Path("/proc"),
        sys: Path = Path("/sys"),
    ) -> None:
        self._node = node
        self.hierarchy = hierarchy
        self._parent = parent
        self._proc, self._sys = proc, sys
        self._view = NodeView(name=node, cpus=read_topology(sys), memory=read_memory_total(proc))
        self._stale = True
        self._resync = Interval(RESYNC_SECONDS)
        self._watch = InotifyWatch()
        self._projector = PodProjector()
        self._kubelet_pods: dict[str, KnownPod] = {}
        self._kubelet_updated_at = float("-inf")
        self._pods: Cache[KnownPod] = Cache()
        self._nodes: Cache[Node] = Cache()
        self._policies: Cache[QosPolicy] = Cache()
        self._informers: InformerSet | None = None
        self._change_event = asyncio.Event()
        self._kubelet_errors = LogOnce()
        self._kubelet_optional = False
        """Set if the kubelet denies access, as before Kubernetes 1.33 with the agent's RBAC rules, or has a certificate
        that is not trusted, as with kubeadm's defaults: the API server then describes the pods."""
        self._synced = False
        self._emergency_stop: EmergencyStopWatch | None = None

    @property
    def policy(self) -> QosPolicy | None:
        """Return the policy that applies to this node."""
        node = self._nodes.get(self._node)
        return select_qos_policy(dict(node.labels) if node else {}, self._policies)

    @property
    def stop_reason(self) -> str:
        """Return the reason why the agent changes nothing, whatever the policy says; empty if there is none."""
        return self._emergency_stop.reason if self._emergency_stop else ""

    @property
    def uid(self) -> str:
        """Return the uid of the Node; empty until the API server has sent it."""
        node = self._nodes.get(self._node)
        return node.uid if node else ""

    def errors_by_source(self) -> dict[str, str]:
        """Return the errors of the sources that should be available."""
        errors = self._informers.errors_by_resource() if self._informers else {}
        if self._synced and self._nodes.get(self._node) is None:
            errors |= {"node": f"the cluster has no Node {self._node}; check --node"}
        if not self.hierarchy.cgroup(pods := self._view.pods_cgroup).exists:
            errors |= {"cgroups": f"the node has no cgroup {pods}; check --cgroups and --cgroup-parent"}
        error = self._kubelet_errors.current()
        return errors | ({"kubelet": error} if error and not self._kubelet_optional else {})

    @property
    def has_kubelet(self) -> bool:
        """Return True if the kubelet's last answer is in use."""
        return math.isfinite(self._kubelet_updated_at) and not self._kubelet_errors.current()

    def view(self, now: float) -> NodeView:
        """Return the current node; the same object while nothing changed."""
        self.drain_watch()
        if self._stale or self._resync.due(now):
            self._stale = False
            self._resync.restart(now)
            view = self._build_view(now)
            if view != self._view:
                self._view = view
        return self._view

    def drain_watch(self) -> None:
        """Record that cgroups appeared or disappeared."""
        if self._watch.drain():
            self._mark_changed()

    def watch_cgroups(self) -> None:
        """Process cgroup changes as soon as the event loop sees them, not only at the next view."""
        if self._watch.fd >= 0:
            asyncio.get_running_loop().add_reader(self._watch.fd, self.drain_watch)

    def watch_api(self, client: Client, *, namespace: str) -> InformerSet:
        """Watch this node, and the emergency stop of a namespace, at the API server; run the returned informers as a task."""
        informers = self._informers = InformerSet(client)
        this = f"metadata.name={self._node}"
        self._pods = informers.watch_resource(
            PODS, self._projector.projection, scope=Scope(fields=f"spec.nodeName={self._node}")
        )
        self._nodes = informers.watch_resource(NODES, node_projection(), scope=Scope(fields=this))
        self._policies = informers.watch_resource(NODE_QOS_POLICIES, qos_policy_projection(), optional=True)
        self._emergency_stop = EmergencyStopWatch(informers, namespace)
        self._emergency_stop.on_change(_log_emergency_stop)
        self._pods.on_change(lambda _old, _new: self._mark_changed())
        self._nodes.on_change(lambda _old, _new: self._mark_changed())
        # A policy may restrict the tiers that pods choose.
        self._policies.on_change(lambda _old, _new: self._mark_changed())
        return informers

    async def wait_synced(self) -> None:
        """Wait until the API server has sent the state of this node."""
        assert self._informers is not None
        await self._informers.wait_synced()
        self._synced = True
        # Otherwise a misspelt node name would look like an idle node.
        if "node" in (found := self.errors_by_source()):
            log.warning("node.not_found", error=found["node"])

    async def poll_kubelet(self, kubelet: Client, *, clock: Callable[[], float]) -> Never:
        """Poll the kubelet for its pods, every few seconds and after changes."""
        while True:
            self._change_event.clear()
            try:
                # An unverified kubelet may be anybody, who must not fill the memory of the agent.
                pods = await kubelet.request("GET", "/pods", max_bytes=MAX_KUBELET_BYTES, read=bytes)
                self.update_from_kubelet(pods, clock())
                self._kubelet_errors.clear()
            except (KubeError, *DECODE_ERRORS) as error:
                if self._kubelet_errors.is_new(describe(error)):
                    log.warning("kubelet.unreachable", error=describe(error))
                self._kubelet_optional = isinstance(error, Forbidden | Unauthorized | ConfigError)
                await asyncio.sleep(RESYNC_SECONDS / 2)
            try:
                await asyncio.wait_for(self._change_event.wait(), RESYNC_SECONDS)
            except TimeoutError:
                continue
            await asyncio.sleep(DEBOUNCE_SECONDS)

    def update_from_kubelet(self, answer: bytes, now: float) -> None:
        pods = {pod.cgroup_uid: pod for pod in self._projector.parse_list(answer)}
        self._stale |= pods != self._kubelet_pods
        self._kubelet_pods, self._kubelet_updated_at = pods, now

    def close(self) -> None:
        # Without a running loop, or without a descriptor, no reader was added.
        with suppress(RuntimeError, ValueError):
            asyncio.get_running_loop().remove_reader(self._watch.fd)
        self._watch.close()

    def _mark_changed(self) -> None:
        self._stale = True
        self._change_event.set()

    def _build_view(self, now: float) -> NodeView:
        layout = CgroupLayout.detect(self.hierarchy, parent=self._parent)
        found = self._find_pods(layout)
        known = merge_known_pods(
            self._pods,
            self._kubelet_pods
            if is_recent(self._kubelet_updated_at, now, within=KUBELET_FRESH_SECONDS)
            else {},
        )
        node, policy = self._nodes.get(self._node), self.policy
        return replace(
            self._view,
            cpus=self._read_cpus(),
            memory=read_memory_total(self._proc),
            pods=build_pod_views(
                found,
                known,
                hierarchy=self.hierarchy,
                layout=layout,
                tier_namespaces=policy.spec.tier_namespaces
                if policy and policy.spec
                else TierNamespacesSpec(),
            ),
            labels=node.labels if node else (),
            pods_cgroup=layout.pods_path,
            best_effort_cgroup=layout.qos_path(QosClass.BEST_EFFORT),
            allocatable_cpu=node.allocatable.cpu if node else None,
            allocatable_memory=node.allocatable.memory if node else None,
        )

    def _read_cpus(self) -> tuple[Cpu, ...]:
        """Return the CPUs, which change when hyper-threading is disabled or a virtual machine is resized."""
        known = self._view.cpus
        return known if {cpu.id for cpu in known} == read_online_cpus(self._sys) else read_topology(self._sys)

    def _find_pods(self, layout: CgroupLayout) -> list[PodCgroup]:
        """Return the pods with cgroups and watch them; repeat if pods appeared before the watch was set."""
        found: list[PodCgroup] | None = None
        while found != (seen := layout.find_pods(self.hierarchy)):
            found = seen
            folders = [*map(layout.qos_path, QosClass), *(there.path for there in found)]
            self._watch.watch(self.hierarchy.folder(folder, "cpu") for folder in folders)
        return found


def _log_emergency_stop(stop: EmergencyStop | None) -> None:
    if stop is None:
        log.warning("qos.emergency_stop_ended")
    else:
        log.warning("qos.emergency_stop", author=stop.author, reason=stop.reason)

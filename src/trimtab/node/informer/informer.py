"""The states informer: keeps the picture of the node true, and knows which policy holds.

Pods come from the kubelet every few seconds and at once when a cgroup comes or goes, and from the API server's watch,
for this node only. Losing either costs freshness, never the picture: what is in the cgroups is seen in any case.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Never

import structlog

from trimtab.kube.cache.informer import Scope
from trimtab.kube.cache.informer_set import InformerSet
from trimtab.kube.cache.store import Cache
from trimtab.kube.errors import DECODE_ERRORS, Forbidden, KubeError, describe
from trimtab.kube.kinds.custom import QosPolicy, qos_policy_projection, select_qos_policy
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

log = structlog.get_logger(__name__)

RESYNC_SECONDS = 10.0
"""Seconds after which the kubelet is asked and the cgroups are listed in any case."""
KUBELET_FRESH_SECONDS = 35.0
"""Seconds for which an answer of the kubelet counts."""
DEBOUNCE_SECONDS = 0.1
"""Seconds in which changes are gathered into one question."""


class NodeInformer:
    """What this node is and runs. `view` is cheap while nothing changes; run `follow` as a task for what is told."""

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
        self._refreshed_at = 0.0
        self._watch = InotifyWatch()
        self._projector = PodProjector()
        self._kubelet_pods: dict[str, KnownPod] = {}
        self._kubelet_updated_at = float("-inf")
        self._pods: Cache[KnownPod] = Cache()
        self._nodes: Cache[Node] = Cache()
        self._policies: Cache[QosPolicy] = Cache()
        self._informers: InformerSet | None = None
        self._change_event = asyncio.Event()
        self._kubelet_error = ""
        self._kubelet_forbidden = False
        """Whether it tells us nothing by right, as every one before Kubernetes 1.33 with the rights of our manifest."""
        self._synced = False

    @property
    def policy(self) -> QosPolicy | None:
        """What holds on this node now."""
        node = self._nodes.get(self._node)
        return select_qos_policy(dict(node.labels) if node else {}, self._policies)

    @property
    def uid(self) -> str:
        """That of the Node; empty while the API server has told of none."""
        node = self._nodes.get(self._node)
        return node.uid if node else ""

    def errors_by_source(self) -> dict[str, str]:
        """Which witnesses are away that are not to be, and why."""
        told = self._informers.errors_by_resource() if self._informers else {}
        if self._synced and self._nodes.get(self._node) is None:
            told |= {"node": f"the cluster has no Node {self._node}; see --node"}
        if not self.hierarchy.cgroup(pods := self._view.pods_cgroup).exists:
            told |= {"cgroups": f"the node has no {pods}; see --cgroups and --cgroup-parent"}
        is_away = self._kubelet_error and not self._kubelet_forbidden
        return told | ({"kubelet": self._kubelet_error} if is_away else {})

    def view(self, now: float) -> NodeView:
        """The node now; the very same object while nothing changed."""
        self.drain_watch()
        if self._stale or not 0 <= now - self._refreshed_at < RESYNC_SECONDS:
            self._stale, self._refreshed_at = False, now
            seen = self._build_view(now)
            if seen != self._view:
                self._view = seen
        return self._view

    def drain_watch(self) -> None:
        """Take note of cgroups that came or went."""
        if self._watch.drain():
            self._mark_changed()

    def watch_cgroups(self) -> None:
        """Hear of cgroups as soon as the event loop does, and not at the next view only."""
        if self._watch.fd >= 0:
            asyncio.get_running_loop().add_reader(self._watch.fd, self.drain_watch)

    def watch_api(self, client: Client) -> InformerSet:
        """Take in what the API server tells of this node; `run` what is given, as a task."""
        following = self._informers = InformerSet(client)
        this = f"metadata.name={self._node}"
        self._pods = following.watch_resource(
            PODS, self._projector.projection, scope=Scope(fields=f"spec.nodeName={self._node}")
        )
        self._nodes = following.watch_resource(NODES, node_projection(), scope=Scope(fields=this))
        self._policies = following.watch_resource(NODE_QOS_POLICIES, qos_policy_projection(), optional=True)
        self._pods.on_change(lambda _old, _new: self._mark_changed())
        self._nodes.on_change(lambda _old, _new: self._mark_changed())
        return following

    async def wait_synced(self) -> None:
        """Wait until the API server has told what it knows of this node."""
        assert self._informers is not None
        await self._informers.wait_synced()
        self._synced = True
        if "node" in (
            found := self.errors_by_source()
        ):  # else a name that is misspelt would look like an idle node
            log.warning("node.unknown", error=found["node"])

    async def poll_kubelet(self, kubelet: Client, *, clock: Callable[[], float]) -> Never:
        """Ask the kubelet for its pods, every few seconds and when something changed."""
        while True:
            self._change_event.clear()
            try:
                self.update_from_kubelet(await kubelet.request("GET", "/pods", read=bytes), clock())
                self._kubelet_error = ""
            except (KubeError, *DECODE_ERRORS) as error:
                if self._kubelet_error != describe(error):
                    log.warning("kubelet.away", error=describe(error))
                self._kubelet_error = describe(error)
                self._kubelet_forbidden = isinstance(error, Forbidden)
                await asyncio.sleep(RESYNC_SECONDS / 2)
            try:
                await asyncio.wait_for(self._change_event.wait(), RESYNC_SECONDS)
            except TimeoutError:
                continue
            await asyncio.sleep(DEBOUNCE_SECONDS)

    def update_from_kubelet(self, answer: bytes, now: float) -> None:
        told = {pod.cgroup_uid: pod for pod in self._projector.parse_list(answer)}
        self._stale |= told != self._kubelet_pods
        self._kubelet_pods, self._kubelet_updated_at = told, now

    def close(self) -> None:
        with suppress(
            RuntimeError, ValueError
        ):  # no loop runs where nobody listened, and none hears of nothing
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
            self._kubelet_pods if 0 <= now - self._kubelet_updated_at <= KUBELET_FRESH_SECONDS else {},
        )
        node = self._nodes.get(self._node)
        return replace(
            self._view,
            cpus=self._read_cpus(),
            memory=read_memory_total(self._proc),
            pods=build_pod_views(found, known, hierarchy=self.hierarchy, layout=layout),
            labels=node.labels if node else (),
            pods_cgroup=layout.pods_path,
            best_effort_cgroup=layout.qos_path(QosClass.BEST_EFFORT),
            allocatable_cpu=node.allocatable.cpu if node else None,
            allocatable_memory=node.allocatable.memory if node else None,
        )

    def _read_cpus(self) -> tuple[Cpu, ...]:
        """They come and go, as where hyper-threads are switched off or a virtual machine gets more."""
        known = self._view.cpus
        return known if {cpu.id for cpu in known} == read_online_cpus(self._sys) else read_topology(self._sys)

    def _find_pods(self, layout: CgroupLayout) -> list[PodCgroup]:
        """The pods that have cgroups, all of them watched: what came between the look and the watch is looked for again."""
        found: list[PodCgroup] | None = None
        while found != (seen := layout.find_pods(self.hierarchy)):
            found = seen
            folders = [*map(layout.qos_path, QosClass), *(there.path for there in found)]
            self._watch.watch(self.hierarchy.folder(folder, "cpu") for folder in folders)
        return found

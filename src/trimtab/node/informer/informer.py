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
from trimtab.kube.cache.informer_set import Following
from trimtab.kube.cache.store import Cache
from trimtab.kube.errors import NOT_UNDERSTOOD, Forbidden, KubeError, describe
from trimtab.kube.kinds.custom import QosPolicy, policy_for, qos_policies
from trimtab.kube.kinds.nodes import Node, nodes
from trimtab.kube.rest.client import Client
from trimtab.kube.rest.resources import NODE_QOS_POLICIES, NODES, PODS
from trimtab.node.cgroups import Hierarchy, Layout, QosClass
from trimtab.node.cgroups.layout import Found
from trimtab.node.informer.inotify import FolderWatch
from trimtab.node.informer.merge import believed, compose
from trimtab.node.informer.pods import KnownPod, PodFolding
from trimtab.node.informer.topology import memory_total, online, topology
from trimtab.node.model import Cpu, NodeView

log = structlog.get_logger(__name__)

LOOK_EVERY = 10.0
"""Seconds after which the kubelet is asked and the cgroups are listed in any case."""
BELIEVED = 35.0
"""Seconds for which an answer of the kubelet counts."""
GATHER = 0.1
"""Seconds in which changes are gathered into one question."""


class States:
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
        self._view = NodeView(name=node, cpus=topology(sys), memory=memory_total(proc))
        self._stale = True
        self._looked = 0.0
        self._watch = FolderWatch()
        self._folding = PodFolding()
        self._by_kubelet: dict[str, KnownPod] = {}
        self._told_at = float("-inf")
        self._pods: Cache[KnownPod] = Cache()
        self._nodes: Cache[Node] = Cache()
        self._policies: Cache[QosPolicy] = Cache()
        self._following: Following | None = None
        self._news = asyncio.Event()
        self._kubelet_trouble = ""
        self._kubelet_refuses = False
        """Whether it tells us nothing by right, as every one before Kubernetes 1.33 with the rights of our manifest."""
        self._listed = False

    @property
    def policy(self) -> QosPolicy | None:
        """What holds on this node now."""
        node = self._nodes.get(self._node)
        return policy_for(dict(node.labels) if node else {}, self._policies)

    @property
    def uid(self) -> str:
        """That of the Node; empty while the API server has told of none."""
        node = self._nodes.get(self._node)
        return node.uid if node else ""

    def troubles(self) -> dict[str, str]:
        """Which witnesses are away that are not to be, and why."""
        told = self._following.troubles() if self._following else {}
        if self._listed and self._nodes.get(self._node) is None:
            told |= {"node": f"the cluster has no Node {self._node}; see --node"}
        if not self.hierarchy.cgroup(pods := self._view.pods_cgroup).exists:
            told |= {"cgroups": f"the node has no {pods}; see --cgroups and --cgroup-parent"}
        is_away = self._kubelet_trouble and not self._kubelet_refuses
        return told | ({"kubelet": self._kubelet_trouble} if is_away else {})

    def view(self, now: float) -> NodeView:
        """The node now; the very same object while nothing changed."""
        self.hear()
        if self._stale or not 0 <= now - self._looked < LOOK_EVERY:
            self._stale, self._looked = False, now
            seen = self._look(now)
            if seen != self._view:
                self._view = seen
        return self._view

    def hear(self) -> None:
        """Take note of cgroups that came or went."""
        if self._watch.drain():
            self._changed()

    def listen(self) -> None:
        """Hear of cgroups as soon as the event loop does, and not at the next view only."""
        if self._watch.fd >= 0:
            asyncio.get_running_loop().add_reader(self._watch.fd, self.hear)

    def follow_api(self, client: Client) -> Following:
        """Take in what the API server tells of this node; `run` what is given, as a task."""
        following = self._following = Following(client)
        this = f"metadata.name={self._node}"
        self._pods = following.follow(
            PODS, self._folding.shape, scope=Scope(fields=f"spec.nodeName={self._node}")
        )
        self._nodes = following.follow(NODES, nodes(), scope=Scope(fields=this))
        self._policies = following.follow(NODE_QOS_POLICIES, qos_policies(), optional=True)
        self._pods.on_change(lambda _old, _new: self._changed())
        self._nodes.on_change(lambda _old, _new: self._changed())
        return following

    async def settled(self) -> None:
        """Wait until the API server has told what it knows of this node."""
        assert self._following is not None
        await self._following.settled()
        self._listed = True
        if "node" in (found := self.troubles()):  # else a name that is misspelt would look like an idle node
            log.warning("node.unknown", error=found["node"])

    async def follow_kubelet(self, kubelet: Client, *, clock: Callable[[], float]) -> Never:
        """Ask the kubelet for its pods, every few seconds and when something changed."""
        while True:
            self._news.clear()
            try:
                self.told_by_kubelet(await kubelet.request("GET", "/pods", read=bytes), clock())
                self._kubelet_trouble = ""
            except (KubeError, *NOT_UNDERSTOOD) as error:
                if self._kubelet_trouble != describe(error):
                    log.warning("kubelet.away", error=describe(error))
                self._kubelet_trouble = describe(error)
                self._kubelet_refuses = isinstance(error, Forbidden)
                await asyncio.sleep(LOOK_EVERY / 2)
            try:
                await asyncio.wait_for(self._news.wait(), LOOK_EVERY)
            except TimeoutError:
                continue
            await asyncio.sleep(GATHER)

    def told_by_kubelet(self, answer: bytes, now: float) -> None:
        told = {pod.cgroup_uid: pod for pod in self._folding.read(answer)}
        self._stale |= told != self._by_kubelet
        self._by_kubelet, self._told_at = told, now

    def close(self) -> None:
        with suppress(
            RuntimeError, ValueError
        ):  # no loop runs where nobody listened, and none hears of nothing
            asyncio.get_running_loop().remove_reader(self._watch.fd)
        self._watch.close()

    def _changed(self) -> None:
        self._stale = True
        self._news.set()

    def _look(self, now: float) -> NodeView:
        layout = Layout.detect(self.hierarchy, parent=self._parent)
        found = self._find(layout)
        known = believed(self._pods, self._by_kubelet if 0 <= now - self._told_at <= BELIEVED else {})
        node = self._nodes.get(self._node)
        return replace(
            self._view,
            cpus=self._cpus(),
            memory=memory_total(self._proc),
            pods=compose(found, known, hierarchy=self.hierarchy, layout=layout),
            labels=node.labels if node else (),
            pods_cgroup=layout.pods,
            best_effort_cgroup=layout.tier(QosClass.BEST_EFFORT),
            allocatable_cpu=node.allocatable.cpu if node else None,
            allocatable_memory=node.allocatable.memory if node else None,
        )

    def _cpus(self) -> tuple[Cpu, ...]:
        """They come and go, as where hyper-threads are switched off or a virtual machine gets more."""
        known = self._view.cpus
        return known if {cpu.id for cpu in known} == online(self._sys) else topology(self._sys)

    def _find(self, layout: Layout) -> list[Found]:
        """The pods that have cgroups, all of them watched: what came between the look and the watch is looked for again."""
        found: list[Found] | None = None
        while found != (seen := layout.find_pods(self.hierarchy)):
            found = seen
            folders = [*map(layout.tier, QosClass), *(there.path for there in found)]
            self._watch.follow(self.hierarchy.folder(folder, "cpu") for folder in folders)
        return found

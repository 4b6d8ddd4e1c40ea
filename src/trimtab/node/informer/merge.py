"""Merge three sources into one view of the pods: cgroups, kubelet and API server.

The cgroups decide which pods exist. The kubelet's recent description is preferred because it knows best what
runs; a deletion is accepted from either. Other pods are described by the API server, and a pod that neither
knows yet is in the view without a name, treated by its QoS class.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec import structs

from trimtab.api.nodeqospolicy import TierNamespacesSpec
from trimtab.kube.kinds.pods import Resources
from trimtab.node.cgroups import CgroupLayout, Hierarchy, parse_container_id
from trimtab.node.cgroups.layout import PodCgroup
from trimtab.node.informer.pods import KnownPod
from trimtab.node.model import TIER_LABEL, ContainerView, PodView, resolve_tier

_NO_RESOURCES = Resources()


def merge_known_pods(api: Iterable[KnownPod], kubelet: Mapping[str, KnownPod]) -> dict[str, KnownPod]:
    """Merge the pods of both sources, by the uid in their cgroup's name."""
    known = _index_api_pods(api)
    # A deletion is final, and until the next poll of the kubelet other pods would be evicted for the same memory.
    leaving = {uid for uid, pod in known.items() if pod.deleting}
    later = {uid: structs.replace(kubelet[uid], deleting=True) for uid in leaving & kubelet.keys()}
    return known | dict(kubelet) | later


def _index_api_pods(pods: Iterable[KnownPod]) -> dict[str, KnownPod]:
    """Index the API server's pods by the uid in their cgroup's name, without disputed claims of mirror pods.

    The API server assigns uids, but users can write the annotations of a mirror pod. If two pods claim one cgroup, its
    owner wins; if none of them owns it, none gets it: the kubelet describes it, or it stays without a name.
    """
    pods = tuple(pods)
    known = {pod.uid: pod for pod in pods if pod.cgroup_uid == pod.uid}
    claims = Counter(pod.cgroup_uid for pod in pods if pod.cgroup_uid != pod.uid)
    accepted = {uid for uid, count in claims.items() if count == 1 and uid not in known}
    return known | {pod.cgroup_uid: pod for pod in pods if pod.cgroup_uid in accepted}


def build_pod_views(
    found: Iterable[PodCgroup],
    known: Mapping[str, KnownPod],
    *,
    hierarchy: Hierarchy,
    layout: CgroupLayout,
    tier_namespaces: TierNamespacesSpec,
) -> tuple[PodView, ...]:
    """Build the pods of the view; `known` is by the uid in the cgroup's name."""
    return tuple(
        _build_known_pod(found_cgroup, pod, layout, hierarchy, tier_namespaces)
        if (pod := known.get(found_cgroup.uid)) is not None
        else _build_unknown_pod(found_cgroup, hierarchy)
        for found_cgroup in sorted(found)
    )


def _build_known_pod(
    found_cgroup: PodCgroup,
    known: KnownPod,
    layout: CgroupLayout,
    hierarchy: Hierarchy,
    tier_namespaces: TierNamespacesSpec,
) -> PodView:
    cgroups = [layout.container_path(found_cgroup.path, one.id) for one in known.containers]
    return PodView(
        uid=known.uid,
        namespace=known.namespace,
        name=known.name,
        tier=resolve_tier(
            dict(known.labels).get(TIER_LABEL), found_cgroup.qos, known.namespace, tier_namespaces
        ),
        qos=found_cgroup.qos,
        priority=known.priority,
        cgroup=found_cgroup.path,
        containers=tuple(
            ContainerView(
                name=one.name,
                id=one.id.rpartition("://")[2],
                resources=one.resources,
                cgroup=cgroup,
                spec_resources=one.spec_resources,
                inner_cgroup=layout.find_inner_path(cgroup, hierarchy),
            )
            for one, cgroup in zip(known.containers, cgroups, strict=True)
        ),
        labels=known.labels,
        annotations=known.annotations,
        started=float(known.started),
        deleting=known.deleting,
        is_node_bound=known.is_node_bound,
        pod_level_resources=known.pod_level_resources,
    )


def _build_unknown_pod(found_cgroup: PodCgroup, hierarchy: Hierarchy) -> PodView:
    ids = {
        name: found for name in hierarchy.children(found_cgroup.path) if (found := parse_container_id(name))
    }
    return PodView(
        uid=found_cgroup.uid,
        namespace="",
        name="",
        tier=resolve_tier(None, found_cgroup.qos, "", TierNamespacesSpec()),
        qos=found_cgroup.qos,
        priority=0,
        cgroup=found_cgroup.path,
        containers=tuple(
            ContainerView(
                name=found[:12], id=found, resources=_NO_RESOURCES, cgroup=f"{found_cgroup.path}/{name}"
            )
            for name, found in sorted(ids.items())
        ),
    )

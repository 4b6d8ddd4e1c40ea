"""One picture from three witnesses: the cgroups that are there, what the kubelet tells, what the API server tells.

The cgroups decide which pods there are. Of those that the kubelet told of lately it is believed, for it knows best
what runs, but that a pod is leaving either knows; of the rest the API server; and a pod that neither has told of yet is there without a name, treated as its
class is, until one of them does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import structs

from trimtab.kube.kinds.pods import Resources
from trimtab.node.cgroups import Hierarchy, Layout, container_id
from trimtab.node.cgroups.layout import Found
from trimtab.node.informer.pods import KnownPod
from trimtab.node.model import TIER_LABEL, ContainerView, PodView, tier_of

_NOTHING = Resources()


def believed(api: Iterable[KnownPod], kubelet: Mapping[str, KnownPod]) -> dict[str, KnownPod]:
    """What is known of pods, by what their cgroups are called by, of what both tell."""
    known = {pod.cgroup_uid: pod for pod in api}
    # Nobody takes a deletion back, and until the kubelet is asked again others would be sent away for the same memory.
    leaving = {uid for uid, pod in known.items() if pod.deleting}
    later = {uid: structs.replace(kubelet[uid], deleting=True) for uid in leaving & kubelet.keys()}
    return known | dict(kubelet) | later


def compose(
    found: Iterable[Found], known: Mapping[str, KnownPod], *, hierarchy: Hierarchy, layout: Layout
) -> tuple[PodView, ...]:
    """The pods of the picture; `known` is by what their cgroups are called by."""
    return tuple(
        _named(there, told, layout, hierarchy)
        if (told := known.get(there.uid)) is not None
        else _nameless(there, hierarchy)
        for there in sorted(found)
    )


def _named(there: Found, told: KnownPod, layout: Layout, hierarchy: Hierarchy) -> PodView:
    cgroups = [layout.container(there.path, one.id) for one in told.containers]
    return PodView(
        uid=told.uid,
        namespace=told.namespace,
        name=told.name,
        tier=tier_of(dict(told.labels).get(TIER_LABEL), there.qos),
        qos=there.qos,
        priority=told.priority,
        cgroup=there.path,
        containers=tuple(
            ContainerView(
                name=one.name,
                id=one.id.rpartition("://")[2],
                resources=one.resources,
                cgroup=cgroup,
                wanted=one.wanted,
                inner=layout.inner(cgroup, hierarchy),
            )
            for one, cgroup in zip(told.containers, cgroups, strict=True)
        ),
        labels=told.labels,
        annotations=told.annotations,
        started=float(told.started),
        deleting=told.deleting,
        of_node=told.of_node,
        whole=told.whole,
    )


def _nameless(there: Found, hierarchy: Hierarchy) -> PodView:
    ids = {name: found for name in hierarchy.children(there.path) if (found := container_id(name))}
    return PodView(
        uid=there.uid,
        namespace="",
        name="",
        tier=tier_of(None, there.qos),
        qos=there.qos,
        priority=0,
        cgroup=there.path,
        containers=tuple(
            ContainerView(name=found[:12], id=found, resources=_NOTHING, cgroup=f"{there.path}/{name}")
            for name, found in sorted(ids.items())
        ),
    )

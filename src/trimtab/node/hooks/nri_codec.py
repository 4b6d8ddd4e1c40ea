"""Translate between NRI messages and adjustments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from trimtab.node.hooks.adjustments import Adjustment, RuntimeContainer
from trimtab.node.hooks.messages import nri_pb2 as pb


def parse_container(
    pod: pb.PodSandbox, container: pb.Container, resources: pb.LinuxResources
) -> RuntimeContainer:
    cpu = resources.cpu
    return RuntimeContainer(
        namespace=pod.namespace,
        pod=pod.name,
        uid=pod.uid,
        container=container.name,
        labels=dict(pod.labels),
        annotations=dict(pod.annotations),
        cgroup_parent=pod.linux.cgroup_parent,
        quota=cpu.quota.value if cpu.HasField("quota") and cpu.quota.value > 0 else None,
        period=cpu.period.value or 100_000,
        cpus=cpu.cpus,
    )


def _build_resources(wanted: Adjustment) -> pb.LinuxResources:
    resources = pb.LinuxResources()
    if wanted.cpus is not None:
        resources.cpu.cpus = wanted.cpus
    if wanted.quota is not None:
        resources.cpu.quota.value = wanted.quota
    if wanted.cache_class is not None:
        resources.rdt_class.value = wanted.cache_class
    return resources


def build_adjustment(wanted: Adjustment) -> pb.ContainerAdjustment:
    return pb.ContainerAdjustment(
        env=[pb.KeyValue(key=key, value=value) for key, value in wanted.env.items()],
        linux=pb.LinuxContainerAdjustment(resources=_build_resources(wanted)),
    )


def build_update(container: str, wanted: Adjustment) -> pb.ContainerUpdate:
    linux = pb.LinuxContainerUpdate(resources=_build_resources(wanted))
    return pb.ContainerUpdate(container_id=container, linux=linux)


def build_updates(wanted: Iterable[tuple[pb.Container, Adjustment]]) -> list[pb.ContainerUpdate]:
    """Build updates that accompany another response, so the runtime is to ignore their failure.

    The runtime rewrites all resources of each updated container, so unchanged ones are omitted.
    """
    found = [build_update(container.id, change) for container, change in wanted if replace(change, env={})]
    for each in found:
        each.ignore_failure = True
    return found

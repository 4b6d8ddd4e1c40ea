"""Translate between CRI messages and adjustments."""

from __future__ import annotations

from trimtab.node.hooks.adjustments import Adjustment, RuntimeContainer
from trimtab.node.hooks.messages import cri_pb2 as pb

RDT_CLASS_ANNOTATION = "io.kubernetes.cri.rdt-class"
"""The annotation by which containerd and CRI-O know a container's class."""


def parse_create_request(request: pb.CreateContainerRequest) -> RuntimeContainer:
    """Return the container that the kubelet wants to create."""
    pod, config = request.sandbox_config, request.config
    return _build_container(
        pod, config.metadata.name, config.linux.resources, cgroup_parent=pod.linux.cgroup_parent
    )


def parse_update_request(
    pod: pb.PodSandbox, container: str, resources: pb.LinuxContainerResources
) -> RuntimeContainer:
    """Return an existing container with the resources that the kubelet wants to set.

    CRI does not provide the cgroup of its pod.
    """
    return _build_container(pod, container, resources, cgroup_parent="")


def _build_container(
    pod: pb.PodSandboxConfig | pb.PodSandbox,
    container: str,
    resources: pb.LinuxContainerResources,
    *,
    cgroup_parent: str,
) -> RuntimeContainer:
    return RuntimeContainer(
        namespace=pod.metadata.namespace,
        pod=pod.metadata.name,
        uid=pod.metadata.uid,
        container=container,
        labels=dict(pod.labels),
        annotations=dict(pod.annotations),
        cgroup_parent=cgroup_parent,
        quota=resources.cpu_quota if resources.cpu_quota > 0 else None,
        period=resources.cpu_period or 100_000,
        cpus=resources.cpuset_cpus,
    )


def adjust_create_request(request: pb.CreateContainerRequest, wanted: Adjustment) -> None:
    config = request.config
    adjust_resources(config.linux.resources, wanted)
    config.envs.extend(pb.KeyValue(key=key, value=value.encode()) for key, value in wanted.env.items())
    if wanted.cache_class is not None:
        config.annotations[RDT_CLASS_ANNOTATION] = wanted.cache_class


def adjust_resources(resources: pb.LinuxContainerResources, wanted: Adjustment) -> None:
    if wanted.cpus is not None:
        resources.cpuset_cpus = wanted.cpus
    if wanted.quota is not None:
        resources.cpu_quota = wanted.quota

"""Build records as informers make them, from the JSON that a server would send."""

from functools import cache
from typing import Any

import msgspec

from trimtab.kube.cache.projection import Projection, R
from trimtab.kube.kinds.policies import Policy, policy_projection
from trimtab.kube.kinds.workloads import Workload, workload_projection
from trimtab.kube.rest.resources import CRON_JOBS, DEPLOYMENTS, Resource

_POLICIES = policy_projection()


def project_object(shape: Projection[R], manifest: dict[str, Any]) -> R:
    """Return the record that an informer with this projection keeps of an object."""
    return shape.project(msgspec.json.decode(msgspec.json.encode(manifest), type=shape.wire_type))


@cache
def _workloads(resource: Resource) -> Projection[Workload]:
    return workload_projection(resource)


def workload(
    name: str = "web",
    *,
    namespace: str = "shop",
    resource: Resource = DEPLOYMENTS,
    labels: dict[str, str] | None = None,
    containers: tuple[dict[str, Any], ...] = (),
    parallelism: int | None = None,
    **metadata: Any,
) -> Workload:
    """A workload that was just made."""
    spec: dict[str, Any] = {"template": {"spec": {"containers": containers}}}
    if parallelism is not None:
        spec["parallelism"] = parallelism
    manifest = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"{resource.plural}/{namespace}/{name}",
            "resourceVersion": "1",
            "labels": labels or {},
            **metadata,
        },
        "spec": {"jobTemplate": {"spec": spec}} if resource == CRON_JOBS else spec,
    }
    return project_object(_workloads(resource), manifest)


def policy(
    name: str = "default", *, namespace: str = "trimtab-system", generation: int = 1, **spec: Any
) -> Policy:
    """A policy, with its spec as people write it: `policy(weight=7, selector={…})`."""
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"policy/{namespace}/{name}",
        "resourceVersion": str(generation),
        "generation": generation,
    }
    return project_object(_POLICIES, {"metadata": metadata, "spec": spec})

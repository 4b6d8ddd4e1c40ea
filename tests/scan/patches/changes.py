"""Build changes for the tests of renderers and editors."""

from typing import Any

from harness.builders.records import workload
from trimtab.actuation.resources import container_sizes
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.rest.resources import DEPLOYMENTS, Resource
from trimtab.scan.patches.change import ResourceChange

MIB = 2**20


def container(name: str, cpu: str = "1", memory: str = "1Gi", limit: str = "2Gi") -> dict[str, Any]:
    return {
        "name": name,
        "resources": {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": limit}},
    }


def change(
    name: str = "web",
    *containers: dict[str, Any],
    resource: Resource = DEPLOYMENTS,
    namespace: str = "shop",
    after: dict[str, Resources] | None = None,
    labels: dict[str, str] | None = None,
    min_change: float = 0.0,
) -> ResourceChange:
    """Return a change of each container to 100m, 64Mi and a limit of 128Mi, or to `after`."""
    found = workload(
        name,
        namespace=namespace,
        resource=resource,
        labels=labels,
        containers=containers or (container("web"),),
    )
    now = container_sizes(found.containers)
    wanted = after or dict.fromkeys(now, Resources(100, None, 64 * MIB, 128 * MIB))
    return ResourceChange(found, now, wanted, min_change)

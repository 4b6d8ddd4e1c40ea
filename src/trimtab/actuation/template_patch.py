"""Build the patch of a pod template from the sizes of a workload. Applying, previewing and printing all use
it.

Containers are merged by name, as built-in kinds do; fields that are left out of the patch stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable

from trimtab.actuation.resources import Sizes, to_manifest
from trimtab.kube.kinds.pods import Container, Resources
from trimtab.kube.kinds.workloads import Workload
from trimtab.kube.rest.client import Object


def build_template_patch(workload: Workload, sizes: Sizes, *, removing_from: Sizes | None = None) -> Object:
    """Return a patch of the pod template, which a CronJob keeps in the template of its Jobs.

    With `removing_from`, fields that those sizes have and the wanted ones do not have are set to null, so
    that a merge removes them.
    """
    main, sidecars = split_by_role(workload.containers, sizes, removing_from=removing_from)
    containers: Object = {"containers": main} if main or not sidecars else {}
    if sidecars:
        containers["initContainers"] = sidecars
    spec: Object = {"template": {"spec": containers}}
    return {"spec": {"jobTemplate": {"spec": spec}} if workload.kind == "CronJob" else spec}


def split_by_role(
    containers: Iterable[Container], sizes: Sizes, *, removing_from: Sizes | None = None
) -> tuple[list[Object], list[Object]]:
    """Return the main containers and the sidecars, which a manifest keeps in two lists."""
    found: dict[str, list[Object]] = {"main": [], "sidecar": [], "init": []}
    for each in containers:
        if each.name in sizes:
            resources = to_manifest(sizes[each.name])
            for kind, what in list_removed((removing_from or {}).get(each.name), sizes[each.name]):
                resources.setdefault(kind, {})[what] = None
            found[each.role].append({"name": each.name, "resources": resources})
    return found["main"], found["sidecar"]


def list_removed(current: Resources | None, wanted: Resources) -> list[tuple[str, str]]:
    """List the requests and limits that exist and are no longer wanted, as a manifest names them."""
    had, has = to_manifest(current or Resources()), to_manifest(wanted)
    return [
        (kind, what) for kind, amounts in had.items() for what in amounts if what not in has.get(kind, {})
    ]

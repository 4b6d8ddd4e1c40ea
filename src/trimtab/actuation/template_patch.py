"""The sizes of a workload as a patch of its pod template: the one spelling for whoever applies, previews or prints it.

Containers are named and merged by name, which built-in kinds do; what is left out of the patch stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable

from trimtab.actuation.resources import Sizes, to_manifest
from trimtab.kube.kinds.pods import Container, Resources
from trimtab.kube.kinds.workloads import Workload
from trimtab.kube.rest.client import Object


def build_template_patch(workload: Workload, sizes: Sizes, *, removing_from: Sizes | None = None) -> Object:
    """A patch of the pod template, which a CronJob keeps in the template of its jobs.

    With `removing_from`, what these sizes have and the wanted ones have not is named as null: a merge takes it away.
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
    """Main containers and sidecars, which are kept in two lists."""
    found: dict[str, list[Object]] = {"main": [], "sidecar": [], "init": []}
    for each in containers:
        if each.name in sizes:
            resources = to_manifest(sizes[each.name])
            for kind, what in list_removed((removing_from or {}).get(each.name), sizes[each.name]):
                resources.setdefault(kind, {})[what] = None
            found[each.role].append({"name": each.name, "resources": resources})
    return found["main"], found["sidecar"]


def list_removed(current: Resources | None, wanted: Resources) -> list[tuple[str, str]]:
    """Which requests and limits are there and not wanted, as a manifest names them."""
    had, has = to_manifest(current or Resources()), to_manifest(wanted)
    return [
        (kind, what) for kind, amounts in had.items() for what in amounts if what not in has.get(kind, {})
    ]

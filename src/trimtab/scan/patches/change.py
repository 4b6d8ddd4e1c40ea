"""What is to change in one workload's template: the sizes that it has and those that it should have.

Against the template and not against the pods, for the template is what people keep in files. A container that is not
in it, as a mesh injects them, is left out, and so is one that has what it should.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from trimtab.actuation.resources import container_sizes
from trimtab.actuation.template_patch import build_template_patch
from trimtab.kube.kinds.pods import Resources
from trimtab.kube.kinds.workloads import BUILT_IN, Workload
from trimtab.kube.rest.client import Object
from trimtab.scan.model import ContainerFinding, WorkloadFinding


@dataclass(frozen=True, slots=True)
class ResourceChange:
    """A workload, and of its containers that are to change, by name, what they have and what they should have."""

    workload: Workload
    before: Mapping[str, Resources]
    after: Mapping[str, Resources]

    @property
    def blocked_reason(self) -> str:
        """Why its object in the cluster cannot be patched; empty when it can."""
        if self.workload.kind == "Job":
            return "the template of a Job cannot be changed; change what makes the Job"
        if self.workload.resource not in BUILT_IN:
            return "only built-in kinds merge containers by name; edit its manifest (--format manifests)"
        return ""

    @property
    def path(self) -> str:
        """Where it is, as a name to print or to make file names of."""
        return f"{self.workload.namespace}/{self.workload.kind.lower()}/{self.workload.name}"

    @property
    def patch(self) -> Object:
        """The strategic-merge patch of its object."""
        named = {"name": self.workload.name, "namespace": self.workload.namespace}
        resource = self.workload.resource
        return {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": named,
            **build_template_patch(self.workload, self.after, removing_from=self.before),
        }


def build_change(found: WorkloadFinding) -> ResourceChange | None:
    """What is to change in a workload; None when nothing is."""
    now = container_sizes(found.workload.containers)
    wanted = {
        each.name: _build_template_target(now[each.name], each)
        for each in found.containers
        if each.name in now and each.recommendation.no_change_reason is None
    }
    after = {name: resources for name, resources in wanted.items() if resources != now[name]}
    return ResourceChange(found.workload, {name: now[name] for name in after}, after) if after else None


def missing_containers_reason(found: WorkloadFinding) -> str:
    """Say which containers should change and are not in the workload's own template; empty when all are in it."""
    now = container_sizes(found.workload.containers)
    names = [each.name for each in found.containers if each.name not in now and each.has_changes]
    if not names:
        return ""
    which = f"{'containers' if len(names) > 1 else 'container'} {', '.join(names)}"
    if now:
        return f"{which}: not in its template, but added to its pods; change what adds it"
    made = " and ".join(map(str, found.owned)) or "its pods"
    return (
        f"{which}: its controller makes {made}, and would undo a change there; set the resources in the "
        f"{found.workload.kind}'s own spec, or let the operator resize its pods in place"
    )


def _build_template_target(now: Resources, found: ContainerFinding) -> Resources:
    """What it should have, but for what the template leaves to a LimitRange and may go on leaving to it."""
    left = {
        field: None
        for field in Resources.__struct_fields__
        if getattr(now, field) is None and getattr(found.current, field) == getattr(found.recommended, field)
    }
    return msgspec.structs.replace(found.recommended, **left)

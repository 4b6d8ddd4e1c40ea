"""The change of one workload's template: current and recommended sizes, also as the nested amounts of a manifest.

The template is compared, not the pods, because users keep templates in files. Containers that are not in the template,
such as injected sidecars, and containers without a change are omitted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import msgspec
from yaml.nodes import Node

from trimtab.actuation.resources import build_template_patch, container_sizes, list_removed, to_manifest
from trimtab.api.errors import QuantityError
from trimtab.api.quantity import ResourceName, parse_memory_bytes, parse_millicores
from trimtab.kube.kinds.pods import RequestLimit, Resources
from trimtab.kube.kinds.workloads import BUILT_IN, Workload
from trimtab.kube.rest.client import Object
from trimtab.plural import format_time_span
from trimtab.scan.model import ContainerFinding, WorkloadFinding
from trimtab.scan.patches.yaml_edit import DesiredValue, find_child, scalar_text
from trimtab.sizing.policy_rules import PolicyRules, SafetyDefaults

MIN_CHANGES: Mapping[ResourceName, int] = {
    "cpu": SafetyDefaults().min_cpu_change,
    "memory": SafetyDefaults().min_memory_change,
}
"""The difference in millicores and bytes below which an amount in a file stays, however small it is."""


@dataclass(frozen=True, slots=True)
class ResourceChange:
    """A workload with the current and recommended resources of each container that changes, by name."""

    workload: Workload
    before: Mapping[str, Resources]
    after: Mapping[str, Resources]
    min_change: float = 0.0
    """The share of the recommendation by which an amount in a file must differ from it to be worth an edit."""
    confidence: str = "high"
    """The confidence in the recommendation: low, medium or high."""
    observed_seconds: float = math.inf
    """The length of the usage history behind the recommendation."""

    def is_near(self, resource: ResourceName, amounts: RequestLimit, wanted: RequestLimit) -> bool:
        """Return whether a file's request and limit are too near to the recommendation to be worth an edit."""
        if not self.min_change:
            return amounts == wanted
        least = MIN_CHANGES[resource]
        return all(
            amount == want
            or (
                amount is not None
                and want is not None
                and abs(amount - want) < max(least, want * self.min_change)
            )
            for amount, want in zip(amounts, wanted, strict=True)
        )

    @property
    def blocked_reason(self) -> str:
        """The reason why the object in the cluster cannot be patched; empty if it can."""
        if self.workload.kind == "Job":
            return "the template of a Job is immutable; change what creates the Job"
        if self.workload.resource not in BUILT_IN:
            return "only built-in kinds merge containers by name; edit its manifest (--format manifests)"
        return ""

    @property
    def basis(self) -> str:
        """The confidence in the recommendation with its reason, as users read it."""
        return f"{self.confidence} confidence, {format_time_span(self.observed_seconds)} of usage"

    @property
    def path(self) -> str:
        """The path of the workload, to print or to build file names from."""
        return f"{self.workload.namespace}/{self.workload.kind.lower()}/{self.workload.name}"

    @property
    def patch(self) -> Object:
        """The strategic-merge patch of the object."""
        named = {"name": self.workload.name, "namespace": self.workload.namespace}
        resource = self.workload.resource
        return {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": named,
            **build_template_patch(self.workload, self.after, removing_from=self.before),
        }


def build_change(found: WorkloadFinding) -> ResourceChange | None:
    """Build the change of a workload; None if nothing changes."""
    now = container_sizes(found.workload.containers)
    wanted = {
        each.name: _build_template_target(now[each.name], each)
        for each in found.containers
        if each.name in now and each.recommendation.no_change_reason is None
    }
    after = {name: resources for name, resources in wanted.items() if resources != now[name]}
    if not after:
        return None
    # No change is too small for a container at risk.
    is_at_risk = any(each.risks for each in found.containers)
    rules = found.policy or PolicyRules()
    min_change = 0.0 if is_at_risk else rules.minimum_change
    return ResourceChange(
        found.workload,
        {name: now[name] for name in after},
        after,
        min_change,
        found.confidence,
        found.observed_seconds,
    )


def missing_containers_reason(found: WorkloadFinding) -> str:
    """Name the containers that should change but are not in the workload's template; empty if there are none."""
    now = container_sizes(found.workload.containers)
    names = [each.name for each in found.containers if each.name not in now and each.has_changes]
    if not names:
        return ""
    which = f"{'containers' if len(names) > 1 else 'container'} {', '.join(names)}"
    if now:
        return f"{which}: not in the template, but injected into the pods; change what injects it"
    made = " and ".join(map(str, found.owned)) or "its pods"
    return (
        f"{which}: the controller creates {made} and would undo a change there; set the resources in the "
        f"{found.workload.kind}'s own spec, or let the operator resize its pods in place"
    )


def _build_template_target(now: Resources, found: ContainerFinding) -> Resources:
    """Build the recommended resources, without amounts that the template leaves to a LimitRange and that do not change."""
    unset = {
        field: None
        for field in Resources.__struct_fields__
        if getattr(now, field) is None and getattr(found.current, field) == getattr(found.recommended, field)
    }
    return msgspec.structs.replace(found.recommended, **unset)


_VARIABLE = re.compile(r"\$\{\s*(\w+)")
"""The start of a variable that Flux substitutes: ${WEB_CPU:=500m}."""
_KINDS = ("requests", "limits")


@dataclass(slots=True)
class AmountEdits:
    """The amounts to write at one place of a file, and the amounts that are not written, each with the reason."""

    amounts: dict[str, dict[str, DesiredValue]]
    variables: list[str] = field(default_factory=list)
    """The amounts that a variable sets, which has to change elsewhere."""
    differences: list[str] = field(default_factory=list)
    """The amounts that the file and the cluster disagree about."""


def plan_amounts(
    there: Node | None, change: ResourceChange, container: str, *, gone: str | None = None
) -> AmountEdits:
    """Plan the edit of a container's resources in a file, with `gone` for each amount to remove.

    `there` is the value of `resources` in the file. What is near enough to the recommendation stays, or the same
    command would edit the same files again after each small move of the recommendation.
    """
    before = change.before[container]
    present = parse_resources(there)
    after = change.after[container] if present is None else _keep_near_amounts(present, change, container)
    plan = AmountEdits(_build_amounts(before, after, gone=gone))
    unchanged = to_manifest(before)
    for kind in _KINDS:
        for what, new in [*plan.amounts.get(kind, {}).items()]:
            written = scalar_text(find_child(there, kind, what))
            deployed = unchanged.get(kind, {}).get(what)
            if variable := _VARIABLE.search(written):
                del plan.amounts[kind][what]
                # A variable whose amount is already right needs no word.
                if new != deployed:
                    remedy = f"set {variable[1]} to {new}" if new else "remove it by hand"
                    plan.variables.append(f"{kind}.{what} is the variable {written}; {remedy}")
            elif not _is_same(what, written, new) and not _is_same(what, written, deployed):
                plan.differences.append(
                    f"{kind}.{what} is {written or 'not set'} in the file and {deployed or 'not set'} in the cluster"
                )
    plan.amounts = {kind: amounts for kind, amounts in plan.amounts.items() if amounts}
    return plan


def parse_resources(node: Node | None) -> Resources | None:
    """Parse the resources of a YAML node; None if they are not quantities."""
    parse = partial(_parse_amount, node)
    try:
        return Resources(
            parse("requests", "cpu"),
            parse("limits", "cpu"),
            parse("requests", "memory"),
            parse("limits", "memory"),
        )
    except QuantityError:
        return None


def _parse_amount(node: Node | None, kind: str, what: str) -> int | None:
    text = scalar_text(find_child(node, kind, what))
    # A variable's amount is unknown, and says nothing about the amounts beside it.
    return None if not text or _VARIABLE.search(text) else _to_amount(what, text)


def _to_amount(what: str, text: str) -> int:
    return parse_millicores(text) if what == "cpu" else parse_memory_bytes(text)


def _is_same(what: str, written: str, wanted: DesiredValue) -> bool:
    if not written or not isinstance(wanted, str) or wanted == "null":
        return not written and (wanted is None or wanted == "null")
    try:
        return _to_amount(what, written) == _to_amount(what, wanted)
    except QuantityError:
        return False


def _keep_near_amounts(present: Resources, change: ResourceChange, container: str) -> Resources:
    """Return the recommendation, with the file's amounts for each resource that is near enough to it."""
    after = change.after[container]
    # Both or none: a request that moves alone could pass its limit, or change the QoS class.
    return Resources.from_pairs(
        present.cpu if change.is_near("cpu", present.cpu, after.cpu) else after.cpu,
        present.memory if change.is_near("memory", present.memory, after.memory) else after.memory,
    )


def _build_amounts(
    before: Resources, after: Resources, *, gone: str | None = None
) -> dict[str, dict[str, DesiredValue]]:
    found: dict[str, dict[str, DesiredValue]] = {
        kind: dict(amounts) for kind, amounts in to_manifest(after).items()
    }
    for kind, what in list_removed(before, after):
        found.setdefault(kind, {})[what] = gone
    return found

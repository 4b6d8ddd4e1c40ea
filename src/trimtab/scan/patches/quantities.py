"""Decide which amounts in a user's file change: from its nested amounts to resources, and back."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import partial

from yaml.nodes import Node

from trimtab.actuation.resources import list_removed, to_manifest
from trimtab.api.errors import QuantityError
from trimtab.api.quantity import parse_memory_bytes, parse_millicores
from trimtab.kube.kinds.pods import Resources
from trimtab.scan.patches.change import ResourceChange
from trimtab.scan.patches.yaml_edit import DesiredValue, find_child, scalar_text

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

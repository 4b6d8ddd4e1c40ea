"""Convert between resources and the nested amounts of a manifest."""

from __future__ import annotations

from yaml.nodes import Node

from trimtab.actuation.resources import to_manifest
from trimtab.actuation.template_patch import list_removed
from trimtab.api.errors import QuantityError
from trimtab.api.quantity import parse_memory_bytes, parse_millicores
from trimtab.kube.kinds.pods import Resources
from trimtab.scan.patches.yaml_edit import DesiredValue, find_child, scalar_text


def build_amounts(
    before: Resources, after: Resources, *, gone: str | None = None
) -> dict[str, dict[str, DesiredValue]]:
    """Build the value of `resources`, with `gone` for each amount to remove."""
    found: dict[str, dict[str, DesiredValue]] = {
        kind: dict(amounts) for kind, amounts in to_manifest(after).items()
    }
    for kind, what in list_removed(before, after):
        found.setdefault(kind, {})[what] = gone
    return found


def parse_resources(node: Node | None) -> Resources | None:
    """Parse the resources of a YAML node; None if they are not quantities."""

    def parse_amount(kind: str, what: str) -> int | None:
        text = scalar_text(find_child(node, kind, what))
        if not text:
            return None
        return parse_millicores(text) if what == "cpu" else parse_memory_bytes(text)

    try:
        return Resources(
            parse_amount("requests", "cpu"),
            parse_amount("limits", "cpu"),
            parse_amount("requests", "memory"),
            parse_amount("limits", "memory"),
        )
    except QuantityError:
        return None

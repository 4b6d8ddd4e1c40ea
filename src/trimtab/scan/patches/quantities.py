"""Sizes as the nested amounts of a manifest: to put into somebody's YAML, and to know them there."""

from __future__ import annotations

from yaml.nodes import Node

from trimtab.actuation.resources import written
from trimtab.actuation.template_patch import removed
from trimtab.api.errors import QuantityError
from trimtab.api.quantity import memory_bytes, millicores
from trimtab.kube.kinds.pods import Resources
from trimtab.scan.patches.yaml_edit import Wanted, child, plain


def wanted(before: Resources, after: Resources, *, gone: str | None = None) -> dict[str, dict[str, Wanted]]:
    """Build what is to stand under `resources`, with `gone` for each amount that is to be removed."""
    found: dict[str, dict[str, Wanted]] = {kind: dict(amounts) for kind, amounts in written(after).items()}
    for kind, what in removed(before, after):
        found.setdefault(kind, {})[what] = gone
    return found


def resources_at(node: Node | None) -> Resources | None:
    """The resources that stand in a YAML text; None where these are no amounts."""

    def amount(kind: str, what: str) -> int | None:
        text = plain(child(node, kind, what))
        if not text:
            return None
        return millicores(text) if what == "cpu" else memory_bytes(text)

    try:
        return Resources(
            amount("requests", "cpu"),
            amount("limits", "cpu"),
            amount("requests", "memory"),
            amount("limits", "memory"),
        )
    except QuantityError:
        return None

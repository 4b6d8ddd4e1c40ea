"""Amounts of CPU and memory as text, in the three forms that users see.

| form | example | where |
|---|---|---|
| exact | `2`, `1500m`, `1536Mi` | manifests, statuses, JSON: Kubernetes' canonical form |
| step | `2000m`, `1536Mi`, `0.5Mi` | explanations: one unit, so that the sides of `2000m -> 500m` compare at a glance |
| short | `1.5`, `250m`, `12.5Gi` | tables and pages: at most three digits that matter |
"""

from __future__ import annotations

from trimtab.api.quantity import GIB, MIB, Quantity, ResourceName

UNSET = "none"
"""The text of an amount that is not set."""


def format_exact(resource: ResourceName, amount: int | None) -> str:
    """Format millicores or bytes exactly, as Kubernetes writes them."""
    if amount is None:
        return UNSET
    return str(Quantity.from_millicores(amount) if resource == "cpu" else Quantity.from_bytes(amount))


def format_step(resource: ResourceName, amount: int | None) -> str:
    """Format an amount in millicores or MiB."""
    if amount is None:
        return UNSET
    if resource == "cpu":
        return f"{amount}m"
    return f"{amount // MIB}Mi" if amount % MIB == 0 else f"{amount / MIB:.1f}Mi"


def format_short(resource: ResourceName, amount: float | None) -> str:
    """Format millicores or bytes short enough for a table: whole units below one core or GiB, three digits above."""
    if amount is None:
        return UNSET
    small, unit, large = (1, "m", 1000) if resource == "cpu" else (MIB, "Mi", GIB)
    if not amount:
        return "0"
    if amount < large:
        return f"{amount / small:.0f}{unit}"
    number = amount / large
    text = f"{number:,.0f}" if number >= 100 or amount % large == 0 else f"{number:.3g}"
    return text if resource == "cpu" else f"{text}Gi"

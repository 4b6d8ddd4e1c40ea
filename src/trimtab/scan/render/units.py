"""Format amounts for people, short enough for a table: 250m, 1.5, 512Mi, 2.5Gi, $1,204."""

from __future__ import annotations

from trimtab.sizing.recommendation import MIB

GIB = 2**30


def format_cpu(millicores: float | None) -> str:
    """Format CPU as `250m` below one core, and in cores above."""
    if millicores is None:
        return "none"
    if millicores < 1000:
        return f"{millicores:.0f}m"
    cores = millicores / 1000
    return f"{cores:,.0f}" if cores >= 100 or millicores % 1000 == 0 else f"{cores:.3g}"


def format_memory(count: float | None) -> str:
    """Format memory as `512Mi` below one GiB, and as `12.5Gi` above."""
    if count is None:
        return "none"
    if count < GIB:
        return f"{count / MIB:.0f}Mi"
    gib = count / GIB
    return f"{gib:,.0f}Gi" if gib >= 100 or count % GIB == 0 else f"{gib:.3g}Gi"


def format_money(amount: float, currency: str = "$") -> str:
    """Format money, with cents below 100."""
    sign = "-" if amount < 0 else ""
    size = abs(amount)
    return f"{sign}{currency}{size:,.0f}" if size >= 100 else f"{sign}{currency}{size:,.2f}"


def format_share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole > 0 else "-"

"""Format money and shares for people: $1,204, 37%."""

from __future__ import annotations


def format_money(amount: float, currency: str = "$") -> str:
    """Format money, with cents below 100."""
    sign = "-" if amount < 0 else ""
    size = abs(amount)
    return f"{sign}{currency}{size:,.0f}" if size >= 100 else f"{sign}{currency}{size:,.2f}"


def format_share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole > 0 else "-"

"""Format numbers with the noun they count: 1 pod, 2 pods, 1,234 series, 14 days, 30 minutes."""


def pluralize(number: float, one: str, many: str = "") -> str:
    """Format a number with its noun; `many` is the plural if it is not `one` plus s."""
    written = f"{number:,}" if isinstance(number, int) else f"{number:g}"
    return f"{written} {one if number == 1 else many or f'{one}s'}"


def format_time_span(seconds: float) -> str:
    """Format a duration in its largest unit: days, hours or minutes."""
    for unit, length in (("day", 86400.0), ("hour", 3600.0)):
        if seconds >= length:
            return pluralize(round(seconds / length, 1), unit)
    return pluralize(round(seconds / 60, 1), "minute")

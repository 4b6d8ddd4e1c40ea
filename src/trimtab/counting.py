"""A number before what it counts, as people write it: 1 pod, 2 pods, 1,234 series."""


def counted(number: float, one: str, many: str = "") -> str:
    """`many` where it takes more than an s to make it of `one`."""
    written = f"{number:,}" if isinstance(number, int) else f"{number:g}"
    return f"{written} {one if number == 1 else many or f'{one}s'}"

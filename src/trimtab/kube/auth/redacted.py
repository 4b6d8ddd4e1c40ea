"""Text that must not be seen.

Tokens, passwords and keys pass through records that get printed, logged and shown in tracebacks. Wrapped in
a `Secret` they show as dots wherever they end up; only the line that puts one on the wire calls `reveal()`.
It guards against mistakes, not against code that wants to look.
"""

from typing import Any


class RedactedText:
    """Text that shows as dots."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text itself."""
        return self._text

    def __repr__(self) -> str:
        return "Secret(…)"

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RedactedText) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


def decode_redacted(kind: type, value: Any) -> Any:
    """A msgspec `dec_hook` that reads text into a Secret."""
    if kind is not RedactedText:
        raise NotImplementedError
    if not isinstance(value, str):
        raise TypeError(f"Expected `str`, got `{type(value).__name__}`")
    return RedactedText(value)

"""Text that must not appear in output.

Tokens, passwords and keys pass through records that get printed, logged and shown in tracebacks. As `RedactedText`
they show as an ellipsis everywhere; only the line that sends one calls `reveal()`. The type protects against
mistakes, not against hostile code.
"""

from typing import Any


class RedactedText:
    """Text whose repr hides it."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """Return the text itself."""
        return self._text

    def __repr__(self) -> str:
        return "RedactedText(…)"

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RedactedText) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)


def decode_redacted(kind: type, value: Any) -> Any:
    """Decode text into RedactedText, as a msgspec `dec_hook`."""
    if kind is not RedactedText:
        raise NotImplementedError
    if not isinstance(value, str):
        raise TypeError(f"Expected `str`, got `{type(value).__name__}`")
    return RedactedText(value)

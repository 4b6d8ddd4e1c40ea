"""Make text that others wrote safe to print: one line, without terminal control sequences."""

from __future__ import annotations


def escape_invisible(text: str) -> str:
    r"""Replace line breaks, control and formatting characters by escapes such as `\n` and `\u202e`.

    Names, annotations and answers of servers come from other people: a line break in one of them would end a comment
    of a YAML document, and an escape sequence would rewrite a terminal.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "backslashreplace").decode()
        for char in text
    )


def shorten(text: str, length: int) -> str:
    """Return one printable line of at most this length; an ellipsis replaces what is cut off."""
    # Escapes are up to ten characters long, so the rest of a long text need not be escaped.
    printable = escape_invisible(text[: length + 1])
    return printable if len(printable) <= length else printable[: length - 1] + "…"

"""Make text that others wrote safe to print: one line, without terminal control sequences."""

from __future__ import annotations


def escape_invisible(text: str) -> str:
    r"""Replace line breaks, control and formatting characters by escapes such as `\n` and `\u202e`.

    Names, annotations and answers of servers come from other people: a line break in one of them would end a comment
    of a YAML document, and an escape sequence would rewrite a terminal.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)

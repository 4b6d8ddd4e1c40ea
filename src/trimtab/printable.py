"""Make text that others wrote safe to print: one line, without terminal control sequences."""

from __future__ import annotations

import unicodedata

_INVISIBLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Categories of characters that break a line, control a terminal, or reorder and hide what a person reads."""


def escape_invisible(text: str) -> str:
    r"""Replace line breaks, control and formatting characters by escapes such as `\n` and `\u202e`.

    Names, annotations and answers of servers come from other people: a line break in one of them would end a comment
    of a YAML document, and an escape sequence would rewrite a terminal.
    """
    if text.isprintable():
        return text
    return "".join(
        char.encode("unicode_escape").decode() if unicodedata.category(char) in _INVISIBLE else char
        for char in text
    )

"""Estimate what the parser of PromQL spends on compiling a regular expression, without compiling it. Pure.

The parser compiles every regular expression of a query, up to 10 MB each: a few hundred characters that repeat classes of
Unicode take seconds and a gigabyte. The estimate is one linear scan that errs upwards.
"""

from __future__ import annotations

import re

from trimtab.errors import TrimtabError

# A character counts 1, which is 0.2 microseconds. These are `\pL` and `\w`, `\d` and `\s`, `.` and `[a-z]`, a set with
# letters beyond ASCII that ignores case, a character that does, and a group.
_UNICODE_CLASS, _DIGITS, _SET, _FOLDED_SET, _FOLDED, _GROUP = 1000, 100, 20, 5000, 8, 4
_UNBOUNDED = 1_000_000_000

_TOKEN = re.compile(
    r"""(?P<set>\[\^?\]?(?:\[:\^?[a-z]+:\]|\\.|[^\]\[\\])*\])|(?P<escape>\\[pP](?:\{[^}]*\}|.)|\\[xuU]\{[^}]*\}|\\.)|
    (?P<flags>\(\?[a-zA-Z-]*[:)])|(?P<open>\((?:\?P?<\w*>)?)|(?P<close>\))|
    (?P<repeat>\{\s*(?P<least>\d*)\s*,?\s*(?P<most>\d*)\s*\})|(?P<nested>\[)|(?P<any>\.)|(?P<other>.)""",
    re.DOTALL | re.VERBOSE,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


class CostlyRegexError(TrimtabError):
    """A regular expression whose cost cannot be estimated; the message has the reason."""


def estimate_regex_cost(pattern: str) -> int:
    """Estimate the cost of a regular expression in characters; raise CostlyRegexError if that is impossible."""
    ignores_case = False
    groups = [0]
    """The cost of each group that is open, the outermost first."""
    last = 0
    """The cost of the last item, which a repetition multiplies."""
    for token in _TOKEN.finditer(pattern):
        text = token.group()
        match token.lastgroup:
            case "flags":
                if "x" in text:
                    # Its comments would hide brackets from this scan.
                    raise CostlyRegexError("has the flag x; write the regular expression without spaces")
                ignores_case = ignores_case or "i" in text
                last = 0
                if text.endswith(":"):
                    groups.append(_GROUP)
            case "open":
                groups.append(_GROUP)
                last = 0
            case "close":
                last = groups.pop() if len(groups) > 1 else groups[0]
                groups[-1] += last
            case "repeat":
                count = max(_count(token["least"]), _count(token["most"]), 1)
                groups[-1] += last * (count - 1)
                last *= count
            case "nested":
                raise CostlyRegexError("has a [ within a set; write it as \\[")
            case kind:
                last = _item_cost(str(kind), text, ignores_case=ignores_case)
                groups[-1] += last
        if last > _UNBOUNDED:
            return last
    return sum(groups)


def _item_cost(kind: str, text: str, *, ignores_case: bool) -> int:
    match kind:
        case "set":
            classes = sum(_escape_cost(found[1]) for found in _ESCAPED.finditer(text))
            # A range within ASCII folds to few letters, any other to thousands.
            is_folded = ignores_case and (not text.isascii() or "\\" in text)
            beyond_ascii = sum(not char.isascii() for char in text)
            return _SET + classes + 2 * beyond_ascii + (_FOLDED_SET if is_folded else 0)
        case "escape":
            return _escape_cost(text[1])
        case "any":
            return _SET
    return _FOLDED if ignores_case else 1 + (not text.isascii())


def _escape_cost(letter: str) -> int:
    if letter in "pPwWbB":
        return _UNICODE_CLASS
    return _DIGITS if letter in "dDsSxuU" else 1


def _count(digits: str) -> int:
    return int(digits[:7] or 0)

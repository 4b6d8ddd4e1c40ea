"""Check the language of the product: names, docstrings and user-facing strings.

    python -m tools.language     # lists every place that breaks a rule, and fails if there are any

The rules are those of CONTRIBUTING.md: no retired words, docstrings with a subject and a verb, whole sentences.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from tools.texts import ROOT, docstrings, source_files, user_strings

MAX_ODD_OPENINGS = 0.03
"""The share of docstrings that may open with a question word; some summaries read best that way."""
ODD_OPENING = re.compile(
    r"^(what|how|whether|who|whom|whose|of|by|where|when|why|which|that|to whom|from whom|for whom)\b",
    re.IGNORECASE,
)
FRAGMENT = re.compile(r"^(and|or|but|nor|,|;)\b|[,;:]$")


@dataclass(frozen=True, slots=True)
class RetiredWords:
    """The retired words and the phrases in which they are normal English."""

    words: re.Pattern[str]
    allowed: re.Pattern[str]

    @classmethod
    def load(cls) -> RetiredWords:
        """Read the committed list."""
        lines = [
            line.strip()
            for line in (ROOT / "tools" / "retired_words.txt").read_text().splitlines()
            if line.strip() and not line.startswith("#")
        ]
        allowed = [line.removeprefix("allow ") for line in lines if line.startswith("allow ")]
        words = [line for line in lines if not line.startswith("allow ")]
        return cls(_any_of(words), _any_of(allowed))

    def find(self, text: str) -> str | None:
        """Return the first retired word of a text, or None."""
        found = self.words.search(self.allowed.sub("", " ".join(text.split())))
        return found[0] if found else None


def _any_of(expressions: list[str]) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(expressions)})\b", re.IGNORECASE)


def check() -> Iterator[str]:
    """Yield a line for each place that breaks a rule."""
    retired = RetiredWords.load()
    odd: list[str] = []
    total = 0
    for path in source_files():
        tree, place = ast.parse(path.read_text()), str(path.relative_to(ROOT))
        yield from _check_names(tree, place, retired)
        for line, text in docstrings(tree):
            total += 1
            yield from _check_docstring(f"{place}:{line}", text, retired)
            if ODD_OPENING.match(text):
                odd.append(f"{place}:{line}: docstring opens with a question word: {text[:80]}")
    for string in user_strings():
        if word := retired.find(string.content):
            yield f"{string}  <- retired word {word!r}"
    if len(odd) > MAX_ODD_OPENINGS * total:
        yield from odd


def _check_docstring(place: str, text: str, retired: RetiredWords) -> Iterator[str]:
    first = text.split("\n", 1)[0].strip()
    if word := retired.find(text):
        yield f"{place}: retired word {word!r} in a docstring: {first[:80]}"
    if FRAGMENT.search(first) or first[:1].islower():
        yield f"{place}: docstring is a fragment: {first[:80]}"


def _check_names(tree: ast.Module, place: str, retired: RetiredWords) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", node.name).replace("_", " ")
            if word := retired.find(words):
                yield f"{place}:{node.lineno}: retired word {word!r} in the name {node.name}"


def main() -> int:
    """Print the findings; the exit status is 1 if there are any."""
    found = list(check())
    print("\n".join(found) if found else "language: nothing found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

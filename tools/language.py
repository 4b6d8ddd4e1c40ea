"""Check the language of the product, its tests and its manifests: names, comments, docstrings and texts.

    python -m tools.language     # lists every place that breaks a rule, and fails if there are any

The rules are those of CONTRIBUTING.md: no retired words, docstrings with a subject and a verb, whole sentences, and one
meaning for each public class name.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.texts import ROOT, Text, docstrings, source_files, strings_of_module, template_strings, walk

FOLDERS = ("src", "tests", "bench", "examples", "tools")
CONFIGURATION_FOLDERS = ("deploy", "charts", "examples")
CONFIGURATION_SUFFIXES = {".yaml", ".yml", ".tpl", ".txt", ".json", ".go", ".proto"}
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
    for folder in FOLDERS:
        yield from _check_folder(folder, retired)
    yield from _check_strings(template_strings(), retired)
    for path in _configuration_files():
        yield from _check_texts(path, retired)


def _check_folder(folder: str, retired: RetiredWords) -> Iterator[str]:
    """Check the modules of a folder, its share of odd openings, and that no public class name is defined twice."""
    texts: list[tuple[str, str]] = []
    modules_by_class: dict[str, list[str]] = defaultdict(list)
    for path in source_files(folder):
        source, place = path.read_text(), str(path.relative_to(ROOT))
        tree = ast.parse(source)
        nodes = walk(tree)
        yield from _check_nodes(nodes, source, place, retired)
        if folder == "src":
            yield from _check_strings(strings_of_module(path, nodes), retired)
        texts += ((f"{place}:{line}", text) for line, text in docstrings(nodes))
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules_by_class[node.name].append(place)
    odd = [(place, text) for place, text in texts if ODD_OPENING.match(text)]
    if len(odd) > MAX_ODD_OPENINGS * len(texts):
        yield from (f"{place}: docstring opens with a question word: {text[:80]}" for place, text in odd)
    for name, modules in modules_by_class.items():
        if len(modules) > 1:
            yield f"{modules[0]}: class {name} is defined in {', '.join(modules[1:])} too; give each its own name"


def _check_strings(strings: Iterable[Text], retired: RetiredWords) -> Iterator[str]:
    for string in strings:
        if word := retired.find(string.content):
            yield f"{string}  <- retired word {word!r}"


def check_module(source: str, place: str, retired: RetiredWords) -> Iterator[str]:
    """Yield the findings in the names, comments and docstrings of one module."""
    yield from _check_nodes(walk(ast.parse(source)), source, place, retired)


def _check_nodes(nodes: list[ast.AST], source: str, place: str, retired: RetiredWords) -> Iterator[str]:
    yield from _check_names(nodes, place, retired)
    yield from _check_comments(source, place, retired)
    for line, text in docstrings(nodes):
        yield from _check_docstring(f"{place}:{line}", text, retired)


def _check_docstring(place: str, text: str, retired: RetiredWords) -> Iterator[str]:
    first = text.split("\n", 1)[0].strip()
    if word := retired.find(text):
        yield f"{place}: retired word {word!r} in a docstring: {first[:80]}"
    if FRAGMENT.search(first) or first[:1].islower():
        yield f"{place}: docstring is a fragment: {first[:80]}"


def _check_names(nodes: list[ast.AST], place: str, retired: RetiredWords) -> Iterator[str]:
    """Check each name that the module defines, and that of the module itself."""
    names = {(1, part) for part in place.removesuffix(".py").split("/")[1:]}
    names |= {(getattr(node, "lineno", 1), name) for node in nodes if (name := _defined_name(node))}
    for line, name in sorted(names):
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).replace("_", " ")
        if word := retired.find(words):
            yield f"{place}:{line}: retired word {word!r} in the name {name}"


def _defined_name(node: ast.AST) -> str:
    """Return the name that a node defines: a class, function, parameter, variable or attribute; empty for others."""
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return name
        case (
            ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store())
        ):
            return name
        case ast.alias(asname=str(name)):
            return name
    return ""


def _check_comments(source: str, place: str, retired: RetiredWords) -> Iterator[str]:
    if not any(retired.find(line[line.index("#") :]) for line in source.splitlines() if "#" in line):
        return  # without the time to tell comments from strings
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and (word := retired.find(token.string)):
            yield f"{place}:{token.start[0]}: retired word {word!r} in a comment: {token.string[:80]}"


def _configuration_files() -> Iterator[Path]:
    """Yield the manifests, templates, alerts, dashboards and build files whose texts people read."""
    for folder in CONFIGURATION_FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            is_generated = "crds" in path.parts or path.name == "go.sum"
            if path.is_file() and path.suffix in CONFIGURATION_SUFFIXES and not is_generated:
                yield path
    yield ROOT / "Makefile"


def _check_texts(path: Path, retired: RetiredWords) -> Iterator[str]:
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if word := retired.find(re.sub(r"[_$.]", " ", line)):
            yield f"{path.relative_to(ROOT)}:{number}: retired word {word!r}: {line.strip()[:80]}"


def main() -> int:
    """Print the findings; the exit status is 1 if there are any."""
    found = list(check())
    print("\n".join(found) if found else "language: nothing found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

"""List the texts of the product: docstrings, names, and every string that a user may read.

    python -m tools.texts                # all user-facing strings, one a line, to be reviewed by reading them
    python -m tools.texts --kind log      # only log keys; also: error, argument, output, text, template

`tools.language` checks the same texts against the language rules.
"""

from __future__ import annotations

import argparse
import ast
import html.parser
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOG_LEVELS = {"debug", "info", "warning", "error", "exception", "critical"}
USER_ARGUMENTS = {"message", "reason", "help", "description", "detail", "note", "title", "remedy", "cause"}
"""Keyword arguments whose strings reach Events, conditions, statuses, help texts or error messages."""
SENTENCE_WORDS = 3
"""A string of this many words is taken for a text that people read, wherever it stands."""


@dataclass(frozen=True, slots=True)
class Text:
    """One string of the product and its place."""

    path: Path
    line: int
    kind: str
    content: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: [{self.kind}] {' '.join(self.content.split())}"


def source_files(folder: str = "src") -> Iterator[Path]:
    """Yield the Python files that people write; protoc makes the others."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        if not path.name.endswith("_pb2.py"):
            yield path


def walk(tree: ast.AST) -> list[ast.AST]:
    """List a node and all below it, parents first, without contexts and operators; in a third of the time of `ast.walk`."""
    found = [tree]
    for node in found:
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                found += [each for each in value if isinstance(each, ast.AST)]
            elif isinstance(value, ast.AST) and value._fields:
                found.append(value)
    return found


def docstrings(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of modules, classes, functions and attributes."""
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
            text := ast.get_docstring(node)
        ):
            yield getattr(node, "lineno", 1), text
        body = getattr(node, "body", None)
        for before, after in pairwise(body) if isinstance(body, list) else ():
            if isinstance(before, ast.Assign | ast.AnnAssign) and (text := _constant(after)) is not None:
                yield after.lineno, text.strip()


def user_strings() -> Iterator[Text]:
    """Yield every string that a user may read: messages, log keys, help texts, output and templates."""
    for path in source_files():
        yield from strings_of_module(path, walk(ast.parse(path.read_text())))
    yield from template_strings()


def template_strings() -> Iterator[Text]:
    """Yield what the pages of the dashboard and of scans show."""
    for path in sorted((ROOT / "src").rglob("*.html")):
        yield from _strings_of_template(path)


def _constant(node: ast.AST) -> str | None:
    if (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ):
        return node.value.value
    return None


def _rendered(node: ast.expr) -> str | None:
    """Return a string or f-string with `…` for the values that are filled in."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
        return "".join(map(str, parts))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return (_rendered(node.left) or "…") + (_rendered(node.right) or "…")
    return None


def strings_of_module(path: Path, nodes: Sequence[ast.AST]) -> Iterator[Text]:
    """Yield the strings of a module by their use, then those that read like a sentence wherever they stand."""
    taken: set[int] = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for kind, node in (*_by_use(nodes), *_sentences(nodes)):
        text = _rendered(node)
        if text and id(node) not in taken:
            taken.update(map(id, walk(node)))
            yield Text(path, node.lineno, kind, text)


def _by_use(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    for node in nodes:
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield from (("error", argument) for argument in node.exc.args[:1])
        elif isinstance(node, ast.Call):
            if kind := _kind_of_call(node.func):
                yield from ((kind, argument) for argument in node.args[:1])
            yield from (("argument", word.value) for word in node.keywords if word.arg in USER_ARGUMENTS)


def _kind_of_call(function: ast.expr) -> str:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    receiver = ast.unparse(function.value) if isinstance(function, ast.Attribute) else ""
    if name in LOG_LEVELS and receiver.split(".")[-1] in {"log", "_log", "logger"}:
        return "log"
    return "output" if name in {"print", "echo"} else ""


def _sentences(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    for node in nodes:
        if isinstance(node, ast.JoinedStr | ast.Constant):
            text = _rendered(node) or ""
            if len(re.findall(r"[A-Za-z]{2,}", text)) >= SENTENCE_WORDS and " " in text.strip():
                yield "text", node


class _TemplateText(html.parser.HTMLParser):
    """Collects what a template shows, without tags and Jinja expressions."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[int, str]] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in {"script", "style"}
        for name, value in attrs:
            if name in {"title", "alt", "placeholder", "aria-label"} and value:
                self.found.append((self.getpos()[0], value))

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in {"script", "style"}

    def handle_data(self, data: str) -> None:
        if not self._hidden and re.search(r"[A-Za-z]{2,}", data):
            self.found.append((self.getpos()[0], data.strip()))


def _strings_of_template(path: Path) -> Iterator[Text]:
    without_jinja = re.sub(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", "…", path.read_text(), flags=re.DOTALL)
    parser = _TemplateText()
    parser.feed(without_jinja)
    for line, text in parser.found:
        yield Text(path, line, "template", text)


def main() -> None:
    """Print the user-facing strings."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--kind", help="only strings of this kind")
    chosen = options.parse_args().kind
    for text in user_strings():
        if chosen in {None, text.kind}:
            print(text)


if __name__ == "__main__":
    main()

"""Load YAML that others wrote, within bounds.

PyYAML composes nested collections by recursion in C, so 64 KiB of brackets end the process, and a few aliases of aliases
expand to billions of values in whatever walks the result. The events of the parser, which need neither recursion nor
expansion, are therefore checked first. Types are those of JSON, as `kubectl` reads YAML: dates and times stay text.
"""

from __future__ import annotations

from typing import Any

import yaml
from yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    Event,
    NodeEvent,
)
from yaml.nodes import ScalarNode

MAX_DEPTH = 128
"""Schemas of large CRDs nest about 60 levels."""
MAX_ALIASED_NODES = 100_000
"""The nodes that all aliases of a text may stand for."""
_MAX_NUMBER_LENGTH = 400
"""Python refuses to print integers of more than 4,300 digits, and takes quadratic time to parse them."""


class YamlBoundsError(yaml.MarkedYAMLError):
    """A YAML text is nested or aliased too much, or has a value that its tag does not allow."""

    def __init__(self, problem: str, mark: Any = None) -> None:
        super().__init__(None, None, problem, mark)


class YamlBounds:
    """Counts depth and aliases over the parser's events, and raises `YamlBoundsError` when there are too many."""

    def __init__(self) -> None:
        self._nodes = 0
        """The nodes so far, with each alias counted as all that it stands for."""
        self._aliased = 0
        self._open: list[tuple[str | None, int]] = []
        """The anchor of each open collection, and the nodes before it."""
        self._sizes: dict[str, int] = {}
        """The nodes of each finished anchor."""

    def add(self, event: Event) -> None:
        if isinstance(event, AliasEvent):
            self._add_alias(event)
        elif isinstance(event, NodeEvent):
            self._nodes += 1
            if isinstance(event, CollectionStartEvent):
                self._open.append((event.anchor, self._nodes - 1))
                if len(self._open) > MAX_DEPTH:
                    raise YamlBoundsError(f"it nests more than {MAX_DEPTH} levels", event.start_mark)
            elif event.anchor:
                self._sizes[event.anchor] = 1
        elif isinstance(event, CollectionEndEvent):
            anchor, before = self._open.pop()
            if anchor:
                self._sizes[anchor] = self._nodes - before
        elif isinstance(event, DocumentStartEvent):
            self._sizes.clear()

    def _add_alias(self, event: AliasEvent) -> None:
        if any(anchor == event.anchor for anchor, _ in self._open):
            raise YamlBoundsError("an alias refers to a collection that contains it", event.start_mark)
        size = self._sizes.get(event.anchor or "", 1)
        self._nodes += size
        self._aliased += size
        if self._aliased > MAX_ALIASED_NODES:
            raise YamlBoundsError(
                f"its aliases expand to more than {MAX_ALIASED_NODES:,} values", event.start_mark
            )


class _Loader(yaml.CSafeLoader):
    """A safe loader that knows JSON's types only."""


def _construct_int(loader: _Loader, node: ScalarNode) -> int | str:
    return node.value if _check_number(node) else loader.construct_yaml_int(node)


def _construct_float(loader: _Loader, node: ScalarNode) -> float | str:
    return node.value if _check_number(node) else loader.construct_yaml_float(node)


def _check_number(node: ScalarNode) -> bool:
    """Return True for a number to base 60, such as 16:00, which only YAML 1.1 knows; refuse a number that is too long."""
    if len(node.value) > _MAX_NUMBER_LENGTH:
        raise YamlBoundsError(f"a number has more than {_MAX_NUMBER_LENGTH} digits", node.start_mark)
    return ":" in node.value


_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _construct_float)
_Loader.yaml_implicit_resolvers = {
    first: [rule for rule in rules if rule[0] != "tag:yaml.org,2002:timestamp"]
    for first, rules in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


def load_yaml_documents(text: str | bytes) -> list[Any]:
    """Load all documents of a text; raises `yaml.YAMLError`, and nothing else, if it is invalid or beyond the bounds."""
    bounds = YamlBounds()
    try:
        for event in yaml.parse(text, Loader=_Loader):
            bounds.add(event)
        return list(yaml.load_all(text, Loader=_Loader))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        # PyYAML's constructors fail in their own ways on a tag that does not fit: `!!int ''`, `!!bool x`, `!!timestamp x`.
        # Their messages quote the value, which may be a password.
        raise YamlBoundsError("a value does not fit its tag") from None


def load_yaml(text: str | bytes) -> Any:
    """Load a text of one document at most; raises `yaml.YAMLError`, and nothing else."""
    documents = load_yaml_documents(text)
    if len(documents) > 1:
        raise YamlBoundsError(f"expected one document, and found {len(documents)}")
    return documents[0] if documents else None

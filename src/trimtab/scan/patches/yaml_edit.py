"""Change amounts inside users' YAML and nothing else: comments, order, quotes and indentation stay.

The text is parsed only to find positions; changes are spliced in there. Loading and dumping the text, even with a
library that keeps comments, would reformat the whole file and bury the change in the review.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import yaml
from yaml.events import AliasEvent, Event
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from trimtab.api.errors import QuantityError
from trimtab.api.quantity import Quantity
from trimtab.errors import TrimtabError
from trimtab.yaml_documents import YamlBounds, load_yaml

DesiredValue = Mapping[str, "DesiredValue"] | str | None
"""The desired value at a location: an amount, a mapping of values, or None to remove it."""
NULL = "null"
"""The value that removes a key when a patch is merged; it is never quoted."""

_EMBEDDED = "values"
"""The key of a text block that is YAML itself; its parts are compared separately."""
_NULL_TAG = "tag:yaml.org,2002:null"
_BLOCK_SCALARS = {"|", ">"}
_QUOTES = {"'", '"'}
_MERGE_KEY = "<<"
"""The key that merges an anchor into a mapping."""
_REPEATABLE_KEYS = {"", _MERGE_KEY}
"""The keys that may occur twice: the merge key and keys that are not text."""


_TEMPLATE_LINE = re.compile(r"^\s*\{\{", re.MULTILINE)
"""A line with only an action of a template, as in `{{- if .Values.web }}`."""


class TemplateError(TrimtabError):
    """The file is a template, and not YAML before it is rendered."""


class Splice(NamedTuple):
    """A replacement for a range of the text."""

    start: int
    end: int
    text: str


class _Loader(yaml.SafeLoader):
    """A loader that gives each alias (*) its own node with the position of the alias, not of its anchor (&)."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._bounds = YamlBounds()
        self.aliases: dict[Node, Node] = {}
        """The node that each alias refers to."""

    def scan_to_next_token(self) -> None:
        """Skip a tab between a key and its value too, as Go's parser, and so kubectl and Flux, do."""
        super().scan_to_next_token()
        while self.peek() == "\t" and (self.flow_level or not self.allow_simple_key):
            while self.peek() in " \t":
                self.forward()
            super().scan_to_next_token()

    def get_event(self) -> Event:
        event: Event = super().get_event()  # type: ignore[no-untyped-call]
        self._bounds.add(event)
        return event

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        alias = event if isinstance(event, AliasEvent) else None
        if alias is None:
            # Go's parser, and so kubectl and Flux, accept an anchor name that is defined again.
            self.anchors.pop(event.anchor, None)
        node = super().compose_node(parent, index)
        if alias is None or node is None:
            return node
        twin = copy.copy(node)
        twin.start_mark, twin.end_mark = alias.start_mark, alias.end_mark
        self.aliases[twin] = node
        return twin


class YamlText:
    """A YAML text of one or more documents; `roots` are their nodes with positions."""

    def __init__(self, text: str, *, where: str) -> None:
        self.text = text
        self.where = where
        self.roots: list[Node] = []
        try:
            loader = _Loader(text)
            while loader.check_node() and (root := loader.get_node()):
                self.roots.append(root)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            at = f"{where}, line {mark.line + 1}" if mark else where
            if _is_template(text, mark.line if mark else 0):
                raise TemplateError(f"{at}: give plain YAML, not a template") from None
            problem = getattr(error, "problem", None) or "the characters are not text"
            raise TrimtabError(f"{at}: this is not valid YAML: {problem}") from None
        self._aliases = loader.aliases
        if template := next((key for root in self.roots for key in self._find_templates(root)), None):
            line = template.start_mark.line + 1
            raise TemplateError(f"{where}, line {line}: give plain YAML, not a template")
        self._shared: set[Node] = set()
        for root in self.roots:
            self._collect_shared(root, {*self._aliases, *self._aliases.values()})
        self._newline = "\r\n" if "\r\n" in text else "\n"
        self._indent = next((step for root in self.roots for step in _list_indents(root)), 2)

    def apply(self, splices: Sequence[Splice]) -> str:
        """Return the text with these splices applied."""
        text = self.text
        for start, end, new in sorted(splices, reverse=True):
            text = text[:start] + new + text[end:]
        return text

    def apply_checked(self, splices: Sequence[Splice]) -> str:
        """Return the text with these splices applied; raises if anything but resources would change."""
        text = self.apply(splices)
        before, after = self.list_leaves(), YamlText(text, where=self.where).list_leaves()
        # The last check before a user's file is written: a splice beside the place (an anchor, a text block, an odd indent)
        # must not reach the file.
        for path, value in before ^ after:
            if not (value == "" or path[-1] == _EMBEDDED or {"requests", "limits"} & set(path)):
                raise TrimtabError(f"{'.'.join(path)} would change too; write the resources there by hand")
        return text

    def list_leaves(self) -> set[tuple[tuple[str, ...], str]]:
        """Return each scalar with its path; empty values are listed as an empty text."""
        return {
            leaf for number, root in enumerate(self.roots) for leaf in self._walk_leaves(root, (str(number),))
        }

    def put(self, owner: MappingNode, key: str, wanted: DesiredValue) -> Iterator[Splice]:
        """Yield the splices that set a key of a mapping; other content stays."""
        name, value = next((entry for entry in mapping_items(owner) if entry[0].value == key), (None, None))
        new = _drop_removed(wanted)
        if new is None and name is None:
            return
        # What an anchor shares would change in every place that refers to it, in workloads that nobody asked about.
        if value in self._shared or owner in self._shared or (name is None and _has_merged_key(owner, key)):
            raise self._build_shared_error(name or owner, key)
        if name is None or value is None:
            yield self._add_key(owner, key, new)
        elif isinstance(value, MappingNode) and value.value and isinstance(wanted, Mapping):
            yield from self._merge(owner, name, value, wanted)
        elif new is None:
            yield self._remove_key(owner, name)
        elif isinstance(new, Mapping):
            yield from self._insert_mapping(owner, name, value, new)
        elif not _is_same_quantity(scalar_text(value), str(new)):
            quote = _find_key_quote(owner) if owner.flow_style else ""
            if isinstance(value, ScalarNode) and value.style in _QUOTES:
                quote = value.style
            if new == NULL:
                quote = ""
            gap = "" if value.end_mark.index > value.start_mark.index else " "
            yield Splice(value.start_mark.index, value.end_mark.index, f"{gap}{quote}{new}{quote}")

    def append(self, owner: MappingNode, key: str, dumped: str) -> Iterator[Splice]:
        """Yield the splices that append items, given as a dumped list, to the list under a key."""
        value = find_child(owner, key)
        if isinstance(value, SequenceNode) and value.value and value.flow_style:
            at = self._find_end(value.value[-1])
            more = yaml.safe_dump(load_yaml(dumped), default_flow_style=True, sort_keys=False)
            yield Splice(at, at, f", {more.strip()[1:-1]}")
            return
        if owner.flow_style:
            raise TrimtabError(
                f"{self.where}: {key} cannot be added between braces; write the file in block style, one key a line"
            )
        indent = owner.value[0][0].start_mark.column
        at, head = (
            self._find_line_end(self._find_end(owner.value[-1][1])),
            f"{self._newline}{' ' * indent}{key}:",
        )
        if value is not None:
            at, head = self._find_line_end(self._find_end(value)), ""
            if sequence_items(value):
                indent = value.start_mark.column
            else:  # nothing, or []
                yield Splice(len(self.text[: value.start_mark.index].rstrip(" ")), value.end_mark.index, "")
        lines = "".join(f"{self._newline}{' ' * indent}{line}" for line in dumped.splitlines())
        yield Splice(at, at, head + lines)

    def parse_embedded(self, node: Node | None) -> YamlText | None:
        """Parse the YAML inside a text block (`values: |`); None if it is written in another style."""
        if not isinstance(node, ScalarNode) or node.style != "|" or node in self._shared:
            return None
        start, end = self._find_block_span(node)
        # Only a block that can be written back as it was: a block at the end of a file lost its blanks or got a line break.
        if self._indent_block(node, node.value) != self.text[start:end]:
            return None
        return YamlText(node.value, where=self.where)

    def replace_embedded(self, node: Node, new: str) -> Splice:
        """Replace the text block that `parse_embedded` parsed."""
        start, end = self._find_block_span(node)
        return Splice(start, end, self._indent_block(node, new))

    def _find_block_span(self, node: Node) -> tuple[int, int]:
        return self.text.find("\n", node.start_mark.index) + 1, self._find_end(node)

    def _indent_block(self, node: Node, value: str) -> str:
        start, _ = self._find_block_span(node)
        first = self.text[start:].lstrip("\r\n")
        indent = first[: len(first) - len(first.lstrip(" "))]
        lines = value.rstrip("\n").split("\n")
        return self._newline.join(f"{indent}{line}" if line else "" for line in lines)

    def _merge(
        self, owner: MappingNode, name: Node, value: MappingNode, wanted: Mapping[str, DesiredValue]
    ) -> Iterator[Splice]:
        is_nonempty = _has_remaining(value, wanted)
        if is_nonempty and (not value.flow_style or _changes_amounts_only(value, wanted)):
            for inner, each in wanted.items():
                yield from self.put(value, inner, each)
        elif any(each in self._shared for each in _walk_descendants(value)):
            raise self._build_shared_error(name, scalar_text(name))
        elif is_nonempty:
            yield Splice(value.start_mark.index, value.end_mark.index, self._rewrite(value, wanted))
        else:
            yield self._remove_key(owner, name)

    def _build_shared_error(self, node: Node, key: str) -> TrimtabError:
        line = node.start_mark.line + 1
        return TrimtabError(
            f"{self.where}, line {line}: {key} is shared through an anchor (&, *); write it out there"
        )

    def _collect_shared(self, node: Node, several: set[Node], *, shared: bool = False) -> None:
        """Collect the nodes that are reachable in several ways, and reject duplicate keys, of which only one would change."""
        shared = shared or node in several
        # Aliases of aliases reach a node in exponentially many ways; it is visited once.
        if shared and node in self._shared:
            return
        if shared:
            self._shared.add(node)
        else:
            self._reject_duplicates(node)
        for below in _child_nodes(node):
            self._collect_shared(below, several, shared=shared)

    def _find_templates(self, node: Node) -> Iterator[Node]:
        """Find templates such as `cpu: {{ .Values.cpu }}`, which YAML parses as a mapping in a key."""
        if node in self._aliases:
            return
        for name, value in mapping_items(node):
            if isinstance(name, MappingNode):
                yield name
            yield from self._find_templates(value)
        for each in sequence_items(node):
            yield from self._find_templates(each)

    def _walk_leaves(self, node: Node, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
        if node in self._aliases:
            yield path, self.text[node.start_mark.index : node.end_mark.index]
            return
        for name, value in mapping_items(node):
            yield from self._walk_leaves(value, (*path, scalar_text(name)))
        for number, value in enumerate(sequence_items(node)):
            yield from self._walk_leaves(value, (*path, str(number)))
        if isinstance(node, ScalarNode) and node.tag != _NULL_TAG:
            yield path, f"{node.tag} {node.value}"
        elif not node.value or isinstance(node, ScalarNode):
            yield path, ""

    def _reject_duplicates(self, mapping: Node) -> None:
        first: dict[str, Node] = {}
        for name, _ in mapping_items(mapping):
            before = first.setdefault(scalar_text(name), name)
            if before is not name and scalar_text(name) not in _REPEATABLE_KEYS:
                raise TrimtabError(
                    f"{self.where}, line {name.start_mark.line + 1}: {scalar_text(name)} is already defined in line "
                    f"{before.start_mark.line + 1}; remove one of them"
                )

    def _add_key(self, owner: MappingNode, key: str, new: DesiredValue) -> Splice:
        if owner.flow_style:
            at = self._find_end(owner.value[-1][1]) if owner.value else owner.end_mark.index - 1
            return Splice(
                at,
                at,
                f"{', ' if owner.value else ''}{_render_flow({key: new}, _find_key_quote(owner))[1:-1]}",
            )
        at = self._find_line_end(self._find_end(owner.value[-1][1]))
        return Splice(at, at, self._render_lines({key: new}, owner.value[0][0].start_mark.column))

    def _insert_mapping(
        self, owner: MappingNode, name: Node, value: Node, new: DesiredValue
    ) -> Iterator[Splice]:
        """Yield the splices that replace an empty value with a mapping, in block style unless the owner is in flow style."""
        start, end = value.start_mark.index, value.end_mark.index
        if isinstance(value, ScalarNode) and value.tag != _NULL_TAG:
            line = value.start_mark.line + 1
            raise TrimtabError(
                f"{self.where}, line {line}: {scalar_text(name)} is {value.value}, which is set elsewhere; change it there"
            )
        if owner.flow_style:
            yield Splice(
                start, end, f"{'' if end > start else ' '}{_render_flow(new, _find_key_quote(owner))}"
            )
            return
        yield Splice(len(self.text[:start].rstrip(" ")), end, "")
        at = self._find_line_end(end)
        yield Splice(at, at, self._render_lines(new, name.start_mark.column + self._indent))

    def _remove_key(self, owner: MappingNode, name: Node) -> Splice:
        place = next(number for number, entry in enumerate(owner.value) if entry[0] is name)
        value = owner.value[place][1]
        if owner.flow_style:
            if place:
                return Splice(self._find_end(owner.value[place - 1][1]), self._find_end(value), "")
            end = owner.value[1][0].start_mark.index if len(owner.value) > 1 else self._find_end(value)
            return Splice(name.start_mark.index, end, "")
        start = self.text.rfind("\n", 0, name.start_mark.index) + 1
        if self.text[start : name.start_mark.index].strip():  # the key follows the dash of a list item
            return Splice(name.end_mark.index, self._find_end(value), ": {}")
        end = self.text.find("\n", self._find_end(value)) + 1
        return Splice(start, end or len(self.text), "")

    def _rewrite(self, mapping: MappingNode, wanted: Mapping[str, DesiredValue]) -> str:
        """Rewrite a mapping in flow style that gains or loses keys: the commas require rewriting the whole."""
        there = dict.fromkeys(scalar_text(name) for name, _ in mapping_items(mapping))
        quote = _find_key_quote(mapping)
        parts = []
        for key in there | dict.fromkeys(wanted):
            value, each, name = find_child(mapping, key), wanted.get(key, ""), f"{quote}{key}{quote}"
            if isinstance(value, MappingNode) and value.value and isinstance(each, Mapping):
                if _has_remaining(value, each):
                    parts.append(f"{name}: {self._rewrite(value, each)}")
            elif key not in wanted and value is not None:
                parts.append(f"{name}: {self.text[value.start_mark.index : self._find_end(value)]}")
            elif (new := _drop_removed(each)) is not None:
                parts.append(f"{name}: {_render_flow(new, quote)}")
        return "{" + ", ".join(parts) + "}"

    def _render_lines(self, new: DesiredValue, indent: int) -> str:
        return "".join(f"{self._newline}{line}" for line in _render_block(new, indent, self._indent))

    def _find_end(self, node: Node) -> int:
        """Find the end of a node's own text: the parser's mark of a block lies after the comments that follow it."""
        if node in self._aliases:
            return int(node.end_mark.index)
        if isinstance(node, MappingNode | SequenceNode) and not node.flow_style and node.value:
            return self._find_end(_child_nodes(node)[-1])
        end = int(node.end_mark.index)
        if isinstance(node, ScalarNode) and node.style in _BLOCK_SCALARS:
            head = self.text[node.start_mark.index : end].partition("\n")[0].partition("#")[0]
            if "-" not in head and node.value and not node.value.endswith("\n"):
                line = node.start_mark.line + 1
                raise TrimtabError(
                    f"{self.where}, line {line}: this block ends without a line break; add one at the end of the file"
                )
            if "+" in head:  # the block keeps its trailing empty lines
                return len(self.text[:end].removesuffix(self._newline))
            return len(self.text[:end].rstrip("\r\n"))
        return end

    def _find_line_end(self, at: int) -> int:
        end = self.text.find("\n", at)
        if end < 0:
            return len(self.text)
        return end - 1 if self.text[end - 1 : end] == "\r" else end


def _is_template(text: str, problem_line: int) -> bool:
    """Return whether a text that is not YAML is a template; braces in a string elsewhere do not make it one."""
    near = text.split("\n")[max(problem_line - 1, 0) : problem_line + 1]
    return bool(_TEMPLATE_LINE.search(text)) or any("{{" in line for line in near)


def mapping_items(node: Node | None) -> list[tuple[Node, Node]]:
    """Return the keys and values of a mapping; nothing for other nodes."""
    return node.value if isinstance(node, MappingNode) else []


def find_child(node: Node | None, *keys: str) -> Node | None:
    """Return the node below a mapping at a path of keys."""
    for key in keys:
        node = next((value for name, value in mapping_items(node) if name.value == key), None)
    return node


def sequence_items(node: Node | None) -> Sequence[Node]:
    """Return the items of a sequence; nothing for other nodes."""
    return node.value if isinstance(node, SequenceNode) else ()


def scalar_text(node: Node | None) -> str:
    """Return the text of a scalar; empty for other nodes."""
    return str(node.value) if isinstance(node, ScalarNode) else ""


def _has_merged_key(mapping: Node, key: str) -> bool:
    """Return whether a mapping gets a key from an anchor: adding the key would replace its whole value."""
    taken = [value for name, value in mapping_items(mapping) if scalar_text(name) == _MERGE_KEY]
    return any(
        find_child(each, key) or _has_merged_key(each, key)
        for value in taken
        for each in (sequence_items(value) or [value])
    )


def _child_nodes(node: Node) -> list[Node]:
    if isinstance(node, MappingNode):
        return [value for _, value in node.value]
    return list(sequence_items(node))


def _walk_descendants(node: Node) -> Iterator[Node]:
    """Yield all nodes below a node."""
    for below in _child_nodes(node):
        yield below
        yield from _walk_descendants(below)


def _list_indents(node: Node) -> Iterator[int]:
    """Yield the indentation of mappings below mappings."""
    for name, value in mapping_items(node):
        if isinstance(value, MappingNode) and not value.flow_style and value.value:
            yield value.value[0][0].start_mark.column - name.start_mark.column
    for below in _child_nodes(node):
        yield from _list_indents(below)


def _is_same_quantity(old: str, new: str) -> bool:
    """Return whether both are the same quantity, however they are written."""
    try:
        return Quantity.parse(old) == Quantity.parse(new)
    except QuantityError:
        return old == new


def _drop_removed(wanted: DesiredValue) -> DesiredValue:
    """Return the desired value without removed keys; None if nothing remains."""
    if isinstance(wanted, Mapping):
        return {
            key: found for key, each in wanted.items() if (found := _drop_removed(each)) is not None
        } or None
    return wanted


def _has_remaining(mapping: MappingNode, wanted: Mapping[str, DesiredValue]) -> bool:
    """Return whether the mapping has any content after the change."""
    for name, value in mapping_items(mapping):
        each = wanted.get(name.value, "stays")
        if isinstance(each, Mapping) and isinstance(value, MappingNode) and value.value:
            if _has_remaining(value, each):
                return True
        elif _drop_removed(each) is not None:
            return True
    return any(_drop_removed(each) is not None for each in wanted.values())


def _changes_amounts_only(mapping: MappingNode, wanted: Mapping[str, DesiredValue]) -> bool:
    """Return whether only amounts change, and no key is added or removed."""
    for key, each in wanted.items():
        value = find_child(mapping, key)
        if isinstance(each, Mapping) and isinstance(value, MappingNode) and value.value:
            if not _changes_amounts_only(value, each):
                return False
        elif not (isinstance(each, str) and isinstance(value, ScalarNode)):
            return False
    return True


def _render_block(new: DesiredValue, indent: int, step: int) -> Iterator[str]:
    assert isinstance(new, Mapping)
    for key, each in new.items():
        if isinstance(each, Mapping):
            yield f"{' ' * indent}{key}:"
            yield from _render_block(each, indent + step, step)
        else:
            yield f"{' ' * indent}{key}: {each}"


def _render_flow(new: DesiredValue, quote: str) -> str:
    if isinstance(new, Mapping):
        return (
            "{"
            + ", ".join(f"{quote}{key}{quote}: {_render_flow(each, quote)}" for key, each in new.items())
            + "}"
        )
    return NULL if new == NULL else f"{quote}{new}{quote}"


def _find_key_quote(mapping: MappingNode) -> str:
    """Return the quote around the keys of a mapping in flow style, as JSON requires; empty if there is none."""
    return '"' if any(isinstance(name, ScalarNode) and name.style == '"' for name, _ in mapping.value) else ""

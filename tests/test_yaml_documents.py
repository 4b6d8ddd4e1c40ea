"""YAML that others wrote is loaded within bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from trimtab.errors import TrimtabError
from trimtab.kube.auth.kubeconfig_file import decode_kubeconfig
from trimtab.operator.config.loader import load_configuration
from trimtab.scan.patches.yaml_edit import YamlText
from trimtab.yaml_documents import MAX_DEPTH, load_yaml, load_yaml_documents

EXPONENTIAL = "a0: &a0 [1,1]\n" + "".join(
    f"a{number}: &a{number} [{', '.join([f'*a{number - 1}'] * 10)}]\n" for number in range(1, 12)
)
MERGED = "a0: &a0 {k: 1}\n" + "".join(
    f"a{number}: &a{number} {{<<: [{', '.join([f'*a{number - 1}'] * 10)}]}}\n" for number in range(1, 12)
)
HOSTILE = {
    "nested flow": ("[" * 40_000, "nests more than 128 levels"),
    "nested mappings": ('{"a":' * 40_000, "nests more than 128 levels"),
    "nested blocks": ("- " * 40_000, "nests more than 128 levels"),
    "aliases of aliases": (EXPONENTIAL, "aliases expand to more than 100,000 values"),
    "merges of merges": (MERGED, "aliases expand to more than 100,000 values"),
    "recursive alias": ("a: &a [*a]", "refers to a collection that contains it"),
}
"""Texts that end the process, or expand, with the plain loader."""


@pytest.mark.parametrize(("text", "problem"), HOSTILE.values(), ids=HOSTILE.keys())
def test_load_yaml_refuses_text_beyond_its_bounds(text: str, problem: str) -> None:
    with pytest.raises(yaml.YAMLError, match=problem):
        load_yaml(text)


@pytest.mark.parametrize(
    "text",
    ["!!int ''", "!!float ''", "!!bool maybe", "!!timestamp x", "1" * 5000, "0x" + "f" * 5000, "1" + ":59" * 9000, "a\0"],
)  # fmt: skip
def test_load_yaml_raises_no_other_error(text: str) -> None:
    with pytest.raises(yaml.YAMLError):
        load_yaml(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 2026-99-99", {"a": "2026-99-99"}),
        ("a: 16:00", {"a": "16:00"}),
        ("a: 1:30.5", {"a": "1:30.5"}),
        ("[0x10, 017, -3, 1.5, true, null]", [16, 15, -3, 1.5, True, None]),
        ("a: &a {b: 1}\nc: {<<: *a, d: 2}", {"a": {"b": 1}, "c": {"b": 1, "d": 2}}),
        ("[" * MAX_DEPTH + "]" * MAX_DEPTH, None),
        ("", None),
    ],
)
def test_load_yaml_reads_types_of_json(text: str, value: Any) -> None:
    found = load_yaml(text)
    assert value is None or found == value


def test_load_yaml_documents_reads_each_document() -> None:
    assert load_yaml_documents(b"a: &x 1\n---\nb: &x 2\n---\n") == [{"a": 1}, {"b": 2}, None]
    with pytest.raises(yaml.YAMLError, match="found 2"):
        load_yaml("a\n---\nb")


@pytest.mark.parametrize("text", [text for text, _ in HOSTILE.values()], ids=HOSTILE.keys())
def test_readers_of_yaml_refuse_hostile_text(text: str, tmp_path: Path) -> None:
    with pytest.raises(TrimtabError, match="YAML"):
        decode_kubeconfig(text.encode(), tmp_path)
    with pytest.raises(TrimtabError, match="YAML"):
        YamlText(text, where="web.yaml")
    with pytest.raises(TrimtabError, match="YAML"):
        load_configuration(text=text, environment={})

"""Test edits of YAML files: only the given amounts change."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from yaml.nodes import MappingNode

from trimtab.errors import TrimtabError
from trimtab.scan.patches.yaml_edit import DesiredValue, Splice, YamlText, find_child


def put(text: str, wanted: DesiredValue) -> str:
    parsed = YamlText(text, where="values.yaml")
    (root,) = parsed.roots
    assert isinstance(root, MappingNode)
    return parsed.apply(list(parsed.put(root, "resources", wanted)))


def amounts(**cpu: str | None) -> dict[str, DesiredValue]:
    return {kind: {"cpu": amount} for kind, amount in cpu.items()}


@pytest.mark.parametrize(
    ("before", "wanted", "after"),
    [
        ("resources:\n    requests:\n        cpu: '1' # one\n", amounts(requests="100m"),
         "resources:\n    requests:\n        cpu: '100m' # one\n"),
        ("resources: {} # none yet\nimage: x\n", amounts(requests="100m"),
         "resources: # none yet\n  requests:\n    cpu: 100m\nimage: x\n"),
        ("resources:\nimage: x", amounts(requests="1"), "resources:\n  requests:\n    cpu: 1\nimage: x"),
        ("resources: {requests: {cpu: 1, gpu: 2}}\n", amounts(requests="2", limits="3"),
         "resources: {requests: {cpu: 2, gpu: 2}, limits: {cpu: 3}}\n"),
        ("resources: { requests: { cpu: 1 } }\n", amounts(requests="2"), "resources: { requests: { cpu: 2 } }\n"),
        ("image: x # the last\n# a note", amounts(requests="1"),
         "image: x # the last\nresources:\n  requests:\n    cpu: 1\n# a note"),
        ("args: |\n  one\n  two\n\n# a note\n", amounts(requests="1"),
         "args: |\n  one\n  two\nresources:\n  requests:\n    cpu: 1\n\n# a note\n"),
        ("args: |+\n  one\n\nports: []\n", amounts(requests="1"),
         "args: |+\n  one\n\nports: []\nresources:\n  requests:\n    cpu: 1\n"),
        ("args: |+\n  one\n\n# a note\n", amounts(requests="1"),
         "args: |+\n  one\n\nresources:\n  requests:\n    cpu: 1\n# a note\n"),
        ("args: |\n  one\n    \n", amounts(requests="1"),
         "args: |\n  one\n    \nresources:\n  requests:\n    cpu: 1\n"),
        ("args: | # a + b\n  one\n\n", amounts(requests="1"),
         "args: | # a + b\n  one\nresources:\n  requests:\n    cpu: 1\n\n"),
        ("args: |-\n  one", amounts(requests="1"), "args: |-\n  one\nresources:\n  requests:\n    cpu: 1"),
        ("base: &base\n  - x\nargs: *base\n", amounts(requests="1"),
         "base: &base\n  - x\nargs: *base\nresources:\n  requests:\n    cpu: 1\n"),
        ("base: &base\n  - x\nargs: [*base]\nenv:\n- *base # again\n", amounts(requests="1"),
         "base: &base\n  - x\nargs: [*base]\nenv:\n- *base # again\nresources:\n  requests:\n    cpu: 1\n"),
        ("resources:\r\n  requests:\r\n    cpu: 1\r\n", amounts(limits="2"),
         "resources:\r\n  requests:\r\n    cpu: 1\r\n  limits:\r\n    cpu: 2\r\n"),
        ("resources:\n  limits:\n    cpu: 1\n    memory: 1Gi\n", amounts(limits=None),
         "resources:\n  limits:\n    memory: 1Gi\n"),
        ("a: 1\nresources:\n  limits:\n    cpu: 1\n", amounts(limits=None), "a: 1\n"),
        ("resources: {requests: {cpu: 0.1}}\n", amounts(requests="100m"), "resources: {requests: {cpu: 0.1}}\n"),
    ],
)  # fmt: skip
def test_put_changes_only_amounts(before: str, wanted: DesiredValue, after: str) -> None:
    assert put(before, wanted) == after


def test_put_rejects_block_without_final_line_break() -> None:
    with pytest.raises(TrimtabError, match=r"values.yaml, line 2: .* without a line break; add one"):
        put("image: x\nargs: |\n  one", amounts(requests="1"))


def test_put_rejects_alias_with_its_line() -> None:
    text = "base: &base\n  requests: {cpu: 1}\nresources: *base\n"
    with pytest.raises(TrimtabError, match=r"values.yaml, line 3: resources is shared through an anchor"):
        put(text, amounts(requests="2"))


def test_put_rejects_key_merged_from_anchor() -> None:
    text = "base: &base\n  resources: {limits: {nvidia.com/gpu: 1}}\nweb:\n  <<: *base\n  image: x\n"
    parsed = YamlText(text, where="values.yaml")
    (root,) = parsed.roots
    assert isinstance(root, MappingNode)
    with pytest.raises(TrimtabError, match=r"values.yaml, line 4: resources is shared through an anchor"):
        list(parsed.put(root.value[1][1], "resources", amounts(requests="2")))


def test_put_rejects_key_merged_through_two_anchors() -> None:
    text = "base: &base\n  resources: {limits: {memory: 1Gi}}\nmid: &mid\n  <<: *base\n"
    with pytest.raises(TrimtabError, match=r"values.yaml, line 1: resources is shared through an anchor"):
        put(text + "<<: *mid\n", amounts(requests="2"))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("base: &base\n  limits: {memory: 1Gi}\nresources: {<<: *base}\n", amounts(limits="2")),
        ("base: 1\nother: 2\nresources: {requests: &r {memory: 1}, limits: *r}\n", amounts(requests="2")),
        ("base: 1\nother: 2\nresources:\n  limits:\n    cpu: &one 1\nreplicas: *one\n", amounts(limits=None)),
    ],
)  # fmt: skip
def test_put_rejects_replacing_or_removing_an_anchor(text: str, wanted: DesiredValue) -> None:
    with pytest.raises(TrimtabError, match=r"values.yaml, line 3: resources is shared through an anchor"):
        put(text, wanted)


def test_put_rejects_adding_to_shared_mapping() -> None:
    with pytest.raises(TrimtabError, match=r"values.yaml, line 1: resources is shared through an anchor"):
        parsed = YamlText("web: &web\n  image: x\nworker: *web\n", where="values.yaml")
        (root,) = parsed.roots
        assert isinstance(root, MappingNode)
        list(parsed.put(root.value[0][1], "resources", amounts(requests="2")))


def test_put_rejects_duplicate_key() -> None:
    text = "resources:\n  requests: {cpu: 1}\nimage: x\nresources:\n  requests: {cpu: 2}\n"
    with pytest.raises(
        TrimtabError, match=r"values.yaml, line 4: resources is already defined in line 1; remove one"
    ):
        put(text, amounts(requests="3"))


def test_put_accepts_two_merge_keys() -> None:
    text = "a: &a {x: 1}\nb: &b {y: 2}\nc:\n  <<: *a\n  <<: *b\nresources: {requests: {cpu: 1}}\n"
    assert put(text, amounts(requests="2")) == text.replace("cpu: 1", "cpu: 2")


@pytest.mark.parametrize(
    "held", [{}, {"requests": {}}, {"requests": {"cpu": 1}}, {"limits": {"memory": "1Gi"}}, None]
)
@pytest.mark.parametrize("indent", [None, 2])
def test_put_keeps_json_valid(held: dict[str, Any] | None, indent: int | None) -> None:
    body = {"name": "web"} if held is None else {"name": "web", "resources": held}
    after = json.loads(put(json.dumps(body, indent=indent), amounts(requests="100m", limits="2")))
    assert after["resources"]["requests"] == {"cpu": "100m"}
    assert after["resources"]["limits"] == {**(held or {}).get("limits", {}), "cpu": "2"}


def test_put_writes_a_null_without_quotes() -> None:
    text = 'resources: {"limits": {"cpu": "1"}}\n'
    assert put(text, amounts(limits="null")) == 'resources: {"limits": {"cpu": null}}\n'
    assert put(put(text, amounts(limits="null")), amounts(limits="null")) == put(text, amounts(limits="null"))


def test_put_accepts_reused_anchor_name() -> None:
    text = "a: &n x\nb: *n\nc: &n y\nd: *n\nresources: {requests: {cpu: 1}}\n"
    assert put(text, amounts(requests="2")) == text.replace("cpu: 1", "cpu: 2")


def test_apply_checked_rejects_change_beside_resources() -> None:
    text = "image: x\nresources: {requests: {cpu: 1}}\n"
    parsed = YamlText(text, where="values.yaml")
    at = text.index("x")
    with pytest.raises(TrimtabError, match=r"^0.image would change too"):
        parsed.apply_checked([Splice(at, at + 1, "y")])


@pytest.mark.parametrize("block", ["|", "|-", "|+", "| # ours"])
def test_replace_embedded_edits_text_in_place(block: str) -> None:
    text = f"values: {block}\n    # one\n    cpu: 1\n\n    b: 2\n# the end\n"
    parsed = YamlText(text, where="app.yaml")
    node = find_child(parsed.roots[0], "values")
    inner = parsed.parse_embedded(node)
    assert inner
    assert node
    assert parsed.apply(
        [parsed.replace_embedded(node, inner.text.replace("cpu: 1", "cpu: 2\nc: 3"))]
    ) == text.replace("cpu: 1", "cpu: 2\n    c: 3")


@pytest.mark.parametrize("value", [">\n  a: 1\n", "'a: 1'\n", "|2\n   a: 1\n", "{a: 1}\n"])
def test_parse_embedded_ignores_other_styles(value: str) -> None:
    parsed = YamlText(f"values: {value}", where="app.yaml")
    assert parsed.parse_embedded(find_child(parsed.roots[0], "values")) is None


def test_yaml_text_rejects_template() -> None:
    with pytest.raises(TrimtabError, match=r"values.yaml, line 1: give plain YAML, not a template"):
        YamlText("{{- if .Values.on }}\nkind: Deployment\n", where="values.yaml")


AMOUNT = st.sampled_from(["100m", "1", "64Mi", "1536Mi"])
HELD = st.dictionaries(st.sampled_from(["cpu", "memory", "nvidia.com/gpu"]), AMOUNT, max_size=3)
RESOURCES = st.dictionaries(st.sampled_from(["requests", "limits", "claims"]), HELD, max_size=3)
WANTED = st.dictionaries(
    st.sampled_from(["requests", "limits"]),
    st.dictionaries(st.sampled_from(["cpu", "memory"]), st.none() | AMOUNT, min_size=1),
    min_size=1,
)


def merged(held: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a Kubernetes merge without empty mappings."""
    found = {kind: dict(amounts or {}) for kind, amounts in held.items()}
    for kind, each in wanted.items():
        found.setdefault(kind, {}).update(each)
    kept = {kind: {what: str(a) for what, a in each.items() if a is not None} for kind, each in found.items()}
    return {kind: each for kind, each in kept.items() if each}


@settings(max_examples=100)
@given(
    held=RESOURCES, wanted=WANTED, flow=st.sampled_from([None, True, False]), indent=st.sampled_from([2, 4])
)
def test_put_equals_merge_in_any_layout(
    *, held: dict[str, Any], wanted: dict[str, Any], flow: bool | None, indent: int
) -> None:
    body = {"name": "web", "resources": held, "ports": [{"port": 80}]}
    dumped = yaml.safe_dump(body, default_flow_style=flow, indent=indent, sort_keys=False)
    text = f"# the first line\n{dumped}# the last line\n"
    after = put(text, wanted)
    found = yaml.safe_load(after)
    assert merged(found.get("resources") or {}, {}) == merged(held, wanted)
    assert {**found, "resources": held} == body
    assert after.startswith("# the first line\n")
    assert after.endswith("# the last line\n")

"""Meaning of the other kinds beyond their fields."""

from pathlib import Path

import pytest
import yaml

from api.test_kinds import BY_NAME, EXAMPLES

from .conftest import Kinds


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_kind_example_is_accepted_by_model_and_server(path: Path, kinds: Kinds) -> None:
    manifest = yaml.safe_load(path.read_text())
    kind = BY_NAME[manifest["kind"]]
    ours = kind.read(manifest, origin=path.name)
    theirs = kinds.create(kind, manifest["spec"])
    assert kind.read({**theirs, "metadata": manifest["metadata"]}) == ours
